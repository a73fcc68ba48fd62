"""What the controller writes down of tables: when, how often, and how much of it stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from anew.api.tables.requests import DropSegments
from anew.catalog.change import Put, PutSegment, PutStore, PutTable
from anew.controller.engine.apart import Apart
from anew.controller.restore.records import Memory
from anew.controller.restore.tablefiles import RecordFiles
from anew.core.tables.table import SLOTS
from anew.deepstore.open import open_deep_store
from anew.segments.layout import CONFIG_RECORDS, table_records_path
from anew.segments.record import SegmentList, TableRecord
from anew.testing.builders import FABRIC, a_store
from anew.testing.catalog_contract import a_change
from anew.testing.table_builders import a_segment, a_table
from tests.component.controller.harness import LIMITS
from tests.component.controller.tables.recording import Faulty, records, restore, told, without_catalog
from tests.component.controller.tables.tables_harness import Tables


def _newest(tables: Tables) -> TableRecord:
    uid = tables.table().uid
    files = RecordFiles.of(uid, records(tables))
    return files.record(tables.cluster.deep, files.newest_first[0])


def _drop(tables: Tables, *segments: str) -> None:
    tables.cluster.client.drop_segments("trips", DropSegments(segments=segments))


def test_rounds_without_changes_write_nothing(tables: Tables) -> None:
    """Neither signs of life, nor considering a schedule, nor changes of another table, nor a new controller write."""
    tables.create(refresh={"schedule": "0 3 * * *"})
    tables.load("a", "b")
    tables.round()
    faulty, revision = Faulty(tables), tables.table().revision
    tables.pass_seconds(60)
    tables.settle(3)
    other = tables.create("cabs")
    tables.load("c", name="cabs")
    tables.start_over()
    tables.settle(2)
    assert {path.split("/")[2] for path in faulty.puts if not path.startswith("tables/")} == {other.uid}
    tables.pass_seconds(86_400)
    tables.settle(2)
    assert tables.table().revision > revision
    assert not any(table in path for path in faulty.puts for table in [f"{table_records_path(tables.table().uid)}/"])


def test_only_what_changed_is_written(tables: Tables) -> None:
    """A segment that is dropped costs its slot's list and a record, and no other list is read or written."""
    tables.create()
    tables.load(*(f"s{number}" for number in range(10)))
    tables.round()
    before, faulty = _newest(tables), Faulty(tables)
    slot = tables.segment("s4").slot
    _drop(tables, "s4")
    tables.round()
    after = _newest(tables)
    assert [path.split("/")[3] for path in faulty.puts] == ["slots", "table"]
    assert {each for each in before.slots if before.slots[each] != after.slots[each]} == {slot}
    assert (len(after.slots), after.table) == (10, tables.table())


def test_records_and_lists_are_few(tables: Tables) -> None:
    """However often a table changes: three records, the lists that they name, and each configuration once."""
    tables.create()
    tables.load("a", "b")
    tables.round()
    for number in range(6):
        tables.update(sort="id" if number % 2 else "city")
        tables.refresh()
        tables.round()
    kept = records(tables, "/table/")
    uid = tables.table().uid
    files = RecordFiles.of(uid, records(tables))
    named = {path for each in kept for path in files.record(tables.cluster.deep, each).slots.items()}
    assert len(kept) == 3
    assert {(slot, name) for slot, names in files.lists.items() for name in names} == named
    assert len(tables.cluster.files(CONFIG_RECORDS)) == 3


@pytest.mark.parametrize("part", ["/table/", "/slots/", CONFIG_RECORDS])
def test_what_could_not_be_written_is_written_later(tables: Tables, tmp_path: Path, part: str) -> None:
    """While the deep store takes no files of a kind everything goes on, and what it had stays whole; then it comes."""
    tables.create()
    tables.load("a")
    tables.round()
    faulty = Faulty(tables)
    faulty.refuses = lambda path: part in path
    tables.update(sort="id")
    _drop(tables, "a")
    tables.load("b", "c")
    tables.settle(3)
    assert tables.hosted("node-1") | tables.hosted("node-2") == {"b", "c"}
    assert _newest(tables).table.settings.sort == ()
    with without_catalog(tables, tmp_path / "early") as again:
        assert told(restore(again))["segments"] == 1
        assert [segment.name for segment in again.cluster.client.segments("trips")] == ["a"]
    faulty.refuses = lambda _path: False
    tables.round()
    with without_catalog(tables, tmp_path / "late") as again:
        assert "1 files" in told(restore(again))["notes"][0]
        assert [segment.name for segment in again.cluster.client.segments("trips")] == ["b", "c"]


