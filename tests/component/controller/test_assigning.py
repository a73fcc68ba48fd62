"""Which node is to hold what while nodes come, go and fall ill: a table over what `next_assignment` may meet."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from anew.api.models import NodeReport
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.controller.stores.placing import next_assignment
from anew.controller.stores.readiness import coverage
from anew.testing.builders import FABRIC, a_config, a_store, a_version
from tests.component.controller.harness import node_report

_PATIENCE_MS = 60_000
_STORE = a_store()


def _replica(state: ReplicaState, stuck_ms: int = 0, error_code: str | None = None) -> ReplicaReport:
    return ReplicaReport(
        store_uid=_STORE.uid,
        version=1,
        partition=0,
        sub_partition=0,
        state=state,
        store_revision=_STORE.revision,
        error=error_code,
        error_code=error_code,
        stuck_ms=stuck_ms,
    )


_WELL = _replica(ReplicaState.APPLYING)
_LOADS = _replica(ReplicaState.LOADING)
_SICK = _replica(ReplicaState.ERROR, _PATIENCE_MS + 1, "storage_broken")
_SICK_A_MOMENT = _replica(ReplicaState.ERROR, _PATIENCE_MS - 1, "storage_broken")
_WAITS_FOR_ROOM = _replica(ReplicaState.PENDING, _PATIENCE_MS + 1, "disk_full")
_OF_THE_BASE_ALONE = _WELL.model_copy(update={"arrived": False})
_WAITS = _WELL.model_copy(update={"stuck_ms": 1})
_BEHIND = _WELL.model_copy(update={"lag_records": 1_001})
_BAD_LOG = _replica(ReplicaState.ERROR, _PATIENCE_MS + 1, "log_corrupt")
_BAD_BASE = _replica(ReplicaState.ERROR, _PATIENCE_MS + 1, "checksum_mismatch")


@dataclass(frozen=True, slots=True)
class Case:
    """One partition with two replicas.

    Attributes:
        held: Who holds it by the catalog.
        usable: Nodes that may get replicas.
        told: Node → what it reports of it.
        wanted: Who is to hold it next.
    """

    name: str
    held: str
    usable: str
    told: dict[str, ReplicaReport]
    wanted: str


_CASES = (
    Case("all is well", "a b", "a b c", {"a": _WELL, "b": _WELL}, "a b"),
    Case("a sick one gets a successor", "a b", "a b c", {"a": _SICK, "b": _WELL}, "a b c"),
    Case("one that cannot load gets a successor", "a b", "a b c", {"a": _WAITS_FOR_ROOM, "b": _WELL}, "a b c"),
    Case("it stays until that is ready", "a b c", "a b c", {"a": _SICK, "b": _WELL, "c": _LOADS}, "a b c"),
    Case("then it goes", "a b c", "a b c", {"a": _SICK, "b": _WELL, "c": _WELL}, "b c"),
    Case(
        "and not to what holds the base alone",
        "a b c",
        "a b c",
        {"a": _SICK, "b": _WELL, "c": _OF_THE_BASE_ALONE},
        "a b c",
    ),
    Case("nor to what waits", "a b c", "b c", {"b": _WELL, "c": _WAITS}, "a b c"),
    Case("nor to what is far behind", "a b c", "b c", {"b": _WELL, "c": _BEHIND}, "a b c"),
    Case("who got well needs no successor", "a b c", "a b c", {"a": _WELL, "b": _WELL, "c": _LOADS}, "a b"),
    Case("the youngest goes where all are well", "a b c", "a b c", {"a": _WELL, "b": _WELL, "c": _WELL}, "a b"),
    Case("one too many stays while one is not well", "a b c", "a b c", {"a": _LOADS, "b": _WELL, "c": _LOADS}, "a b c"),
    Case("a bad log is bad everywhere", "a b", "a b c", {"a": _BAD_LOG, "b": _WELL}, "a b"),
    Case("patience comes first", "a b", "a b c", {"a": _SICK_A_MOMENT, "b": _WELL}, "a b"),
    Case("nobody else is there", "a b", "a b", {"a": _SICK, "b": _WELL}, "a b"),
    Case("a bad base is bad everywhere", "a b", "a b c", {"a": _BAD_BASE, "b": _WELL}, "a b"),
    Case("both are sick, one place is free", "a b", "a b c", {"a": _SICK, "b": _SICK}, "a b c"),
    Case("both are sick, two places are free", "a b", "a b c d", {"a": _SICK, "b": _SICK}, "a b c d"),
    Case("a lost one gets a successor", "a b", "b c", {"b": _WELL}, "a b c"),
    Case("a lost one goes when that is ready", "a b c", "b c", {"b": _WELL, "c": _WELL}, "b c"),
    Case("a successor falls ill", "a b c", "b c d", {"b": _WELL, "c": _SICK}, "a b c d"),
    Case("and goes with the lost one", "a b c d", "b c d", {"b": _WELL, "c": _SICK, "d": _WELL}, "b d"),
    Case("one is lost and one is sick", "a b", "b c d", {"b": _SICK}, "a b c d"),
    Case("who is drained is no successor of a sick one", "a b c", "b c", {"a": _WELL, "b": _SICK, "c": _WELL}, "a b c"),
)


@pytest.mark.case("rules:R25")
@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_who_is_to_hold_a_partition(case: Case) -> None:
    """Whoever leaves has successors that are ready; whoever does not get on is replaced, successors too."""
    frozen = a_config(partitions=1, replicas=2).frozen
    held = {0: tuple(case.held.split())}
    version = a_version(config=frozen, config_hash=frozen.hash, assignment=held)
    store = _STORE.model_copy(update={"versions": (version,)})
    reports: list[NodeReport] = [node_report(node, replica) for node, replica in case.told.items()]
    wanted = next_assignment(store, version, FABRIC, case.usable.split(), reports, _PATIENCE_MS)
    assert set(wanted[0]) == set(case.wanted.split())


def test_a_sick_replica_of_a_store_that_is_short_elsewhere_is_replaced() -> None:
    """What one partition lacks does not keep another one from getting well."""
    frozen = a_config(partitions=2, replicas=2).frozen
    held = {0: ("a", "b"), 1: ("b", "lost")}
    version = a_version(config=frozen, config_hash=frozen.hash, assignment=held)
    store = _STORE.model_copy(update={"versions": (version,)})
    of_b = node_report("b", _WELL, _WELL.model_copy(update={"partition": 1}))
    reports = [node_report("a", _SICK), of_b]
    wanted = next_assignment(store, version, FABRIC, ["a", "b", "c"], reports, _PATIENCE_MS)
    assert "c" in wanted[0]
    assert len(wanted[1]) == 3


def test_a_partition_of_which_a_part_is_fresh_is_fresh() -> None:
    """Of a partition that is kept as several instances one that answers no reads yet is enough: its keys are away."""
    frozen = a_config(partitions=1, replicas=1, amplification_factor=2).frozen
    version = a_version(config=frozen, config_hash=frozen.hash, assignment={0: ("a",)})
    store = _STORE.model_copy(update={"versions": (version,)})
    first = _WELL.model_copy(update={"partition": 0, "sub_partition": 0})
    second = first.model_copy(update={"sub_partition": 1, "fresh": True})
    assert coverage(store, version, FABRIC, [node_report("a", first, second)]).missing == (0,)
    well = second.model_copy(update={"fresh": False})
    assert coverage(store, version, FABRIC, [node_report("a", first, well)]).missing == ()
