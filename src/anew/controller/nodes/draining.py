"""Taking a node out of service: its replicas move first (rule R25), then it may be removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anew.api.models import DrainNode
from anew.api.upkeep import DrainAnswer, NodeRemoved
from anew.catalog.change import NodeRecord, PutFlag, SwapFlag
from anew.controller.engine.commit import again_on_conflict, commit
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import DRAINED, REMOVED, drained, removed
from anew.core.errors import NotFound, Refused
from anew.core.stores.store import SERVABLE
from anew.core.suggest import did_you_mean

_DRAINS = "node drains"
"""How many drains there were: what one has looked at is what it changes."""


def drain(context: Context, node: str, request: DrainNode, actor: str) -> DrainAnswer:
    """Let a node's replicas move to others, or let it be used again; returns what it still holds.

    Raises:
        NotFound: ``unknown_node``.
        Refused: ``too_few_nodes``: the others cannot take all of its replicas.
    """
    if request.undo:
        known = removed(context.catalog.flags(), node)
        if not known:
            _record(context, node)
        puts = (PutFlag(f"{DRAINED}{node}", None), PutFlag(f"{REMOVED}{node}", None))
        commit(context, context.operation("undo drain", node, actor), *puts)
    else:
        known = False
        again_on_conflict(lambda: _drain(context, node, request, actor))
    held = tuple(holds(context, node))
    return DrainAnswer(node=node, drained=not request.undo, holds=held, was_removed=known)


def _drain(context: Context, node: str, request: DrainNode, actor: str) -> None:
    """Of two drains at once one comes first: the other one looks again at who is left.

    Raises:
        NotFound, Refused: As `drain`; ``revision_conflict``.
    """
    flags = context.catalog.flags()
    record = _record(context, node)
    if not request.force and not drained(flags, node):
        _check_others(context, record, flags)
    count = flags.get(_DRAINS)
    puts = (PutFlag(f"{DRAINED}{node}", actor), SwapFlag(_DRAINS, count, str(int(count or 0) + 1)))
    commit(context, context.operation("drain node", node, actor), *puts)


def remove(context: Context, node: str, actor: str) -> NodeRemoved:
    """Forget a node that holds nothing any more.

    Raises:
        NotFound: ``unknown_node``.
        Refused: ``node_holds_replicas``: what it holds has not moved yet.
    """
    record = _record(context, node)
    held = holds(context, node)
    if held:
        raise Refused(
            "node_holds_replicas",
            f"{node} is still to hold {len(held)} replicas",
            found=held[:5],
            expected="none",
            hint=f"anew node drain {node}, then wait until the others have them: anew node list",
        )
    # The flag first: from then on no report of the node is taken that would bring its record back.
    flag = PutFlag(f"{REMOVED}{node}", actor)
    commit(context, context.operation("remove node", node, actor), flag)
    context.catalog.put_node(NodeRecord(record.id, record.fabric, record.last_seen_ms, record.report, removed=True))
    return NodeRemoved(node=node, removed=True)


def _check_others(context: Context, record: NodeRecord, flags: Mapping[str, str]) -> None:
    """Raise unless each replica of a node has another node to go to: a copy that only leaves is redundancy lost.

    Raises:
        Refused: ``too_few_nodes``.
    """
    oldest_ms = context.clock() - int(context.limits.node_alive_seconds * 1000)
    others = {
        other.id
        for other in context.catalog.nodes()
        if other.fabric == record.fabric
        and other.id != record.id
        and other.last_seen_ms >= oldest_ms
        and not drained(flags, other.id)
    }
    held = {name: nodes for name, nodes in _held(context) if record.id in nodes}
    stranded = [name for name, nodes in held.items() if not others - set(nodes)]
    if stranded:
        copies = max(len(held[name]) for name in stranded)
        raise Refused(
            "too_few_nodes",
            f"without {record.id} the other nodes cannot hold as many replicas as there are now",
            found=f"{len(others)} other nodes that are alive and not drained; {len(stranded)} replicas have nowhere to "
            f"go: {', '.join(stranded[:5])}",
            expected=f"at least {copies} other nodes",
            hint=f"add one: anew node add; to do with fewer replicas: anew node drain {record.id} --force",
        )


def holds(context: Context, node: str) -> list[str]:
    """What a node is to hold, as ``flights_v7/3``, and of tables as ``trips/slot 3``."""
    return [name for name, nodes in _held(context) if node in nodes]


def _held(context: Context) -> Iterator[tuple[str, Sequence[str]]]:
    """Each partition and slot that is to be held, with the nodes that are to hold it."""
    for store in context.catalog.stores():
        for version in store.versions:
            for there in version.fabrics.values():
                if there.status in SERVABLE:
                    for partition, nodes in there.assignment.items():
                        yield f"{version.name_in(store.name)}/{partition}", nodes
    for table in context.catalog.tables():
        for slot, nodes in table.assignment.items():
            yield f"{table.name}/slot {slot}", nodes


def _record(context: Context, node: str) -> NodeRecord:
    records = {record.id: record for record in context.catalog.nodes()}
    if node not in records:
        raise NotFound(
            "unknown_node",
            f"there is no node {node}",
            found=node,
            expected=", ".join(records),
            hint=did_you_mean(node, records),
        )
    return records[node]
