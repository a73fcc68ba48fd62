"""Loads: all their segments at once or none, new builds of those that are there, and nothing for the same content."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from anew.api.models import BeginRebuild
from anew.api.rebuilds import TableStart
from anew.api.tables.requests import CommitLoad
from anew.catalog.change import Change
from anew.core.errors import Failed, InvalidRequest, OutcomeUnknown, Refused
from anew.core.tables.plan import TablePlan
from anew.core.tables.segment import Build, Segment
from anew.rebuild.asking import begun_before
from tests.component.controller.harness import plain, refused
from tests.component.controller.tables.tables_harness import Tables


def _segments(tables: Tables) -> list[Segment]:
    return tables.cluster.context.catalog.segments(tables.table().uid)


def _same_rows(build: Build) -> dict[str, Any]:
    """What makes another build hold the same rows."""
    return {"contents": build.contents}


@pytest.mark.case("tables:D5")
@pytest.mark.parametrize("imported", [False, True], ids=["loaded", "imported"])
def test_other_content_is_a_new_build_of_the_same_segment(tables: Tables, *, imported: bool) -> None:
    """Name, slot and creation time stay, the push time is new, and the old file goes after the grace, not before."""
    tables.create(backup_retention_seconds=0)
    tables.load("other")
    tables.load("a")
    before, files = tables.segment("a"), tables.files()
    tables.pass_seconds(100)
    how: dict[str, Any] = {"config_hash": None, "imported_under": tables.table().config_hash} if imported else {}
    view = tables.view(tables.load("a", **how))
    after = tables.segment("a")
    assert view.refresh.refreshed == ("a",)
    assert (after.name, after.slot, after.created_at_ms) == ("a", before.slot, before.created_at_ms)
    assert after.pushed_at_ms == before.pushed_at_ms + 100_000
    assert (after.build.id != before.build.id, after.build.path in files) == (True, False)
    assert (len(_segments(tables)), tables.stale()) == (2, ["a"] if imported else [])
    tables.pass_seconds(599)
    tables.round()
    assert set(files) < set(tables.files())
    tables.pass_seconds(1)
    tables.round()
    assert sorted(tables.files()) == sorted(segment.build.path for segment in _segments(tables))


@pytest.mark.case("tables:D5", "rules:R21")
def test_other_content_is_tried_again(tables: Tables) -> None:
    """What failed on the rows that were there says nothing of those that were loaded since."""
    tables.create()
    tables.load("a", config_hash=None)
    rebuild = tables.begin(tables.plan())
    tables.commit(rebuild, tables.failed(rebuild, "a"))
    tables.finish(rebuild)
    assert tables.plan().segments == ()
    tables.load("a", config_hash=None)
    assert (tables.segment("a").failure, len(tables.plan().segments)) == (None, 1)


@pytest.mark.case("tables:D6")
@pytest.mark.parametrize("alike", ["rows", "bytes"])
def test_the_same_content_is_no_new_build(tables: Tables, alike: str) -> None:
    """The build stays, so that no node loads anything; the push time is noted, and the file that was made goes."""
    tables.create()
    tables.load("a")
    before = tables.segment("a")
    desired = tables.desired("node-1").segments
    tables.pass_seconds(100)
    changes = _same_rows(before.build) if alike == "rows" else {"sha256": before.build.sha256}
    rebuild = tables.load("a", **changes)
    after = tables.segment("a")
    assert after == before.model_copy(update={"pushed_at_ms": before.pushed_at_ms + 100_000, "revision": 2})
    assert tables.view(rebuild).refresh.stamped == ("a",)
    assert tables.desired("node-1").segments == desired
    assert len(tables.files()) == 2
    tables.pass_seconds(600)
    tables.round()
    assert tables.files() == [before.build.path]


@pytest.mark.case("tables:D5", "tables:D6")
def test_a_load_that_moves_values_among_rows_is_a_new_build(tables: Tables) -> None:
    """Every column holds what it held, so that only the rows tell: what was loaded is served."""
    tables.create()
    tables.load("a")
    before = tables.segment("a").build
    moved = before.contents.model_copy(update={"row_fingerprint": 7})
    tables.load("a", contents=moved)
    assert (tables.segment("a").build.id != before.id, tables.segment("a").build.contents) == (True, moved)


@pytest.mark.case("tables:D5", "tables:D6")
def test_the_same_rows_in_another_configuration_are_a_new_build(tables: Tables) -> None:
    """Loaded again after the table changed, the segment is not stale any more."""
    tables.create()
    tables.load("a")
    before = tables.segment("a")
    tables.update(sort="city")
    assert tables.stale() == ["a"]
    tables.load("a", **_same_rows(before.build))
    assert (tables.stale(), tables.segment("a").build.id != before.build.id) == ([], True)


@pytest.mark.case("tables:F3", "rules:R22")
def test_a_load_whose_answer_is_lost_is_looked_up(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again, even after the driver gave up, it is the load that succeeded: nothing is there twice, or gone."""
    tables.create()
    rebuild = tables.begin(tables.load_plan())
    commit, catalog = tables.load_of(rebuild, "a", "b"), tables.cluster.context.catalog
    write = catalog.commit

    def lost(change: Change) -> bool:
        write(change)
        raise OutcomeUnknown("catalog_outcome_unknown", "the answer was lost")

    load = partial(tables.cluster.client.commit_load, rebuild.id, commit)
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", lost)
        refused(OutcomeUnknown, load)
    before = _segments(tables)
    assert tables.give_up(rebuild).status == "succeeded"
    view = load()
    assert (view.status, view.ledger.written, view.refresh.refreshed) == ("succeeded", 20, ("a", "b"))
    tables.pass_seconds(6_000)
    tables.round()
    assert (_segments(tables), len(tables.files()), tables.table().made) == (before, 2, 2)


