"""Builds take the place of those that were read, or of none: what else happened meanwhile always wins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from anew.api.tables.requests import DropSegments, ReadSegments
from anew.catalog.change import Change
from anew.cli import rebuilds
from anew.core.errors import Failed, InvalidRequest, NotFound, OutcomeUnknown, Refused
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild
from anew.core.tables.segment import ColumnStats, Segment
from tests.component.controller.harness import plain, refused
from tests.component.controller.tables.tables_harness import Tables

_SUPERSEDED = "another build took its place meanwhile"
_DELETED = "the segment was deleted meanwhile"
_GRACE_SECONDS = 600


def _begun(tables: Tables, *segments: str, **settings: Any) -> TableRebuild:
    """A refresh to a new sort of these segments, loaded before, that has begun."""
    tables.create(backup_retention_seconds=0, **settings)
    tables.load(*segments)
    tables.update(sort="city")
    return tables.begin(tables.plan())


def _drop(tables: Tables, segment: str) -> None:
    tables.cluster.client.drop_segments("trips", DropSegments(segments=(segment,)))


def _load_again(tables: Tables, segment: str) -> None:
    tables.load(segment)


def _drop_and_load_again(tables: Tables, segment: str) -> None:
    _drop(tables, segment)
    tables.load(segment)


_MEANWHILE: list[tuple[Callable[[Tables, str], None], str, int]] = [
    (_load_again, _SUPERSEDED, 1),
    (_drop_and_load_again, _SUPERSEDED, 1),
    (_drop, _DELETED, 0),
]
_meanwhile = pytest.mark.parametrize(
    ("meanwhile", "why", "left"), _MEANWHILE, ids=["loaded", "dropped and loaded", "dropped"]
)


def _segments(tables: Tables) -> list[Segment]:
    return tables.cluster.context.catalog.segments(tables.table().uid)


def _check_skipped(tables: Tables, rebuild: TableRebuild, done: Done, why: str) -> None:
    assert (done.outcome, done.why, done.rows) == (SegmentOutcome.SKIPPED, why, 0)
    view = tables.finish(rebuild)
    assert (view.status, view.refresh.refreshed) == ("succeeded", ())
    assert {"segment": "a", "reason": why} in plain(view.refresh.skipped)
    assert (view.ledger.written, view.progress.done) == (0, 1)


# -- what happened meanwhile wins ------------------------------------------------------------------------------------


@pytest.mark.case("tables:C1", "tables:C2", "tables:D1", "rules:R16")
@_meanwhile
def test_what_happened_before_the_commit_wins(
    tables: Tables, meanwhile: Callable[[Tables, str], None], why: str, left: int
) -> None:
    """A segment that was loaded again, or dropped, while it was built is skipped and stays as it is, or gone."""
    rebuild = _begun(tables, "a")
    commit = tables.refreshed(rebuild, "a")
    meanwhile(tables, "a")
    before = _segments(tables)
    done = tables.commit(rebuild, commit)
    _check_skipped(tables, rebuild, done, why)
    assert (_segments(tables), len(before)) == (before, left)


def _acting_after_the_look(tables: Tables, act: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Something happens as soon as the controller has read the segment that is to be committed."""
    catalog = tables.cluster.context.catalog
    read, waiting = catalog.segment, [act]

    def raced(table_uid: str, name: str) -> Segment | None:
        found = read(table_uid, name)
        if waiting:
            waiting.pop()()
        return found

    patch.setattr(catalog, "segment", raced)


