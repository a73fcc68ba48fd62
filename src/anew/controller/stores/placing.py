"""Which node holds which partition of a version: successors join at once, predecessors leave when these are ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from anew.api.models import NodeReport
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.controller.stores.readiness import within_lag_limits
from anew.controller.stores.replicas import replicas_of
from anew.core.assignment import assign
from anew.core.integrity import OF_THE_BASE, OF_THE_LOG
from anew.core.stores.store import Store, Version


def next_assignment(
    store: Store,
    version: Version,
    fabric: str,
    nodes: list[str],
    reports: list[NodeReport],
    patience_ms: int,
) -> dict[int, tuple[str, ...]]:
    """The assignment to work towards now: successors join at once, predecessors leave when these are ready.

    Nodes that are not lost keep what they hold; nothing moves only for the sake of balance while a version is alive.
    A successor is ready when it says so of *this* store revision: a node that was let go and is wanted again may have
    reported before it heard of either, and be about to drop what it has (rule R25). And it has come to the end of what
    it reads: with the base alone it would take readers back to before what they wrote. A replica that has not got on
    for longer than ``patience_ms`` on a node that is alive is given to another node, where there is one.
    """
    held = version.fabrics[fabric].assignment
    found = replicas_of(reports, store, version)
    wanted_count = min(version.config.replicas, len(nodes))
    sick = {place for place, replica in found.items() if _is_sick(replica, patience_ms)}
    short = {p for p, holders in held.items() if _short(holders, version.config.replicas, nodes)}
    if not short and not sick and all(len(holders) <= wanted_count for holders in held.values()):
        return held

    def is_ready(node: str, partition: int) -> bool:
        return _holds(found.get((node, partition)), store, version)

    balanced = assign(version.config.partitions, version.config.replicas, nodes, held) if short else {}
    load = Counter(node for holders in held.values() for node in holders)
    result = dict(held)
    for partition, holders in held.items():
        wanted = balanced[partition] if partition in short else holders
        ill = {node for node in (*holders, *wanted) if (node, partition) in sick}
        if ill:
            wanted = _without_sick(wanted, holders, ill, nodes, wanted_count, load)
        elif partition not in short:
            # Who got well again, or came back, needs no successor any more: the youngest go.
            wanted = tuple(node for node in holders if is_ready(node, partition))[:wanted_count]
            if len(holders) <= wanted_count or len(wanted) < wanted_count:
                continue
        ready = all(is_ready(node, partition) for node in wanted)
        result[partition] = wanted if ready else tuple(dict.fromkeys((*holders, *wanted)))
    return result


def _without_sick(
    wanted: tuple[str, ...], holders: tuple[str, ...], ill: Set[str], nodes: list[str], count: int, load: Counter[str]
) -> tuple[str, ...]:
    """Who is to hold a partition instead of nodes on which it does not get on; these only where nobody else can.

    Who holds it already stays, or is a successor that has joined; then come those with the least ``load``, which rises.
    """
    joined = [node for node in dict.fromkeys((*wanted, *holders)) if node in nodes and node not in ill]
    free = sorted((node for node in nodes if node not in joined and node not in ill), key=lambda n: (load[n], n))
    chosen = (*joined, *free, *(node for node in holders if node in ill and node in nodes))[:count]
    load.update(node for node in chosen if node not in holders)
    return chosen


def _is_sick(replica: ReplicaReport, patience_ms: int) -> bool:
    """Whether it fails for reasons of its node: what is wrong with a base or with the log is wrong everywhere."""
    fails = replica.state is ReplicaState.ERROR or (replica.state is ReplicaState.PENDING and replica.error is not None)
    return fails and replica.stuck_ms > patience_ms and replica.error_code not in OF_THE_BASE | OF_THE_LOG


def _holds(replica: ReplicaReport | None, store: Store, version: Version) -> bool:
    """Whether a replica can stand for one that leaves: it holds what that one holds, and not the base alone."""
    return (
        replica is not None
        and replica.state is ReplicaState.APPLYING
        and replica.store_revision >= store.revision
        and replica.arrived
        and replica.stuck_ms == 0
        and within_lag_limits(replica, version)
    )


def _short(holders: tuple[str, ...], replicas: int, nodes: list[str]) -> bool:
    usable = [node for node in holders if node in nodes]
    return len(usable) < min(replicas, len(nodes)) or len(usable) < len(holders)
