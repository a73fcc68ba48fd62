"""Refreshes whose drivers die, are killed or replaced, and what becomes of the files that they leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anew.api.models import EndRebuild
from anew.api.rebuilds import TableRebuildView, view_as
from anew.api.tables.requests import DropSegments
from anew.catalog.change import Change, PutReclaim, Reclaim
from anew.core.errors import Failed, InvalidRequest, Refused
from anew.core.moment import utc_text
from anew.core.rebuild import Progress, Stage
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.segment import Segment
from anew.rebuild.driving import run_plan
from anew.rebuild.observer import LogObserver
from anew.rebuild.tables.driving import TableRun, working
from anew.testing.builders import FABRIC
from tests.component.controller.harness import refused
from tests.component.controller.tables.tables_harness import Tables

_LEASE_SECONDS = 20
_TAKEOVER_SECONDS = 10
_GRACE_SECONDS = 600


def _begun(tables: Tables, *segments: str) -> TableRebuild:
    tables.create(backup_retention_seconds=0)
    tables.load(*segments)
    tables.update(sort="city")
    return tables.begin(tables.plan())


def _segments(tables: Tables) -> list[Segment]:
    return tables.cluster.context.catalog.segments(tables.table().uid)


def _named(tables: Tables) -> set[str]:
    return {segment.build.path for segment in _segments(tables)}


def _listen(tables: Tables) -> None:
    """Rounds until the controller has listened for as long as a lease."""
    tables.round()
    tables.pass_seconds(_LEASE_SECONDS)
    tables.round()


# -- a driver that is gone -------------------------------------------------------------------------------------------


@pytest.mark.case("tables:C9", "tables:C10", "rules:R15")
def test_a_driver_that_dies_before_it_commits_leaves_nothing(tables: Tables) -> None:
    """Its lease ends and marks the rebuild; the segments are as they were, its files go after the grace."""
    rebuild = _begun(tables, "a", "b")
    before, kept = _segments(tables), set(tables.files())
    late = tables.refreshed(rebuild, "a")
    _listen(tables)
    assert tables.status(rebuild) == "running"
    tables.pass_seconds(0.001)
    tables.round()
    view = tables.cluster.client.rebuild(rebuild.id)
    ended = utc_text(view.driver.lease_until_ms)
    assert (view.status, view.error) == ("failed", f"the driver gave no sign of life; its lease ended at {ended}")
    assert refused(Refused, lambda: tables.commit(rebuild, late)).code == "rebuild_ended"
    assert tables.beat(rebuild)
    tables.pass_seconds(_GRACE_SECONDS - 1)
    tables.round()
    assert len(tables.files()) == 3
    tables.pass_seconds(1)
    tables.round()
    assert (_segments(tables), set(tables.files())) == (before, kept)


@pytest.mark.case("tables:C10")
def test_what_was_committed_stays_and_the_rest_is_taken_again(tables: Tables) -> None:
    """A driver that dies half-way: its commits hold, the next refresh takes what is left and finishes."""
    rebuild = _begun(tables, "a", "b", "c")
    tables.commit(rebuild, tables.refreshed(rebuild, "b"))
    tables.build(rebuild, "c")
    _listen(tables)
    tables.pass_seconds(1)
    tables.round()
    assert (tables.status(rebuild), tables.stale()) == ("failed", ["a", "c"])
    assert sorted(planned.segment for planned in tables.plan().segments) == ["a", "c"]
    assert (tables.refresh().status, tables.stale()) == ("succeeded", [])
    assert len(tables.files()) == 7
    tables.pass_seconds(_GRACE_SECONDS)
    tables.round()
    assert set(tables.files()) == _named(tables)


@pytest.mark.case("tables:C10")
def test_a_driver_that_gives_signs_of_life_is_left_alone(tables: Tables) -> None:
    """However long it takes, a beat within each lease keeps the rebuild; a stage never goes back."""
    rebuild = _begun(tables, "a")
    _listen(tables)
    for _ in range(5):
        assert not tables.beat(rebuild)
        tables.pass_seconds(_LEASE_SECONDS)
        tables.round()
    assert tables.status(rebuild) == "running"
    assert not tables.beat(rebuild, Stage.SEAL)
    assert refused(Refused, lambda: tables.beat(rebuild, Stage.BUILD)).code == "stage_backwards"
    assert refused(InvalidRequest, lambda: tables.beat(rebuild, Stage.SWAP)).code == "bad_stage"
    tables.commit(rebuild, tables.refreshed(rebuild, "a"))
    assert tables.finish(rebuild).status == "succeeded"


@pytest.mark.case("tables:C10", "rules:R22")
def test_a_sign_of_life_in_the_last_moment_counts(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round that found the lease ended judges again on what it commits: the driver that was late is kept."""
    rebuild = _begun(tables, "a")
    _listen(tables)
    tables.pass_seconds(1)
    catalog = tables.cluster.context.catalog
    write, waiting = catalog.commit, [rebuild]

    def raced(change: Change) -> bool:
        if waiting and change.operation.what == "rebuild failed":
            tables.beat(waiting.pop())
        return write(change)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        tables.round()
    assert (waiting, tables.status(rebuild)) == ([], "running")


