"""Which nodes hold which segments: a node is let go only after its successors serve what it held."""

from __future__ import annotations

import pytest

from anew.api.models import DrainNode
from anew.api.tables.segments import SegmentReport, SegmentState
from tests.component.controller.tables.tables_harness import Tables, as_it_is, says_nothing

_ALL = {"a", "b", "c", "d"}


def _table(tables: Tables) -> set[str]:
    """Four segments on two nodes that serve them; what node-2 holds."""
    tables.create()
    tables.load(*sorted(_ALL))
    tables.settle(2)
    held = tables.hosted("node-2")
    assert (held | tables.hosted("node-1"), 0 < len(held) < len(_ALL)) == (_ALL, True)
    return held


def _drain(tables: Tables) -> None:
    tables.cluster.client.drain_node("node-2", DrainNode())


@pytest.mark.case("rules:R25")
def test_a_node_is_let_go_after_its_successor_serves(tables: Tables) -> None:
    """While the successor loads, both hold the segments; when it serves all of them, the other has none left."""
    held = _table(tables)
    _drain(tables)

    def loads(copy: SegmentReport) -> SegmentReport:
        return copy.model_copy(update={"state": SegmentState.LOADING}) if copy.segment in held else copy

    for _ in range(3):
        tables.report("node-1", loads)
        tables.report("node-2")
        tables.round()
        assert (tables.hosted("node-1"), tables.hosted("node-2")) == (_ALL, held)
    tables.settle(1)
    assert (tables.hosted("node-1"), tables.hosted("node-2")) == (_ALL, set())


@pytest.mark.case("rules:R25")
def test_a_successor_that_serves_an_older_build_is_not_ready(tables: Tables) -> None:
    """What it holds of before a refresh does not count: the node that it follows stays until it has the new builds."""
    held = _table(tables)
    _drain(tables)
    tables.round()
    older = {segment.name: segment.build.id for segment in tables.desired("node-1").segments}
    tables.update(sort="city")
    tables.refresh()

    def says(copy: SegmentReport) -> SegmentReport:
        return copy.model_copy(update={"build": older[copy.segment]})

    for _ in range(3):
        tables.report("node-1", says)
        tables.report("node-2")
        tables.round()
        assert tables.hosted("node-2") == held
    tables.settle(1)
    assert (tables.hosted("node-1"), tables.hosted("node-2")) == (_ALL, set())


@pytest.mark.case("rules:R25")
def test_slots_without_segments_move_at_once(tables: Tables) -> None:
    """Nobody waits for what is not there: segments that come later go to the node that stays."""
    tables.create()
    _drain(tables)
    tables.settle(1)
    tables.load(*sorted(_ALL))
    assert (tables.hosted("node-1"), tables.hosted("node-2")) == (_ALL, set())


@pytest.mark.case("rules:R25", "tables:E10")
def test_a_lost_node_s_segments_go_to_others(tables: Tables) -> None:
    """Away for a moment it keeps them; lost, its successor gets them, and when it is back it has nothing to do."""
    held = _table(tables)
    tables.round()
    tables.pass_seconds(59, nodes=["node-1"])
    tables.round()
    assert tables.hosted("node-2") == held
    tables.pass_seconds(2, nodes=["node-1"])
    tables.settle(2, nodes=["node-1"])
    assert (tables.hosted("node-1"), tables.hosted("node-2")) == (_ALL, set())
    for says in (as_it_is, says_nothing):
        tables.report("node-2", says)
        tables.settle(2)
        assert (tables.hosted("node-1"), tables.hosted("node-2")) == (_ALL, set())


@pytest.mark.case("tables:E10")
def test_more_replicas_are_added_and_fewer_let_go(tables: Tables) -> None:
    """With two, every node is to hold every segment, without a new build; with one again, each is held once."""
    _table(tables)
    builds = [segment.build for segment in tables.desired("node-1").segments]
    tables.update(replicas=2)
    tables.settle(2)
    assert tables.hosted("node-1") == tables.hosted("node-2") == _ALL
    tables.update(replicas=1)
    tables.settle(2)
    assert (tables.hosted("node-1") | tables.hosted("node-2"), tables.hosted("node-1") & tables.hosted("node-2")) == (
        _ALL,
        set(),
    )
    assert [segment.build for segment in tables.desired("node-1").segments] == builds


def test_a_copy_that_fails_is_told_of(tables: Tables) -> None:
    """The status names the segment, the node and the reason, and that too few nodes serve it; well again, nothing."""
    _table(tables)
    (first, *_) = sorted(tables.hosted("node-1"))

    def fails(copy: SegmentReport) -> SegmentReport:
        changes = {"state": SegmentState.ERROR, "error": "disk full"}
        return copy.model_copy(update=changes) if copy.segment == first else copy

    tables.report("node-1", fails)
    problems = [problem.what for problem in tables.cluster.client.status().problems]
    assert problems == [f"trips/{first} on node-1: disk full", f"trips/{first} is served by 0 of 1 nodes"]
    tables.report("node-1")
    assert tables.cluster.client.status().problems == ()
