"""What each node should hold, and taking what it says that it holds."""

from __future__ import annotations

from dataclasses import replace

from anew.api.models import DesiredState, NodeReport
from anew.catalog.change import NodeRecord, PutDeadLetters
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context, Fabric
from anew.controller.engine.nodes import removed
from anew.controller.stores.replicas import desired_stores
from anew.controller.stores.unknownschemas import settle
from anew.controller.tables.serving import desired_tables
from anew.core.admission import Rejection
from anew.core.errors import InvalidRequest, Refused


def take_report(context: Context, report: NodeReport) -> None:
    """Keep what a node says, and record its dead letters; who waits hears of it where it says something new.

    Raises:
        InvalidRequest: ``unknown_fabric``.
        Refused: ``node_removed``.
    """
    _check_kept(context, report)
    if report.fabric not in context.fabrics:
        raise InvalidRequest(
            "unknown_fabric", "the node names an unknown fabric", found=report.fabric, expected=list(context.fabrics)
        )
    record = NodeRecord(report.node, report.fabric, context.clock(), report.model_dump_json())
    is_news = context.node_reports.is_news(record)
    try:
        context.catalog.put_node(record)
    except Exception:
        # On a full disk this is how anybody hears that it is full.
        context.node_reports.unkept(record)
        raise
    context.node_reports.kept(record.id)
    try:
        _check_kept(context, report)
    except Refused:
        # Removed since the look: the record has just brought it back.
        context.catalog.put_node(replace(record, removed=True))
        raise
    for uid in {letter.store_uid for letter in report.dead_letters}:
        letters = tuple(
            Rejection(letter.feed, letter.partition, letter.offset, letter.reason)
            for letter in report.dead_letters
            if letter.store_uid == uid
        )
        operation = context.operation("dead letters", uid, report.node, count=len(letters))
        commit(context, operation, PutDeadLetters(uid, letters))
    settle(context, report.unknown_schemas)
    if is_news:
        context.watch.notify()


def _check_kept(context: Context, report: NodeReport) -> None:
    if removed(context.catalog.flags(), report.node):
        raise Refused(
            "node_removed",
            f"{report.node} was removed",
            found=report.url,
            expected="a node that is not removed",
            hint=f"to use it again: anew node add {report.node}",
        )


def desired_state(context: Context, node: str, fabric: Fabric) -> DesiredState:
    """What a node should hold now."""
    revision = context.catalog.revision()
    return DesiredState(
        revision=revision,
        fabric=fabric.name,
        log=fabric.log_location,
        deep_store=fabric.deep_store.root_uri,
        stores=desired_stores(context, node, fabric.name),
        tables=desired_tables(context, node, fabric.name),
    )
