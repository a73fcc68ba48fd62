"""Nodes as everybody needs them: who is alive, who may get something new, and what each said last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from anew.api.models import NodeReport, NodeView
from anew.api.pages import Page
from anew.catalog.change import NodeRecord
from anew.controller.engine.context import Context
from anew.core.errors import Unreachable

DRAINED, REMOVED = "drained/", "removed/"
"""How the names of the flags begin that keep which nodes are."""


def drained(flags: Mapping[str, str], node: str) -> bool:
    """Whether a node is to hold nothing new, and its replicas are to move."""
    return f"{DRAINED}{node}" in flags or f"{REMOVED}{node}" in flags


def removed(flags: Mapping[str, str], node: str) -> bool:
    """Whether a node was taken out: its reports are not taken."""
    return f"{REMOVED}{node}" in flags


def reports(context: Context) -> list[NodeReport]:
    """The last report of each node, alive or not."""
    return context.node_reports.reports(heard_nodes(context))


def heard_nodes(context: Context) -> list[NodeRecord]:
    """All nodes, each as it was heard last: also what the catalog has no room for."""
    return context.node_reports.newest(context.catalog.nodes())


def live_reports(
    context: Context, fabrics: Iterable[str], records: Collection[NodeRecord] | None = None
) -> dict[str, list[NodeReport]]:
    """Fabric → the last reports of its nodes that are alive, by the catalog's records, which are read unless given."""
    oldest_ms = context.clock() - int(context.limits.node_alive_seconds * 1000)
    known = heard_nodes(context) if records is None else records
    alive = [record for record in known if record.last_seen_ms >= oldest_ms]
    return {fabric: context.node_reports.reports(r for r in alive if r.fabric == fabric) for fabric in fabrics}


def alive_nodes(context: Context, fabric: str) -> list[str]:
    """The ids of the fabric's nodes that are alive and may get replicas.

    Raises:
        Unreachable: ``nodes_not_heard``: this controller has not listened for long enough to know which are alive.
    """
    flags = context.catalog.flags()
    heard = live_reports(context, (fabric,))[fabric]
    alive = [report.node for report in heard if not drained(flags, report.node)]
    listened = context.attention.listened_for(context.limits.node_alive_seconds, context.clock())
    known = {r.id for r in context.catalog.nodes() if r.fabric == fabric and not drained(flags, r.id)}
    if not listened and known - set(alive):
        raise Unreachable(
            "nodes_not_heard",
            "the controller was just started and has not heard of all nodes yet",
            found=sorted(alive),
            expected=sorted(known),
            hint=f"try again; after {context.limits.node_alive_seconds:g} s the others count as away",
        )
    return alive


def usable_nodes(
    context: Context, fabrics: Iterable[str], records: Collection[NodeRecord], flags: Mapping[str, str]
) -> dict[str, list[str]]:
    """Fabric → its nodes that are not lost, alive or away for less than the limit, and that are not drained."""
    lost_seconds, now_ms = context.limits.node_lost_seconds, context.clock()
    oldest_ms = now_ms - int(lost_seconds * 1000) if context.attention.listened_for(lost_seconds, now_ms) else 0
    usable = [record for record in records if record.last_seen_ms >= oldest_ms and not drained(flags, record.id)]
    return {fabric: [record.id for record in usable if record.fabric == fabric] for fabric in fabrics}


def node_urls(context: Context) -> dict[str, str]:
    """Where each node answers reads."""
    return {report.node: report.url for report in reports(context)}


def node_views(context: Context) -> tuple[NodeView, ...]:
    """All nodes as the controller sees them."""
    return _views(context, heard_nodes(context))


def node_page(context: Context, after: str, limit: int) -> Page[NodeView]:
    """Some of the nodes as the controller sees them, the next ones by id."""
    found = context.catalog.nodes_page(after, limit + 1)
    # By what the catalog holds: of its nodes some may be left out.
    is_last = len(found) <= limit
    views = _views(context, context.node_reports.newest(found[:limit]))
    return Page(items=views, next=None if is_last else found[limit - 1].id)


def _views(context: Context, records: Iterable[NodeRecord]) -> tuple[NodeView, ...]:
    flags = context.catalog.flags()
    oldest_ms = context.clock() - int(context.limits.node_alive_seconds * 1000)
    views = []
    for record in records:
        if removed(flags, record.id):
            # A report that crosses the removal brings the record back for a moment.
            continue
        report = context.node_reports.report(record)
        views.append(
            NodeView(
                id=record.id,
                fabric=record.fabric,
                url=report.url,
                alive=record.last_seen_ms >= oldest_ms,
                last_seen_ms=record.last_seen_ms,
                replicas=len(report.replicas),
                drained=drained(flags, record.id),
                states=dict(Counter(replica.state.value for replica in report.replicas)),
            )
        )
    return tuple(views)
