"""What a refresh chooses, by what the catalog holds and what nodes say, and how it says so."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.tables.requests import DropSegments
from anew.api.tables.segments import SegmentReport, SegmentState
from anew.core.errors import InvalidRequest, Refused
from anew.core.tables.plan import TablePlan
from anew.testing.table_builders import a_schema
from tests.component.controller.harness import plain, refused
from tests.component.controller.tables.tables_harness import Tables, says_hash, says_nothing

_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reloadOnly": {"reload_only": True},
    "forceReload": {"reload_only": True, "force_reload": True},
}


def _chosen(plan: TablePlan) -> list[str]:
    return [planned.segment for planned in plan.segments]


def _reported(tables: Tables, *says: tuple[str, Any]) -> None:
    for node, what in says:
        tables.report(node, what)


@pytest.mark.case("tables:B4")
@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("refreshed_before", [False, True], ids=["never updated", "refreshed"])
def test_what_is_in_sync_is_not_refreshed(tables: Tables, mode: str, *, refreshed_before: bool) -> None:
    """A segment with the wanted hash is taken in no mode, and its nodes are not asked: not even one that is behind."""
    before = tables.create()
    tables.load("a", "b")
    if refreshed_before:
        tables.update(sort="city")
        assert sorted(_chosen(tables.plan(**_MODES[mode]))) == ["a", "b"]
        tables.refresh()
    _reported(tables, ("node-1", says_hash(before.config_hash)), ("node-2", says_nothing))
    plan = tables.plan(**_MODES[mode])
    assert (plan.segments, plan.drift, plan.skipped, plan.left) == ((), (), {}, 0)


@pytest.mark.case("tables:B7")
@pytest.mark.parametrize("mode", _MODES)
def test_after_a_forced_run_the_flag_may_go(tables: Tables, mode: str) -> None:
    """Imported segments are refreshed once by the table's own forceReload; without the flag nothing is stale."""
    tables.create(refresh={"reloadOnly": True, "forceReload": True})
    wanted = tables.table().config_hash
    tables.load("a", "b", config_hash=None, imported_under=wanted)
    tables.settle(1)
    assert _chosen(tables.plan(force_reload=False)) == []
    view = tables.refresh()
    assert sorted(view.refresh.refreshed) == ["a", "b"]
    assert tables.plan().segments == ()
    tables.update(refresh=None)
    assert tables.table().config_hash == wanted
    assert (tables.stale(), tables.plan(**_MODES[mode]).segments) == ([], ())


@pytest.mark.case("tables:B8")
def test_a_run_takes_so_many_and_the_next_ones_the_rest(tables: Tables) -> None:
    """The newest first, as many as the task says, or asked for, or all; what is left is told and comes next."""
    tables.create(refresh={"maxSegments": 2})
    for name in ("a", "b", "c"):
        tables.pass_seconds(1)
        tables.load(name)
    tables.update(sort="city")
    plan = tables.plan()
    assert (_chosen(plan), plan.left) == (["c", "b"], 1)
    assert plan.skipped == {"a": "the run is full; the next one takes it"}
    assert _chosen(tables.plan(max_segments=1)) == ["c"]
    assert _chosen(tables.plan(max_segments=0)) == ["c", "b", "a"]
    view = tables.refresh()
    assert (view.refresh.refreshed, tables.stale()) == (("b", "c"), ["a"])
    assert _chosen(tables.plan()) == ["a"]


@pytest.mark.case("tables:B8")
def test_what_nodes_serve_stale_goes_first_and_in_turn(tables: Tables) -> None:
    """A segment whose copy follows already waits for those that do not; of these each node's newest come in turn."""
    tables.create()
    for name in ("a", "b", "c", "d"):
        tables.pass_seconds(1)
        tables.load(name)
    held = {node: sorted(tables.hosted(node)) for node in tables.cluster.nodes}
    (old_1, new_1), (old_2, new_2) = held["node-1"], held["node-2"]
    wanted = tables.update(sort="city").config_hash

    def says(copy: SegmentReport) -> SegmentReport:
        return copy.model_copy(update={"config_hash": wanted}) if copy.segment == new_1 else copy

    _reported(tables, ("node-1", says), ("node-2", says))
    assert _chosen(tables.plan()) == [old_1, new_2, old_2, new_1]
    assert _chosen(tables.plan(max_segments=3)) == [old_1, new_2, old_2]
    assert tables.plan().drift == (new_1,)