def _acting_before_the_write(tables: Tables, act: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Something happens when the controller has read everything, and is about to write."""
    catalog = tables.cluster.context.catalog
    write, waiting = catalog.commit, [act]

    def raced(change: Change) -> bool:
        if waiting:
            waiting.pop()()
        return write(change)

    patch.setattr(catalog, "commit", raced)


@pytest.mark.case("tables:D1", "tables:C1", "tables:C2", "rules:R16")
@_meanwhile
@pytest.mark.parametrize("moment", [_acting_after_the_look, _acting_before_the_write], ids=["look", "write"])
def test_what_happens_during_the_commit_wins(
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    moment: Callable[[Tables, Callable[[], None], pytest.MonkeyPatch], None],
    meanwhile: Callable[[Tables, str], None],
    why: str,
    left: int,
) -> None:
    """Between look and commit somebody else is faster: the compare-and-swap fails, and the second look sees it."""
    rebuild = _begun(tables, "a")
    commit, before = tables.refreshed(rebuild, "a"), list[Segment]()

    def act() -> None:
        meanwhile(tables, "a")
        before.extend(_segments(tables))

    with monkeypatch.context() as patch:
        moment(tables, act, patch)
        done = tables.commit(rebuild, commit)
    _check_skipped(tables, rebuild, done, why)
    assert (_segments(tables), len(before)) == (before, left)


@pytest.mark.case("tables:C1")
def test_a_driver_sees_what_is_there_before_it_fetches(tables: Tables) -> None:
    """Asked for planned segments, the controller tells the builds of now and leaves out what is gone."""
    rebuild = _begun(tables, "a", "b", "c")
    planned = {each.segment: each.build for each in rebuild.plan.segments}
    _load_again(tables, "b")
    _drop(tables, "c")
    request = ReadSegments(epoch=rebuild.epoch, segments=("a", "b", "c"))
    found = tables.cluster.client.read_segments(rebuild.id, request)
    assert {each.name: each.build.id == planned[each.name] for each in found} == {"a": True, "b": False}
    older = request.model_copy(update={"epoch": 0})
    assert refused(Refused, lambda: tables.cluster.client.read_segments(rebuild.id, older)).code == "epoch_outdated"


@pytest.mark.case("tables:C1", "rules:R21")
def test_a_failure_on_an_older_build_says_nothing_of_the_newer(tables: Tables) -> None:
    """What failed on a build that was replaced meanwhile is skipped: the new build may be tried."""
    rebuild = _begun(tables, "a")
    tables.load("a", config_hash=None)
    done = tables.commit(rebuild, tables.failed(rebuild, "a"))
    _check_skipped(tables, rebuild, done, _SUPERSEDED)
    assert tables.segment("a").failure is None
    assert [planned.segment for planned in tables.plan().segments] == ["a"]


@pytest.mark.case("tables:D1")
def test_the_loser_loses_only_its_own_file(tables: Tables) -> None:
    """After the grace the file of the build that came too late is gone, and that which the winner replaced."""
    rebuild = _begun(tables, "a", "b")
    late = tables.refreshed(rebuild, "a")
    first = tables.segment("a").build
    _load_again(tables, "a")
    tables.commit(rebuild, late)
    tables.commit(rebuild, tables.refreshed(rebuild, "b"))
    tables.finish(rebuild)
    named = {segment.build.path for segment in _segments(tables)}
    assert late.build is not None
    tables.pass_seconds(_GRACE_SECONDS - 1)
    tables.round()
    assert {late.build.path, first.path} < set(tables.files())
    tables.pass_seconds(1)
    tables.round()
    assert set(tables.files()) == named


# -- what is committed -----------------------------------------------------------------------------------------------


@pytest.mark.case("tables:C6")
def test_a_refresh_changes_nothing_but_the_build(tables: Tables) -> None:
    """Name, slot, creation and push time of the segment stay, and its time range is that of its rows, as before."""
    tables.create()
    times = ColumnStats(type="timestamp", nulls=0, least="2013-01-01", greatest="2013-01-31", fingerprint=7)
    build = tables.build(tables.begin(tables.load_plan()), "unused")
    contents = build.contents.model_copy(update={"columns": {**build.contents.columns, "left_at": times}})
    tables.load("first")
    tables.load("a", contents=contents)
    tables.update(sort="city")
    before, view = tables.segment("a"), tables.cluster.client.segments("trips")[0]
    tables.pass_seconds(100)
    rebuild = tables.begin(tables.plan())
    tables.commit(rebuild, tables.refreshed(rebuild, "a", contents=contents))
    after = tables.segment("a")
    assert after.build.id != before.build.id
    assert after == before.model_copy(update={"build": after.build, "revision": after.revision})
    seen = tables.cluster.client.segments("trips")[0]
    kept = ("name", "created_at", "pushed_at", "columns", "rows")
    assert {key: getattr(seen, key) for key in kept} == {key: getattr(view, key) for key in kept}
    assert [copy.node for copy in seen.replicas] == [copy.node for copy in view.replicas]
    assert (seen.columns["left_at"].least, seen.columns["left_at"].greatest) == ("2013-01-01", "2013-01-31")
    assert (seen.stale, seen.build) == (False, after.build.id)


@pytest.mark.case("tables:C7")
def test_a_change_during_the_build_makes_stale_again_at_once(tables: Tables) -> None:
    """The build has the hash that was read at the start, and the next plan takes it for what was changed since."""
    rebuild = _begun(tables, "a")
    commit = tables.refreshed(rebuild, "a")
    changed = tables.update(sort=["city", "id"])
    assert tables.commit(rebuild, commit).outcome is SegmentOutcome.REFRESHED
    assert tables.segment("a").build.config_hash == rebuild.plan.target.config_hash != changed.config_hash
    assert tables.stale() == ["a"]
    (planned,) = tables.plan().segments
    assert (planned.build, planned.config_hash) == (tables.segment("a").build.id, rebuild.plan.target.config_hash)
    assert len(planned.reasons) == 1
    assert "sort" in planned.reasons[0]


@pytest.mark.case("tables:C7")
def test_a_change_before_the_beginning_asks_for_a_new_plan(tables: Tables) -> None:
    """A plan for a configuration that is not wanted any more is refused before anything is built."""
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    plan = tables.plan()
    tables.update(sort=["city", "id"])
    error = refused(Refused, lambda: tables.begin(plan))
    assert (error.code, error.found) == ("plan_outdated", f"configuration {tables.table().config_hash}")
    assert tables.cluster.client.rebuilds(table="trips", running=True) == []


def _unlike(tables: Tables, rebuild: TableRebuild, **changes: Any) -> str:
    commit = tables.refreshed(rebuild, "a", **changes)
    return refused(InvalidRequest, lambda: tables.commit(rebuild, commit)).code


@pytest.mark.case("tables:D2", "tables:C7", "rules:R22")
def test_a_build_lies_at_a_fresh_path_of_its_own(tables: Tables) -> None:
    """Other bytes at the live path, a file of another driver, a build's id again or another hash are refused."""
    rebuild = _begun(tables, "a")
    before = tables.segment("a")
    mine = tables.build(rebuild, "a").path
    assert _unlike(tables, rebuild, path=before.build.path) == "bad_build"
    assert _unlike(tables, rebuild, path=mine.replace("-e1/", "-e2/")) == "bad_build"
    assert _unlike(tables, rebuild, path=mine.replace(rebuild.id, "another")) == "bad_build"
    assert _unlike(tables, rebuild, id=before.build.id) == "bad_build"
    assert _unlike(tables, rebuild, id=before.build.id, path=before.build.path) == "bad_build"
    assert _unlike(tables, rebuild, config_hash=before.build.config_hash) == "bad_build"
    assert _unlike(tables, rebuild, config_hash=None) == "bad_build"
    without = tables.refreshed(rebuild, "a").model_copy(update={"build": None})
    assert refused(InvalidRequest, lambda: tables.commit(rebuild, without)).code == "bad_build"
    assert (tables.segment("a"), tables.cluster.client.rebuild(rebuild.id).progress.done) == (before, 0)


@pytest.mark.case("tables:D2")
def test_the_file_that_was_replaced_stays_for_its_retention(tables: Tables) -> None:
    """The old build's file is there after the commit, until the table's backup retention is over, and then goes."""
    rebuild = _begun(tables, "a")
    tables.update(backup_retention_seconds=5_000)
    old = tables.segment("a").build.path
    tables.commit(rebuild, tables.refreshed(rebuild, "a"))
    tables.finish(rebuild)
    tables.pass_seconds(4_999)
    tables.round()
    assert set(tables.files()) == {old, tables.segment("a").build.path}
    tables.pass_seconds(1)
    tables.round()
    assert tables.files() == [tables.segment("a").build.path]


@pytest.mark.case("tables:D2", "rules:R15")
def test_a_stamp_changes_the_record_alone(tables: Tables) -> None:
    """Bytes that satisfy the wanted configuration get its hash; their file is never to be reclaimed."""
    rebuild = _begun(tables, "a")
    before = tables.segment("a").build
    stamped = before.model_copy(update={"config_hash": rebuild.plan.target.config_hash})
    commit = tables.refreshed(rebuild, "a").model_copy(update={"build": stamped})
    done = commit.done.model_copy(update={"outcome": SegmentOutcome.STAMPED})
    tables.commit(rebuild, commit.model_copy(update={"done": done}))
    assert tables.finish(rebuild).refresh.stamped == ("a",)
    assert (tables.segment("a").build, tables.stale()) == (stamped, [])
    assert "build" not in {note.kind for note in tables.cluster.client.reclaims()}
    tables.pass_seconds(10 * _GRACE_SECONDS)
    tables.round()
    assert (tables.files(), tables.cluster.client.reclaims()) == ([before.path], [])


@pytest.mark.case("rules:R19", "tables:C8")
def test_rows_read_are_rows_written_and_filtered(tables: Tables) -> None:
    """A build that lost or won rows is refused and changes nothing; filtered ones are counted apart."""
    rebuild = _begun(tables, "a", "b")
    before = tables.segment("a")
    whole = tables.refreshed(rebuild, "a")
    assert whole.build is not None
    for rows, filtered in ((9, 0), (11, 0), (9, 2), (10, 1)):
        contents = whole.build.contents.model_copy(update={"rows": rows})
        bad = tables.refreshed(rebuild, "a", contents=contents)
        bad = bad.model_copy(update={"done": bad.done.model_copy(update={"filtered": filtered})})
        assert refused(Failed, lambda bad=bad: tables.commit(rebuild, bad)).code == "ledger_imbalance"  # type: ignore[misc]  # mypy knows no type of a lambda's default
    assert tables.segment("a") == before
    fewer = tables.refreshed(rebuild, "a", contents=whole.build.contents.model_copy(update={"rows": 7}))
    tables.commit(rebuild, fewer.model_copy(update={"done": fewer.done.model_copy(update={"filtered": 3})}))
    view = tables.view(rebuild)
    assert plain(view.ledger) == {"read": 10, "filtered": 3, "skipped": 0, "written": 7}
    assert (view.progress.done, view.progress.records) == (1, 7)


@pytest.mark.case("rules:R19")
def test_the_segments_done_are_those_of_the_plan(tables: Tables) -> None:
    """A rebuild does not end before each of its segments is done, and takes no other one."""
    rebuild = _begun(tables, "a", "b")
    tables.load("c", config_hash=None)
    commit = tables.commit(rebuild, tables.refreshed(rebuild, "a"))
    assert commit.outcome is SegmentOutcome.REFRESHED
    error = refused(Refused, lambda: tables.finish(rebuild))
    assert (error.code, error.found) == ("segments_left", ["b"])
    other = tables.refreshed(rebuild, "b")
    done = other.done.model_copy(update={"segment": "c"})
    other = other.model_copy(update={"done": done, "read": tables.segment("c").build.id})
    assert refused(InvalidRequest, lambda: tables.commit(rebuild, other)).code == "unplanned_segment"
    assert (tables.status(rebuild), tables.segment("c").build.config_hash) == ("running", None)
    tables.commit(rebuild, tables.refreshed(rebuild, "b"))
    assert tables.finish(rebuild).status == "succeeded"


# -- answers that are lost, names that are gone ----------------------------------------------------------------------


@pytest.mark.case("tables:D3", "rules:R22")
def test_a_commit_whose_answer_is_lost_is_looked_up(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told that nobody knows, the driver asks again, gets what became of it, and its file is there for good."""
    rebuild = _begun(tables, "a", "b")
    commit = tables.refreshed(rebuild, "a")
    catalog = tables.cluster.context.catalog
    write = catalog.commit

    def lost(change: Change) -> bool:
        write(change)
        raise OutcomeUnknown("catalog_outcome_unknown", "the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", lost)
        refused(OutcomeUnknown, lambda: tables.commit(rebuild, commit))
    again = [tables.commit(rebuild, commit) for _ in range(2)]
    assert [done.outcome for done in again] == [SegmentOutcome.REFRESHED] * 2
    tables.commit(rebuild, tables.refreshed(rebuild, "b"))
    view = tables.finish(rebuild)
    assert (view.ledger.written, view.progress.done, view.refresh.skipped) == (20, 2, ())
    assert tables.commit(rebuild, commit) == again[0]
    assert tables.finish(rebuild).status == "succeeded"
    tables.pass_seconds(10 * _GRACE_SECONDS)
    tables.round()
    assert tables.segment("a").build == commit.build
    assert sorted(tables.files()) == sorted(segment.build.path for segment in _segments(tables))
    assert len([row for row in tables.cluster.client.history("trips") if row.what == "refresh segment"]) == 2


@pytest.mark.case("tables:D3")
def test_what_became_of_a_segment_stays_so(tables: Tables) -> None:
    """Another outcome for a segment that is done is answered with the first, and changes nothing."""
    rebuild = _begun(tables, "a", "b")
    tables.commit(rebuild, tables.refreshed(rebuild, "a"))
    tables.commit(rebuild, tables.failed(rebuild, "b"))
    before = _segments(tables)
    assert tables.commit(rebuild, tables.failed(rebuild, "a")).outcome is SegmentOutcome.REFRESHED
    assert tables.commit(rebuild, tables.refreshed(rebuild, "b")).outcome is SegmentOutcome.FAILED
    assert _segments(tables) == before
    view = tables.finish(rebuild)
    assert (view.status, view.progress.done) == ("partly", 2)


def test_metrics_tell_what_waits_for_whom(tables: Tables) -> None:
    """Segments in all, those that are stale, and of these the ones that were set aside."""
    rebuild = _begun(tables, "a", "b", "c")
    tables.commit(rebuild, tables.refreshed(rebuild, "a"))
    tables.commit(rebuild, tables.failed(rebuild, "b"))
    metrics = tables.cluster.http.get("/metrics").text
    for name, value in (("segments", 3), ("stale_segments", 2), ("failed_segments", 1)):
        assert f'anew_table_{name}{{table="trips"}} {value}.0' in metrics


@pytest.mark.case("tables:D4", "rules:R16")
def test_a_table_that_is_gone_is_not_refreshed(tables: Tables) -> None:
    """Neither planned, begun nor committed, not even when another table has its name; nothing comes to be."""
    old = _begun(tables, "a")
    commit, load = tables.refreshed(old, "a"), tables.begin(tables.load_plan())
    loaded, client = tables.load_of(load, "b"), tables.cluster.client
    for rebuild in (old, load):
        client.kill_rebuild(rebuild.id)
    client.delete_table("trips")

    def check_refused(kind: type[Refused | NotFound], code: str) -> None:
        for plan in (old.plan, load.plan):
            assert refused(kind, lambda plan=plan: tables.begin(plan)).code == code  # type: ignore[misc]  # mypy knows no type of a lambda's default
        assert refused(Refused, lambda: tables.commit(old, commit)).code == "rebuild_ended"
        assert refused(Refused, lambda: client.commit_load(load.id, loaded)).code == "rebuild_ended"

    check_refused(NotFound, "unknown_table")
    assert refused(NotFound, tables.plan).code == "unknown_table"
    assert (client.tables(), client.rebuilds(running=True)) == ([], [])
    tables.create(sort="city")
    check_refused(Refused, "plan_outdated")
    assert (client.segments("trips"), client.rebuilds(table="trips")) == ([], [])


@pytest.mark.case("tables:D4")
def test_a_table_that_goes_as_a_refresh_begins_is_not_refreshed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted between look and commit: the beginning is refused and leaves no rebuild behind."""
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    plan, catalog = tables.plan(), tables.cluster.context.catalog
    write, waiting = catalog.commit, ["trips"]

    def raced(change: Change) -> bool:
        if waiting:
            tables.cluster.client.delete_table(waiting.pop())
        return write(change)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        assert refused(NotFound, lambda: tables.begin(plan)).code == "unknown_table"
    assert (tables.cluster.client.tables(), tables.cluster.client.rebuilds(running=True)) == ([], [])


# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.case("rules:R21", "tables:C3")
def test_a_failure_is_decided_once_for_a_configuration(tables: Tables) -> None:
    """It is kept in the catalog, and left by every refresh until that changes or somebody asks; others go on."""
    rebuild = _begun(tables, "a", "b")
    tables.commit(rebuild, tables.failed(rebuild, "a", "column id, row 3: 'abc'"))
    tables.commit(rebuild, tables.refreshed(rebuild, "b"))
    view = tables.finish(rebuild)
    said = "1 of 2 segments failed; the first, a: column id, row 3: 'abc'"
    assert (view.status, view.error) == ("partly", said)
    (note,) = tables.cluster.client.status().notes
    assert (note.what, note.hint) == (
        "trips has 1 stale segments; 1 of them failed with this configuration",
        "anew table segments trips --stale says why; then: anew table refresh trips --retry-failed",
    )
    shown = tables.cluster.client.segments("trips")[0].failure
    assert shown is not None
    assert (shown.error, shown.config_hash) == ("column id, row 3: 'abc'", tables.table().config_hash)
    plan = tables.plan()
    assert (plan.segments, plan.left, "--retry-failed" in plan.skipped["a"]) == ((), 1, True)
    assert [planned.segment for planned in tables.plan(retry_failed=True).segments] == ["a"]
    tables.update(sort="id")
    assert sorted(planned.segment for planned in tables.plan().segments) == ["a", "b"]
    tables.update(sort="city")
    assert tables.plan().segments == ()
    assert tables.refresh(retry_failed=True).refresh.refreshed == ("a",)
    assert (tables.segment("a").failure, tables.stale()) == (None, [])


def test_people_are_shown_which_segments_failed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rebuild names each of them, with its reason."""
    rebuild = _begun(tables, "a", "b")
    for segment in ("a", "b"):
        tables.commit(rebuild, tables.failed(rebuild, segment, f"column id of {segment}, row 3: 'abc'"))
    tables.finish(rebuild)
    connected = SimpleNamespace(controller=tables.cluster.client)
    monkeypatch.setattr(rebuilds, "cluster", lambda: nullcontext(connected))
    rebuilds.show(rebuild.id)
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("failed: ")] == [
        "failed: a: column id of a, row 3: 'abc'",
        "failed: b: column id of b, row 3: 'abc'",
    ]


@pytest.mark.case("rules:R21")
def test_what_could_not_be_reached_is_no_verdict(tables: Tables) -> None:
    """A failure that may go well the next time is told, and the next refresh takes the segment."""
    rebuild = _begun(tables, "a")
    failed = tables.failed(rebuild, "a", "the deep store does not answer")
    tables.commit(rebuild, failed.model_copy(update={"try_again": True}))
    view = tables.finish(rebuild)
    assert (view.status, view.refresh.failed[0].error) == ("failed", "the deep store does not answer")
    assert tables.segment("a").failure is None
    assert [planned.segment for planned in tables.plan().segments] == ["a"]