@pytest.mark.case("tables:F3", "rules:R22")
def test_the_same_request_is_the_same_load(tables: Tables) -> None:
    """Begun again under its id it is the one that runs, or has ended; with another plan it is refused."""
    tables.create()
    plan = tables.load_plan()
    rebuild = tables.begin(plan, "r-1")
    assert tables.begin(plan, "r-1").id == rebuild.id
    tables.cluster.client.commit_load(rebuild.id, tables.load_of(rebuild, "a"))
    again = tables.begin(plan, "r-1")
    assert (again.id, again.ended) == (rebuild.id, True)
    tables.pass_seconds(1)
    other = BeginRebuild(plan=tables.load_plan(), request_id="r-1")
    error = refused(InvalidRequest, lambda: tables.cluster.client.begin_rebuild(other, TableStart))
    assert error.code == "request_id_reused"
    assert len(tables.cluster.client.rebuilds(table="trips")) == 1


@pytest.mark.case("rules:R22")
def test_the_same_request_planned_again_is_the_same_load(tables: Tables) -> None:
    """A request is what was asked for: a later plan of it is answered with what the first began, another is refused."""
    tables.create()
    client = tables.cluster.client

    def asked(what: str) -> TablePlan:
        tables.pass_seconds(1)
        return tables.load_plan().model_copy(update={"asked": what})

    rebuild = tables.begin(asked("load a"), "r-1")
    assert tables.begin(asked("load a"), "r-1").id == rebuild.id
    client.commit_load(rebuild.id, tables.load_of(rebuild, "a"))
    again = tables.begin(asked("load a"), "r-1")
    assert (again.id, again.ended) == (rebuild.id, True)
    for other in (asked("load b"), tables.load_plan()):
        error = refused(InvalidRequest, lambda plan=other: tables.begin(plan, "r-1"))  # type: ignore[misc]  # bound now
        assert error.code == "request_id_reused"
    found = begun_before(client, "r-1", "load a")
    assert found is not None
    assert (found.id, found.status) == (rebuild.id, "succeeded")
    assert begun_before(client, "r-2", "load a") is None
    assert begun_before(client, None, "load a") is None
    error = refused(InvalidRequest, lambda: begun_before(client, "r-1", "load b"))
    assert (error.code, "r-1" in str(error.found)) == ("request_id_reused", True)


