"""Tables of a lost catalog come back from their records: whole, or as they were a moment before, and never half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anew.api.tables.requests import CreateTable, DropSegments, ReloadTable
from anew.controller.restore.stores import ERA
from anew.controller.restore.tablefiles import MARGIN_MS
from anew.core.errors import NotFound, Refused
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table
from anew.segments.layout import CONFIG_RECORDS, TABLE_RECORDS
from anew.testing.table_builders import a_schema
from tests.component.controller.harness import LIMITS, refused
from tests.component.controller.tables.recording import Faulty, records, restore, told, without_catalog
from tests.component.controller.tables.tables_harness import Tables


def _held(tables: Tables) -> tuple[list[Table], list[Segment], dict[str, SegmentConfig | None]]:
    """All tables, their segments and every configuration, but for revisions."""
    catalog = tables.cluster.context.catalog
    found = [*catalog.tables(), *catalog.deleted_tables()]
    segments = [segment for table in catalog.tables() for segment in catalog.segments(table.uid)]
    configs = {each: catalog.table_config(each) for each in catalog.table_config_hashes()}
    return (
        [table.model_copy(update={"revision": 0}) for table in found],
        [segment.model_copy(update={"revision": 0}) for segment in segments],
        configs,
    )


def _drop(tables: Tables, *segments: str) -> None:
    tables.cluster.client.drop_segments("trips", DropSegments(segments=segments))


def _names(tables: Tables, name: str = "trips") -> list[str]:
    return [segment.name for segment in tables.cluster.client.segments(name)]


def _in_no_record(table: Table, count: int) -> str:
    why = "of rebuilds that were running, or of the last moments"
    return f"{count} files in tables/{table.uid} are in no record ({why}): they stay"


def _age(tables: Tables, *paths: str) -> None:
    """Let files be two hours old."""
    for path in paths:
        stored = tables.cluster.deep.stat(path)
        assert stored is not None
        then_seconds = stored.modified_ms / 1000 - 7_200
        os.utime(tables.cluster.deep.absolute(path), (then_seconds, then_seconds))


def test_tables_come_back_as_they_were(tables: Tables, tmp_path: Path) -> None:
    """Columns, settings, nodes, reloads, segments with their builds and failures, and every configuration."""
    tables.create(sort="city")
    tables.load("a", "b", "c")
    tables.update(schema=a_schema({"name": "tip", "type": "double"}), sort="id", tags=["x"])
    rebuild = tables.begin(tables.plan())
    tables.commit(rebuild, tables.failed(rebuild, "b"))
    for segment in ("a", "c"):
        tables.commit(rebuild, tables.refreshed(rebuild, segment))
    tables.finish(rebuild)
    tables.cluster.client.reload_table("trips", ReloadTable(segment="c"))
    tables.create("cabs")
    tables.settle()
    before, served = _held(tables), tables.desired("node-1")
    assert [segment.failure is None for segment in before[1]] == [True, False, True]
    with without_catalog(tables, tmp_path) as again:
        dry = restore(again, dry_run=True)
        assert (again.cluster.context.catalog.tables(), dry.empty, dry.stores) == ([], True, ())
        answer = restore(again)
        assert answer.tables == dry.tables
        assert _held(again) == before
        shown = told(answer)
        assert (shown["segments"], shown["rows"], shown["bytes"], shown["deleted"]) == (3, 30, 3_000, False)
        assert [note for one in answer.tables for note in one.notes] == [_in_no_record(before[0][1], 2)]
        assert again.stale() == ["b"]
        assert again.desired("node-1").segments == served.segments
        assert again.cluster.context.catalog.revision() > ERA


@pytest.mark.case("rules:R16")
def test_a_restored_table_goes_on(tables: Tables, tmp_path: Path) -> None:
    """Revisions are greater than any before; a refresh, a load and a drop work, and a second restore knows them."""
    tables.create()
    tables.load("a", "b")
    tables.settle()
    with without_catalog(tables, tmp_path) as again:
        restore(again)
        assert again.table().revision == again.segment("a").revision == ERA
        again.settle()
        again.update(sort="id")
        assert again.refresh().status == "succeeded"
        again.load("new")
        _drop(again, "b")
        again.settle()
        assert (_names(again), again.stale()) == (["a", "new"], [])
        assert again.table().revision > ERA
        held = _held(again)
        with without_catalog(again, tmp_path / "more") as third:
            restore(third)
            assert _held(third) == held
            assert third.table().revision == 2 * ERA


def test_what_was_dropped_stays_away(tables: Tables, tmp_path: Path) -> None:
    """Neither a dropped segment, nor the last one of a slot, nor a deleted table comes back."""
    tables.create()
    tables.load("a", "b", "c")
    gone = tables.create("gone")
    tables.load("x", name="gone")
    tables.settle()
    _drop(tables, "a", "c")
    tables.cluster.client.delete_table("gone")
    tables.round()
    new = tables.create("gone")
    with without_catalog(tables, tmp_path) as again:
        answer = restore(again)
        assert _names(again) == ["b"]
        assert [one.deleted for one in answer.tables if one.name == "gone"].count(True) == 1
        assert again.table("gone").uid == new.uid
        assert again.cluster.context.catalog.segments(gone.uid) == []
        again.settle()
        assert _names(again) == ["b"]


def test_what_had_its_time_is_reclaimed_all_the_same(tables: Tables, tmp_path: Path) -> None:
    """Files of deleted tables, dropped segments and replaced builds go after the grace; what is named stays."""
    tables.create(backup_retention_seconds=0)
    tables.load("a", "b")
    gone = tables.create("gone")
    tables.load("x", name="gone")
    tables.settle()
    tables.update(sort="id")
    tables.refresh()
    _drop(tables, "b")
    tables.cluster.client.delete_table("gone")
    running = tables.begin(tables.load_plan())
    waits = tables.build(running, "new").path
    tables.round()
    kept = tables.segment("a").build.path
    young = tables.build(running, "newer").path
    late = tables.load("late")
    _age(tables, *(path for path in tables.files() if path != young and late.id not in path))
    assert len(tables.files()) == 8
    with without_catalog(tables, tmp_path) as again:
        restore(again)
        again.settle()
        assert len(again.files()) == 8
        again.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
        again.settle()
        left = again.files()
        assert {kept, waits, young} < set(left)
        assert [late.id in path for path in left].count(True) == 1
        assert len(left) == 4, "what was replaced and dropped has gone, and all of the table that was deleted"
        assert len(records(again, gone.uid)) > 0


def test_a_record_that_took_long_lets_no_file_go(tables: Tables, tmp_path: Path) -> None:
    """Where nobody can say what ran when its file came, a file that no segment names stays, however old it is."""
    tables.create(backup_retention_seconds=0)
    tables.load("a", "b")
    tables.settle()
    _drop(tables, "b")
    faulty = Faulty(tables)
    faulty.before_put = lambda _path: _advance(tables)
    tables.round()
    _age(tables, *tables.files())
    with without_catalog(tables, tmp_path) as again:
        assert told(restore(again))["notes"] == [_in_no_record(tables.table(), 1)]
        again.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
        again.settle()
        assert len(again.files()) == 2


def _advance(tables: Tables) -> None:
    tables.clock.advance(MARGIN_MS)


def test_a_segment_whose_file_is_gone_is_told_of(tables: Tables, tmp_path: Path) -> None:
    """It stays, because a node may have a copy to repair it from; so does one whose file has another size."""
    tables.create()
    tables.load("a", "b", "c")
    tables.settle()
    tables.cluster.deep.delete(tables.segment("a").build.path)
    changed = tables.segment("c").build.path
    tables.cluster.deep.delete(changed)
    tables.cluster.deep.put(changed, b"short")
    with without_catalog(tables, tmp_path) as again:
        assert told(restore(again))["notes"] == ["the files of 2 segments are gone: a, c; anew table repair trips"]
        assert _names(again) == ["a", "b", "c"]


@pytest.mark.parametrize("part", ["/slots/", "/table/"])
@pytest.mark.case("tables:F3")
def test_a_crash_while_writing_leaves_what_was_before(tables: Tables, tmp_path: Path, part: str) -> None:
    """Of a load of many slots, a drop and new settings whose records are written in part nothing is restored."""
    tables.create()
    tables.load("a", "b")
    tables.settle()
    before = _held(tables)
    faulty = Faulty(tables)
    tables.update(sort="id")
    tables.load(*(f"s{number}" for number in range(6)))
    _drop(tables, "a")
    taken = list[str]()

    def crashes(path: str) -> bool:
        taken.append(path)
        return part in path and sum(part in each for each in taken) > (3 if part == "/slots/" else 0)

    faulty.refuses = crashes
    tables.round()
    assert len(taken) > 3
    faulty.refuses = lambda _path: False
    with without_catalog(tables, tmp_path) as again:
        restore(again)
        assert _held(again)[:2] == before[:2]


@pytest.mark.parametrize("damage", ["record", "a later release", "another table", "another fabric", "list", "no list"])
def test_a_damaged_record_is_told_of_and_the_one_before_is_used(tables: Tables, tmp_path: Path, damage: str) -> None:
    """What is restored is of one moment: a record counts only with all of its lists."""
    tables.create()
    tables.load("a", "b")
    tables.settle()
    before = _held(tables)
    tables.load("c")
    tables.round()
    newest = records(tables, "/table/")[-1]
    content = tables.cluster.deep.get(newest)
    named = f"slots/{tables.segment('c').slot:02d}/"
    bad = next(path for path in records(tables) if named in path) if "list" in damage else newest
    instead = {
        "record": b"{",
        "a later release": content.replace(b'"slots"', b'"lists"'),
        "another table": content.replace(b'"uid": "', b'"uid": "x'),
        "another fabric": content.replace(b'"fabric": "dc-0"', b'"fabric": "dc-9"'),
        "list": tables.cluster.deep.get(records(tables, "/slots/00/")[0]),
    }
    tables.cluster.deep.delete(bad)
    if damage in instead:
        tables.cluster.deep.put(bad, instead[damage])
    with without_catalog(tables, tmp_path) as again:
        notes = told(restore(again))["notes"]
        assert (newest in notes[0], "1 files in" in notes[1]) == (True, True), notes
        assert _held(again)[:2] == before[:2]
        again.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
        again.settle()
        assert len(again.files()) == 3


def test_a_table_without_a_whole_record_is_told_of(tables: Tables, tmp_path: Path) -> None:
    """Where no record can be used the answer says so, and everything else is restored."""
    tables.create("cabs")
    table = tables.create()
    tables.load("a")
    tables.round()
    for path in records(tables, f"{table.uid}/table/"):
        tables.cluster.deep.delete(path)
    with without_catalog(tables, tmp_path) as again:
        answer = restore(again)
        assert ([one.name for one in answer.tables], len(answer.notes)) == (["cabs"], 1)
        assert table.uid in answer.notes[0]
        assert len(again.files()) == 1


def test_a_lost_configuration_is_told_of(tables: Tables, tmp_path: Path) -> None:
    """Segments of a configuration that nobody can read are stale, and a refresh makes them again."""
    tables.create()
    tables.load("a")
    old = tables.table().config_hash
    tables.update(sort="id")
    tables.round()
    path = f"{CONFIG_RECORDS}/{old}.json"
    tables.cluster.deep.delete(path)
    tables.cluster.deep.put(path, b"{")
    with without_catalog(tables, tmp_path) as again:
        assert "made with a configuration that is lost" in told(restore(again))["notes"][0]
        again.settle()
        assert again.refresh().status == "succeeded"
        assert again.stale() == []


@pytest.mark.case("rules:R22")
def test_a_driver_of_the_lost_catalog_commits_nothing(tables: Tables, tmp_path: Path) -> None:
    """A refresh and a load that were under way are not known any more; a new refresh does what is left."""
    tables.create()
    tables.load("a", "b")
    tables.update(sort="id")
    refresh = tables.begin(tables.plan())
    tables.commit(refresh, tables.refreshed(refresh, "a"))
    load = tables.begin(tables.load_plan())
    loaded = tables.load_of(load, "new")
    late = tables.refreshed(refresh, "b")
    tables.settle()
    with without_catalog(tables, tmp_path) as again:
        restore(again)
        attempts = (
            lambda: again.commit(refresh, late),
            lambda: again.cluster.client.commit_load(load.id, loaded),
            lambda: again.beat(load),
            lambda: again.finish(refresh),
        )
        assert [refused(NotFound, attempt).code for attempt in attempts] == ["unknown_rebuild"] * 4
        assert (_names(again), again.stale()) == (["a", "b"], ["b"])
        again.settle()
        assert _chosen(again) == ["b"]
        again.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
        again.settle()
        assert loaded.segments[0].build.path in again.files(), "nobody can say whether it was committed"


def _chosen(tables: Tables) -> list[str]:
    rebuild: TableRebuild = tables.begin(tables.plan())
    return [planned.segment for planned in rebuild.plan.segments]


@pytest.mark.case("rules:R22")
def test_the_same_request_restores_once(tables: Tables, tmp_path: Path) -> None:
    """Asked again with its id it answers as before, also after other changes."""
    tables.create()
    tables.load("a")
    tables.round()
    with without_catalog(tables, tmp_path) as again:
        first = restore(again, request_id="restore-1")
        again.update(tags=["later"])
        assert restore(again, request_id="restore-1") == first
        assert again.table().settings.tags == ("later",)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_catalog_with_a_table_is_left_alone(tables: Tables, *, deleted: bool) -> None:
    """It is not empty, and a restore into it is refused."""
    tables.create()
    tables.round()
    if deleted:
        tables.cluster.client.delete_table("trips")
    assert restore(tables, dry_run=True).empty is False
    assert refused(Refused, lambda: restore(tables)).code == "catalog_not_empty"


def test_of_two_tables_with_a_name_the_younger_lives(tables: Tables, tmp_path: Path) -> None:
    """Where the end of the older one was not written down, it counts as deleted, and its files stay."""
    old = tables.create()
    tables.load("a")
    tables.round()
    faulty = Faulty(tables)
    faulty.refuses = lambda path: old.uid in path
    tables.cluster.client.delete_table("trips")
    tables.clock.advance(1_000)
    tables.cluster.client.create_table(CreateTable(name="trips", columns=a_schema(), settings={"replicas": 1}))
    new = tables.table()
    tables.round()
    faulty.refuses = lambda path: old.uid in path and path.startswith(TABLE_RECORDS)
    tables.round()
    assert {path.split("/")[2] for path in records(tables)} == {old.uid, new.uid}
    with without_catalog(tables, tmp_path) as again:
        answer = restore(again)
        notes = {one.uid: one.notes for one in answer.tables}
        assert again.table().uid == new.uid
        assert "it counts as deleted" in notes[old.uid][0]
        again.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
        again.round()
        assert len(again.files()) == 1