@pytest.mark.case("tables:C10")
def test_a_controller_that_just_came_judges_nobody(tables: Tables) -> None:
    """A driver that could not be heard while there was no controller has a lease's time to say that it lives."""
    rebuild = _begun(tables, "a")
    tables.round()
    tables.pass_seconds(10 * _LEASE_SECONDS)
    tables.start_over()
    tables.round()
    assert tables.status(rebuild) == "running"
    tables.pass_seconds(_LEASE_SECONDS)
    tables.round()
    assert tables.status(rebuild) == "failed"


# -- a request twice -------------------------------------------------------------------------------------------------


class _Meanwhile(LogObserver):
    """What another driver does while somebody follows its rebuild."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def progress(self, stage: Stage, progress: Progress) -> None:
        """Act once."""
        act, self._act = self._act, None
        if act is not None:
            act()


def _run(tables: Tables, observer: LogObserver) -> TableRun:
    return TableRun(
        controller=tables.cluster.client,
        session=lambda: pytest.fail("no Spark is needed"),
        observer=observer,
        request_id="r-1",
        driver="another",
        clock=tables.cluster.clock,
        patience_seconds=15.0,
        executor_wait_seconds=1.0,
    )


@pytest.mark.case("rules:R22")
@pytest.mark.parametrize("ends", ["succeeded", "failed"])
def test_a_repeated_request_follows_the_driver_that_is_at_work(tables: Tables, ends: str) -> None:
    """It works on nothing and says how the other one ended: with every segment done, or given up."""
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    plan = tables.plan()
    begun = tables.begin(plan, "r-1")

    def other() -> None:
        if ends == "failed":
            tables.cluster.client.fail_rebuild(begun.id, EndRebuild(epoch=begun.epoch, error="no disk"))
            return
        tables.commit(begun, tables.refreshed(begun, "a"))
        tables.finish(begun)

    run = _run(tables, _Meanwhile(other))
    if ends == "failed":
        with pytest.raises(Failed) as caught:
            run_plan(plan, run, working(run, lambda *_: pytest.fail("another one is at work")))
        assert (caught.value.code, caught.value.found) == ("rebuild_failed", "no disk")
        return
    ended = run_plan(plan, run, working(run, lambda *_: pytest.fail("another one is at work")))
    view = view_as(ended, TableRebuildView)
    assert (view.id, view.status, view.refresh.refreshed) == (begun.id, "succeeded", ("a",))


# -- another driver --------------------------------------------------------------------------------------------------


@pytest.mark.case("tables:C10", "rules:R22")
def test_another_driver_goes_on_with_what_is_not_done(tables: Tables) -> None:
    """It has a higher epoch and paths of its own; of the first one everything is turned away, and reclaimed."""
    first = _begun(tables, "a", "b")
    tables.commit(first, tables.refreshed(first, "a"))
    committed = tables.segment("a").build.path
    late = tables.refreshed(first, "b")
    assert refused(Refused, lambda: tables.resume(first)).code == "driver_alive"
    tables.pass_seconds(_TAKEOVER_SECONDS - 0.001)
    assert refused(Refused, lambda: tables.resume(first)).code == "driver_alive"
    tables.pass_seconds(0.001)
    second = tables.resume(first)
    assert (second.id, second.epoch, second.driver, second.progress.done) == (first.id, 2, "second", 1)
    for act in (
        lambda: tables.commit(first, late),
        lambda: tables.beat(first),
        lambda: tables.finish(first),
        lambda: tables.give_up(first),
    ):
        assert refused(Refused, act).code in {"epoch_outdated", "segments_left"}
    tables.commit(second, tables.refreshed(second, "b"))
    assert refused(Refused, lambda: tables.finish(first)).code == "epoch_outdated"
    assert tables.status(second) == "running"
    assert tables.finish(second).status == "succeeded"
    assert ("-e1/" in tables.segment("a").build.path, "-e2/" in tables.segment("b").build.path) == (True, True)
    tables.pass_seconds(_GRACE_SECONDS)
    tables.round()
    assert committed in tables.files()
    assert set(tables.files()) == _named(tables)


@pytest.mark.case("rules:R22")
def test_a_driver_that_was_replaced_cannot_give_up_for_the_other(tables: Tables) -> None:
    """Its failure is refused as that of an older epoch, and the rebuild runs on."""
    first = _begun(tables, "a")
    tables.pass_seconds(_TAKEOVER_SECONDS)
    second = tables.resume(first)
    assert refused(Refused, lambda: tables.give_up(first)).code == "epoch_outdated"
    assert tables.status(second) == "running"
    view = tables.give_up(second, "no space left")
    assert (view.status, view.error) == ("failed", "no space left")
    assert refused(Refused, lambda: tables.resume(second)).code == "rebuild_ended"


@pytest.mark.case("tables:C9", "rules:R22")
def test_a_killed_refresh_commits_nothing_more(tables: Tables) -> None:
    """Its driver is told at the next sign of life; what it committed before stays; killing twice is refused."""
    rebuild = _begun(tables, "a", "b")
    tables.commit(rebuild, tables.refreshed(rebuild, "a"))
    late = tables.refreshed(rebuild, "b")
    view = tables.cluster.client.kill_rebuild(rebuild.id)
    assert (view.status, view.error) == ("killed", "killed by tester")
    assert refused(Refused, lambda: tables.commit(rebuild, late)).code == "rebuild_ended"
    assert tables.beat(rebuild)
    assert refused(Refused, lambda: tables.cluster.client.kill_rebuild(rebuild.id)).code == "rebuild_ended"
    assert tables.give_up(rebuild).status == "killed"
    assert (tables.finish(rebuild).status, tables.stale()) == ("killed", ["b"])


# -- reclaim ---------------------------------------------------------------------------------------------------------


@pytest.mark.case("rules:R15", "tables:C10")
def test_only_files_of_ended_attempts_are_orphans(tables: Tables) -> None:
    """What a running rebuild wrote stays however old it is, and so does what lies in a directory of nobody known."""
    ended = _begun(tables, "a", "b")
    orphan = tables.build(ended, "a").path
    uid = tables.table().uid
    strangers = {f"tables/{uid}/somebody-e1/a-x.parquet", "tables/unknown/r-e1/a-x.parquet"}
    for path in strangers:
        tables.cluster.deep.put(path, b"whose is this?")
    tables.cluster.client.kill_rebuild(ended.id)
    running = tables.begin(tables.plan())
    mine = tables.refreshed(running, "a")
    for _ in range(2 * _GRACE_SECONDS // _LEASE_SECONDS):
        tables.pass_seconds(_LEASE_SECONDS)
        tables.beat(running)
        tables.round()
    assert mine.build is not None
    files = set(tables.files())
    assert (orphan in files, {mine.build.path, *strangers} < files) == (False, True)
    tables.commit(running, mine)
    assert tables.segment("a").build.path == mine.build.path


@pytest.mark.case("rules:R15")
def test_a_path_that_a_segment_names_is_never_deleted(tables: Tables) -> None:
    """Whatever a note of old says, of a build, an attempt or a table: what is named, or lives, stays."""
    tables.create()
    rebuild = tables.load("a")
    path, uid = tables.segment("a").build.path, tables.table().uid
    directory = path.rpartition("/")[0]
    tables.cluster.deep.put("tables/unknown/r-e1/a.parquet", b"x")
    targets = {
        "build": [f"{uid}\n{path}"],
        "attempt": [f"{uid}\n{directory}"],
        "table": [f"{uid}\ntables/{uid}", "unknown\ntables/unknown"],
    }
    notes = [(kind, target) for kind, found in targets.items() for target in found]
    puts = tuple(
        PutReclaim(Reclaim(f"{n}", kind, FABRIC, target, 0, "a note of old")) for n, (kind, target) in enumerate(notes)
    )
    context, before = tables.cluster.context, tables.files()
    context.catalog.commit(Change(context.operation("notes", "trips", "test"), puts))
    tables.round()
    assert (tables.files(), len(before)) == (before, 2)
    assert [row.id for row in tables.cluster.client.reclaims()] == [f"{directory}@{FABRIC}"]
    assert tables.status(rebuild) == "succeeded"


@pytest.mark.case("rules:R15")
def test_a_dropped_segment_s_file_goes_after_the_grace(tables: Tables) -> None:
    """Those who read it when it was dropped have the grace to finish; other segments of its load stay for good."""
    tables.create()
    tables.load("a", "b")
    path = tables.segment("a").build.path
    tables.pass_seconds(_GRACE_SECONDS - 1)
    tables.cluster.client.drop_segments("trips", DropSegments(segments=("a",)))
    tables.pass_seconds(_GRACE_SECONDS - 1)
    tables.round()
    assert path in tables.files()
    tables.pass_seconds(1)
    tables.round()
    assert set(tables.files()) == _named(tables) == {tables.segment("b").build.path}


@pytest.mark.case("rules:R15", "rules:R16")
def test_a_deleted_table_s_files_go_after_the_grace(tables: Tables) -> None:
    """All of them, whatever was retained longer; those of another table of the same name stay."""
    tables.create()
    tables.load("a")
    tables.load("a")
    old = set(tables.files())
    tables.cluster.client.delete_table("trips")
    tables.create()
    tables.load("a")
    tables.pass_seconds(_GRACE_SECONDS - 1)
    tables.round()
    assert old < set(tables.files())
    tables.pass_seconds(1)
    tables.round()
    assert set(tables.files()) == _named(tables)
    assert tables.table().uid not in "".join(old)