@pytest.mark.case("tables:B9")
def test_a_second_refresh_takes_none_of_the_first_s_segments(tables: Tables) -> None:
    """It says which refresh works on them; those that the first is done with, or gave up, may be taken again."""
    tables.create()
    tables.load("a", "b", "c")
    tables.update(sort="city")
    first = tables.begin(tables.plan(max_segments=2))
    assert _chosen(first.plan) == ["c", "b"]
    plan = tables.plan()
    assert (_chosen(plan), plan.left) == (["a"], 2)
    assert plan.skipped == dict.fromkeys(("b", "c"), f"the refresh {first.id} works on it")
    second = tables.begin(plan)
    view = plain(tables.view(second).refresh)
    assert {"segment": "c", "reason": f"the refresh {first.id} works on it"} in view["skipped"]
    tables.commit(first, tables.refreshed(first, "c"))
    tables.update(sort="id")
    assert (_chosen(tables.plan()), sorted(tables.plan().skipped)) == (["c"], ["a", "b"])
    tables.cluster.client.kill_rebuild(first.id)
    assert (sorted(_chosen(tables.plan())), list(tables.plan().skipped)) == (["b", "c"], ["a"])
    assert tables.plan().skipped["a"] == f"the refresh {second.id} works on it"


@pytest.mark.case("tables:B9", "rules:R22")
def test_of_two_plans_of_the_same_segments_one_begins(tables: Tables) -> None:
    """Planned before the first began, the second is refused by name of the segment and refresh, and does nothing."""
    tables.create()
    tables.load("a", "b")
    tables.update(sort="city")
    plans = [tables.plan(), tables.plan(max_segments=1)]
    first = tables.begin(plans[0])
    error = refused(Refused, lambda: tables.begin(plans[1]))
    assert (error.code, error.found) == ("plan_outdated", f"{_chosen(plans[1])[0]} is in {first.id}")
    assert [view.id for view in tables.cluster.client.rebuilds(table="trips", running=True)] == [first.id]