@pytest.mark.case("rules:R19", "tables:F2")
def test_a_load_accounts_for_every_row(tables: Tables) -> None:
    """Rows read are those written and put aside, or taken by the filter if there is one; otherwise nothing is there."""
    tables.create()
    rebuild = tables.begin(tables.load_plan())
    commit, client = tables.load_of(rebuild, "a", "b"), tables.cluster.client
    for read, skipped in ((19, 0), (21, 0), (20, 1), (22, 1)):
        bad = commit.model_copy(update={"read": read, "skipped": skipped})
        assert refused(Failed, partial(client.commit_load, rebuild.id, bad)).code == "ledger_imbalance"
    assert (client.segments("trips"), tables.status(rebuild)) == ([], "running")
    view = client.commit_load(rebuild.id, commit.model_copy(update={"read": 23, "skipped": 3}))
    assert plain(view.ledger) == {"read": 23, "filtered": 0, "skipped": 3, "written": 20}
    tables.update(row_filter="fare > 0")
    filtered = tables.begin(tables.load_plan())
    request = tables.load_of(filtered, "c").model_copy(update={"read": 15, "skipped": 1})
    assert client.commit_load(filtered.id, request).ledger.filtered == 4


def test_a_load_keeps_within_the_quota(tables: Tables) -> None:
    """What would be too much is refused whole; a new build counts instead of the one that it replaces."""
    tables.create(quota_bytes=2_500)
    tables.load("a", "b")
    rebuild = tables.begin(tables.load_plan())
    client = tables.cluster.client
    error = refused(Failed, lambda: client.commit_load(rebuild.id, tables.load_of(rebuild, "c")))
    assert (error.code, error.found) == ("quota_exceeded", "3000 bytes")
    client.commit_load(rebuild.id, tables.load_of(rebuild, "b", bytes=1_500))
    assert [(segment.name, segment.build.bytes) for segment in _segments(tables)] == [("a", 1_000), ("b", 1_500)]