@pytest.mark.parametrize("with_store", [True, False])
def test_a_fabric_that_is_away_does_not_hold_up_the_others(tables: Tables, tmp_path: Path, *, with_store: bool) -> None:
    """What is to be written in it is tried once in a round, not for each table; what belongs elsewhere is written."""
    context, faulty, tried = tables.cluster.context, Faulty(tables), list[str]()

    def refuses(path: str) -> bool:
        tried.append(path)
        return True

    faulty.refuses = refuses
    there = open_deep_store(str(tmp_path / "there"))
    fabrics = {**context.fabrics, "dc-1": replace(context.fabrics[FABRIC], name="dc-1", deep_store=there)}
    here, elsewhere = a_table("cabs"), a_table("trips").model_copy(update={"fabric": "dc-1"})
    store = a_store().model_copy(update={"fabrics": (FABRIC, "dc-1")})
    puts: list[Put] = [PutStore(store, None)] if with_store else []
    puts += [PutTable(table, None) for table in (here, a_table("more"), elsewhere)]
    context.catalog.commit(a_change("op-1", *puts))
    memory = Memory(replace(context, fabrics=fabrics))
    memory.remember(Apart())
    found = [stored.path for stored in there.list("catalog")]
    assert [path for path in found if store.uid in path or elsewhere.uid in path] == found != []
    assert len(found) == 1 + with_store
    assert len(tried) == 1
    faulty.refuses = lambda _path: False
    memory.remember(Apart())
    assert {path.split("/")[2] for path in records(tables)} == {here.uid, "uid-more"}


def _advance(tables: Tables) -> None:
    tables.clock.advance(150)


def test_what_takes_long_rests(tables: Tables) -> None:
    """After a table whose records took long to write rounds are for others; a while later its changes are written."""
    tables.create()
    tables.load("a")
    faulty = Faulty(tables)
    faulty.before_put = lambda _path: _advance(tables)
    tables.round()
    assert len(records(tables, "/slots/")) == 1
    faulty.before_put = lambda _path: None
    tables.load("b")
    tables.round()
    other = tables.create("cabs")
    assert (len(records(tables, "/slots/")), len(records(tables, other.uid))) == (1, 1)
    tables.pass_seconds(60)
    tables.round()
    assert len(records(tables, "/slots/")) == 2


def test_lists_that_another_controller_writes_are_left_alone(tables: Tables) -> None:
    """One that no record names yet, but that is not older than all that are kept, may be named by a record to come."""
    tables.create()
    tables.load("a")
    tables.round()
    first = records(tables, "/slots/")[0]
    slot = first.rpartition("/")[0]
    coming = f"{slot}/{5:020d}-{'a' * 16}.json.zst"
    tables.cluster.deep.put(coming, b"to come")
    for number in range(3):
        tables.update(sort="id" if number % 2 else "city")
        tables.refresh()
        tables.round()
    assert coming in records(tables)
    assert first not in records(tables)
    for number in range(4):
        tables.update(sort="id" if number % 2 else "left_at")
        tables.refresh()
        tables.round()
    assert coming not in records(tables)


def test_a_record_that_is_damaged_is_followed_by_a_whole_one(tables: Tables) -> None:
    """A controller that comes again and finds the newest record, or a list of it, gone or changed writes them again."""
    tables.create()
    tables.load("a")
    tables.round()
    before = records(tables)
    for path in (records(tables, "/slots/")[-1], records(tables, "/table/")[-1]):
        tables.cluster.deep.delete(path)
        tables.start_over()
        tables.round()
        assert records(tables) == before


def test_what_an_older_catalog_does_not_know_is_not_believed(tables: Tables, tmp_path: Path) -> None:
    """Where a copy of the catalog was put back, a record of a later time does not say what the slots hold now."""
    tables.create()
    tables.load("a")
    tables.round()
    table, slot = tables.table(), tables.segment("a").slot
    other = a_segment("other", slot=slot).model_copy(update={"table_uid": table.uid})
    with without_catalog(tables, tmp_path) as again:
        context = again.cluster.context
        context.catalog.commit(a_change("op-1", PutTable(table, None), PutSegment(other, None)))
        Memory(context).remember(Apart())
        files = RecordFiles.of(table.uid, records(again))
        record = files.record(again.cluster.deep, files.newest_first[-1])
        listed = files.lists_of(again.cluster.deep, record)[slot]
        assert (record.table.revision, [each.name for each in listed.segments()]) == (1, ["other"])


def test_a_deleted_table_leaves_its_end_alone(tables: Tables) -> None:
    """Its lists go with the record of its end, which stays when its files are reclaimed."""
    table = tables.create()
    tables.load("a", "b")
    tables.round()
    assert len(records(tables, "/slots/")) == 2
    tables.cluster.client.delete_table("trips")
    tables.round()
    assert (records(tables, "/slots/"), len(tables.files())) == ([], 2)
    tables.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
    tables.round()
    kept = records(tables)
    assert (tables.files(), len(kept)) == ([], 3)
    newest = RecordFiles.of(table.uid, kept).record(tables.cluster.deep, kept[-1])
    assert (newest.table.deleted_at_ms is not None, newest.slots) == (True, {})


def test_a_stop_writes_down_what_changed_last(tables: Tables) -> None:
    """A controller that is stopped remembers once more, without a round."""
    tables.create()
    tables.load("a")
    tables.cluster.reconciler.remember()
    assert len(_newest(tables).slots) == 1


def test_many_slots_are_read_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of one slot among all of them reads that slot alone, also by a controller that has just come."""
    tables.create()
    tables.load(*(f"s{number:03d}" for number in range(SLOTS + 3)))
    tables.round()
    assert len(_newest(tables).slots) == SLOTS
    read, of = list[int](), SegmentList.of

    def counted(documents: Iterable[str]) -> SegmentList:
        texts = list(documents)
        read.append(len(texts))
        return of(texts)

    monkeypatch.setattr(SegmentList, "of", counted)
    tables.start_over()
    tables.round()
    assert read == []
    _drop(tables, "s001")
    tables.round()
    assert read == [1]