@pytest.mark.case("tables:B9", "rules:R22")
def test_of_two_refreshes_that_begin_at_once_one_begins(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both saw the segments free: the one that writes second looks again, and is refused."""
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    plan, catalog = tables.plan(), tables.cluster.context.catalog
    commit = catalog.commit
    first: list[str] = []

    def raced(change: Any) -> bool:
        if not first:
            first.append("")
            first[0] = tables.begin(plan, "faster").id
        return commit(change)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        assert refused(Refused, lambda: tables.begin(plan, "slower")).code == "plan_outdated"
    assert [view.id for view in tables.cluster.client.rebuilds(table="trips", running=True)] == first


@pytest.mark.case("tables:B10")
@pytest.mark.parametrize("mode", _MODES)
def test_what_is_in_the_making_or_going_is_not_chosen(tables: Tables, mode: str) -> None:
    """Neither a segment whose load is not committed, nor one that was dropped, though files of both are there."""
    tables.create()
    tables.load("stays", "goes")
    load = tables.begin(tables.load_plan())
    commit = tables.load_of(load, "comes")
    tables.update(sort="city")
    assert _chosen(tables.plan(**_MODES[mode])) == ["stays", "goes"]
    tables.cluster.client.drop_segments("trips", DropSegments(segments=("goes",)))
    assert len(tables.files()) == 3
    plan = tables.plan(**_MODES[mode])
    assert (_chosen(plan), plan.left, tables.stale()) == (["stays"], 0, ["stays"])
    tables.cluster.client.commit_load(load.id, commit)
    assert sorted(_chosen(tables.plan(**_MODES[mode]))) == ["comes", "stays"]


@pytest.mark.case("tables:B10")
def test_a_table_that_was_deleted_has_nothing_to_choose(tables: Tables) -> None:
    """A new table of the name has no stale segment of the old one, whose files are there until the grace has passed."""
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    tables.cluster.client.delete_table("trips")
    tables.create()
    assert (len(tables.files()), tables.stale(), tables.plan().segments) == (1, [], ())


@pytest.mark.case("tables:A8")
@pytest.mark.parametrize("silence", ["does not answer", "says nothing of it", "fails on it", "loads it"])
def test_a_copy_that_nobody_vouches_for_is_not_fresh(tables: Tables, silence: str) -> None:
    """Two replicas, one of which is silent: its entry says so, and reloadOnly takes the segment."""
    tables.create(replicas=2)
    tables.load("a")
    wanted = tables.update(sort="city").config_hash
    _reported(tables, ("node-1", says_hash(wanted)), ("node-2", says_hash(wanted)))
    plan = tables.plan(reload_only=True)
    assert (_chosen(plan), plan.drift) == ([], ("a",))

    def says(copy: SegmentReport) -> SegmentReport | None:
        changes = {
            "fails on it": {"state": SegmentState.ERROR, "config_hash": wanted, "error": "disk full"},
            "loads it": {"state": SegmentState.LOADING, "config_hash": wanted},
        }
        return copy.model_copy(update=changes[silence]) if silence in changes else None

    tables.clock.advance(7_000)
    tables.report("node-1", says_hash(wanted))
    if silence != "does not answer":
        tables.report("node-2", says)
    plan = tables.plan(reload_only=True)
    assert (_chosen(plan), plan.drift) == (["a"], ())
    copies = {copy.node: copy for copy in tables.cluster.client.segments("trips")[0].replicas}
    assert (copies["node-1"].state, copies["node-1"].config_hash) == ("serving", wanted)
    expected = {"fails on it": ("error", "disk full"), "loads it": ("loading", None)}
    found = (copies["node-2"].state, copies["node-2"].error)
    assert found == expected.get(silence, ("unknown", "it does not answer"))


@pytest.mark.case("tables:A9", "tables:A7")
def test_a_stale_segment_is_explained_by_its_own_configuration(tables: Tables) -> None:
    """Each segment's reasons, and the plan's changes, are what its build differs in, two configurations back too."""
    first = tables.create()
    tables.load("oldest")
    tables.update(sort="city")
    tables.load("older")
    tables.load("imported", config_hash=None)
    tables.update(schema=a_schema(fare={"type": "real"}), bloom={"id": 0.01})
    reasons = {planned.segment: planned.reasons for planned in tables.plan().segments}
    views = {view.name: tuple(view.reasons) for view in tables.cluster.client.segments("trips", stale=True)}
    assert views == reasons
    assert reasons["imported"] == ("imported: its configuration is not known",)
    assert len(reasons["oldest"]) == 3
    assert set(reasons["oldest"]) - set(reasons["older"]) == {each for each in reasons["oldest"] if "sort" in each}
    assert any("fare" in each and "double" in each and "real" in each for each in reasons["older"])
    changes = {change.setting: (change.now, change.wanted) for change in tables.plan().changes}
    assert ("double", "real") in changes.values()
    assert len(changes) == 3
    assert tables.cluster.client.config(first.config_hash) == first.config
    assert tables.segment("oldest").build.config_hash == first.config_hash


@pytest.mark.case("tables:A9")
def test_planning_changes_nothing(tables: Tables) -> None:
    """A dry run leaves the catalog as it was, and an altered plan is refused."""
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    before = tables.cluster.context.catalog.revision()
    plan = tables.plan()
    assert plan == tables.plan()
    assert tables.cluster.context.catalog.revision() == before
    altered = plan.model_copy(update={"segments": ()})
    assert refused(InvalidRequest, lambda: tables.begin(altered)).code == "plan_altered"
    assert tables.cluster.client.rebuilds(table="trips", running=True) == []