@pytest.mark.case("tables:F3", "rules:R22")
def test_of_two_loads_at_once_neither_loses_a_segment(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loads make a segment of one name at once: the second one's is a new build of the first one's."""
    tables.create()
    rebuild, catalog = tables.begin(tables.load_plan()), tables.cluster.context.catalog
    commit = tables.load_of(rebuild, "a", "b")
    write, waiting = catalog.commit, ["a"]

    def raced(change: Change) -> bool:
        if waiting and change.operation.what == "load":
            tables.load(waiting.pop())
        return write(change)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        tables.cluster.client.commit_load(rebuild.id, commit)
    found = {segment.name: segment for segment in _segments(tables)}
    assert {name: each.build.rebuild for name, each in found.items()} == dict.fromkeys(("a", "b"), rebuild.id)
    assert (found["a"].slot != found["b"].slot, found["a"].revision, found["b"].revision) == (True, 2, 1)


@pytest.mark.case("rules:R22")
def test_a_load_of_an_older_driver_is_turned_away(tables: Tables) -> None:
    """After another driver took over, nothing of the first becomes visible."""
    tables.create()
    first = tables.begin(tables.load_plan())
    late: CommitLoad = tables.load_of(first, "a")
    tables.pass_seconds(15)
    second = tables.resume(first)
    assert refused(Refused, lambda: tables.cluster.client.commit_load(first.id, late)).code == "epoch_outdated"
    assert _segments(tables) == []
    tables.cluster.client.commit_load(second.id, tables.load_of(second, "a"))
    assert "-e2/" in tables.segment("a").build.path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("p_0", "p_1", "p_2"), ("p_0",)),
        (("p_0",), ("p_0", "p_1")),
        (("p_2013-01_0", "p_2013-02_0"), ("p_2013_0",)),
        (("p_0", "p_1"), ("p_p0_0", "p_p1_0")),
        (("p_0",), ()),
    ],
)
def test_a_load_replaces_all_that_its_prefix_held(
    tables: Tables, before: tuple[str, ...], after: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its rows are dealt now: what the earlier load held and this one did not make goes in the same commit."""
    tables.create(backup_retention_seconds=0)
    tables.load(*before, prefix="p")
    tables.load("q_0", prefix="q")
    tables.load("p_imported", config_hash=None)
    catalog, seen = tables.cluster.context.catalog, []
    write = catalog.commit

    def looked(change: Change) -> bool:
        done = write(change)
        seen.append({segment.name for segment in _segments(tables)})
        return done

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", looked)
        rebuild = tables.load(*after, prefix="p")
    others = {"q_0", "p_imported"}
    assert all(names in ({*before, *others}, {*after, *others}) for names in seen)
    assert {segment.name for segment in _segments(tables)} == {*after, *others}
    view = plain(tables.view(rebuild).refresh)
    assert (view["removed"], view["refreshed"]) == (sorted({*before} - {*after}), list(after))
    tables.pass_seconds(6_000)
    tables.round()
    assert sorted(tables.files()) == sorted(segment.build.path for segment in _segments(tables))


def test_what_was_dealt_otherwise_says_so_to_nodes(tables: Tables) -> None:
    """Only a load that deals its rows to other segments makes nodes answer none of the older copies, from then on."""
    tables.create()

    def redealt() -> dict[str, bool]:
        return {segment.name: segment.redealt for segment in tables.desired("node-1").segments}

    tables.load("p_0", "p_1", prefix="p")
    tables.load("p_0", "p_1", prefix="p")
    assert redealt() == {"p_0": False, "p_1": False}
    tables.load("p_0", prefix="p")
    assert redealt() == {"p_0": True}
    tables.load("p_0", prefix="p")
    assert redealt() == {"p_0": True}


def test_a_load_takes_no_names_of_another_prefix(tables: Tables) -> None:
    """Segments of one prefix may be called as those of another one would be: the load is refused, nothing changes."""
    tables.create()
    tables.load("p_2013_0", prefix="p")
    rebuild, before = tables.begin(tables.load_plan(prefix="p_2013")), _segments(tables)
    error = refused(Refused, lambda: tables.cluster.client.commit_load(rebuild.id, tables.load_of(rebuild, "p_2013_0")))
    assert (error.code, _segments(tables)) == ("prefix_taken", before)
    assert "p_2013_0 of the prefix p" in str(error.found)


def test_a_refreshed_segment_stays_its_load_s(tables: Tables) -> None:
    """A refresh makes another build of a segment, which the next load of the prefix replaces like any other."""
    tables.create()
    tables.load("p_0", "p_1", prefix="p")
    tables.update(sort="city")
    rebuild = tables.begin(tables.plan())
    for name in ("p_0", "p_1"):
        tables.commit(rebuild, tables.refreshed(rebuild, name))
    tables.finish(rebuild)
    tables.load("p_0", prefix="p")
    assert [segment.name for segment in _segments(tables)] == ["p_0"]


def test_what_a_load_replaces_does_not_count_against_the_quota(tables: Tables) -> None:
    """Rows that are dealt to fewer segments take the place of those that go."""
    tables.create(quota_bytes=2_500)
    tables.load("p_0", "p_1", prefix="p")
    tables.load("p_2013_0", "p_2014_0", prefix="p")
    assert [segment.name for segment in _segments(tables)] == ["p_2013_0", "p_2014_0"]
