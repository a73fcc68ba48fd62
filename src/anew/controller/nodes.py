"""Nodes: what each should hold, and what each says that it holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from anew.api.models import (
    DesiredState,
    DesiredStore,
    DesiredVersion,
    NodeReport,
    NodeView,
    ReplicaReport,
    ReplicaState,
)
from anew.catalog.change import Change, NodeRecord, PutDeadLetters
from anew.controller.context import Context, Fabric
from anew.controller.draining import drained, removed
from anew.controller.settling import settle
from anew.controller.tables.serving import desired_tables
from anew.core.admission import Rejection
from anew.core.errors import InvalidRequest, Refused, Unreachable
from anew.core.feed import FeedPartition, PositionMap
from anew.core.store import SERVABLE, Store, Version


def reports(context: Context) -> list[NodeReport]:
    """The last report of each node, alive or not."""
    return context.hearing.reports(heard_nodes(context))


def heard_nodes(context: Context) -> list[NodeRecord]:
    """All nodes, each as it was heard last: also what the catalog has no room for."""
    return context.hearing.newest(context.catalog.nodes())


def live_reports(
    context: Context, fabrics: Iterable[str], records: Collection[NodeRecord] | None = None
) -> dict[str, list[NodeReport]]:
    """Fabric → the last reports of its nodes that are alive, by the catalog's records, which are read unless given."""
    oldest_ms = context.clock() - int(context.limits.node_alive_seconds * 1000)
    known = heard_nodes(context) if records is None else records
    alive = [record for record in known if record.last_seen_ms >= oldest_ms]
    return {fabric: context.hearing.reports(r for r in alive if r.fabric == fabric) for fabric in fabrics}


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
    flags = context.catalog.flags()
    oldest_ms = context.clock() - int(context.limits.node_alive_seconds * 1000)
    views = []
    for record in heard_nodes(context):
        if removed(flags, record.id):
            # A report that crosses the removal brings the record back for a moment.
            continue
        report = context.hearing.report(record)
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


def take_report(context: Context, report: NodeReport) -> bool:
    """Keep what a node says, and record its dead letters; whether it says something else than before.

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
    is_news = context.hearing.is_news(record)
    try:
        context.catalog.put_node(record)
    except Exception:
        # On a full disk this is how anybody hears that it is full.
        context.hearing.unkept(record)
        raise
    context.hearing.kept(record.id)
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
        context.catalog.commit(Change(operation, (PutDeadLetters(uid, letters),)))
    settle(context, report.unknown_schemas)
    return is_news


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
    stores = [_desired_store(store, node, fabric.name) for store in context.catalog.stores()]
    return DesiredState(
        revision=revision,
        fabric=fabric.name,
        log=fabric.log_location,
        deep_store=fabric.deep_store.root_uri,
        stores=tuple(store for store in stores if store.versions),
        tables=desired_tables(context, node, fabric.name),
    )


def reached_position(context: Context, store: Store, fabric: str) -> PositionMap:
    """Up to where every replica of the fabric's current version has applied each feed partition that it reads.

    Empty while a replica does not report.
    """
    version = store.version(store.current.get(fabric, 0))
    if version is None:
        return PositionMap()
    found = replicas_of(live_reports(context, (fabric,))[fabric], store, version)
    wanted = [(node, p) for p, nodes in version.assignment.get(fabric, {}).items() for node in nodes]
    if any(replica not in found for replica in wanted):
        return PositionMap()
    reached: dict[FeedPartition, int] = {}
    for replica in wanted:
        for at, offset in found[replica].position.items():
            reached[at] = min(offset, reached.get(at, offset))
    return PositionMap(reached)


def replicas_of(found: list[NodeReport], store: Store, version: Version) -> dict[tuple[str, int], ReplicaReport]:
    """(node, partition) → report, of one version; a partition's sub-partitions are reported as one.

    A partition of which not all sub-partitions are reported is left out.
    """
    parts: dict[tuple[str, int], list[ReplicaReport]] = defaultdict(list)
    for report in found:
        for replica in report.replicas:
            if replica.store_uid == store.uid and replica.version == version.number:
                parts[report.node, replica.partition].append(replica)
    factor = version.config.amplification_factor
    return {key: _as_one(subs) for key, subs in parts.items() if len(subs) == factor}


_WORST_FIRST = (ReplicaState.ERROR, ReplicaState.PENDING, ReplicaState.LOADING, ReplicaState.APPLYING)


def _as_one(subs: list[ReplicaReport]) -> ReplicaReport:
    """A partition as far as the least of its sub-partitions is."""
    if len(subs) == 1:
        return subs[0]
    errors = [f"sub-partition {sub.sub_partition}: {sub.error}" for sub in subs if sub.error is not None]
    position: dict[FeedPartition, int] = {}
    for sub in subs:
        for at, offset in sub.position.items():
            position[at] = min(offset, position.get(at, offset))
    return subs[0].model_copy(
        update={
            "state": min((sub.state for sub in subs), key=_WORST_FIRST.index),
            "position": PositionMap(position),
            "store_revision": min(sub.store_revision for sub in subs),
            "lag_records": sum(sub.lag_records for sub in subs),
            "lag_ms": max(sub.lag_ms for sub in subs),
            "rows": sum(sub.rows for sub in subs),
            "records_per_s": sum(sub.records_per_s for sub in subs),
            "error": "; ".join(errors) if errors else None,
            "error_code": next((sub.error_code for sub in subs if sub.error_code is not None), None),
            "stuck_ms": max(sub.stuck_ms for sub in subs),
            "arrived": all(sub.arrived for sub in subs),
        }
    )


def _desired_store(store: Store, node: str, fabric: str) -> DesiredStore:
    versions = []
    for version in store.versions:
        if version.manifest is None or version.statuses.get(fabric) not in SERVABLE:
            continue
        assigned = version.assignment.get(fabric, {})
        partitions = tuple(partition for partition, nodes in assigned.items() if node in nodes)
        if partitions:
            versions.append(_desired_version(version, partitions))
    return DesiredStore(
        uid=store.uid,
        name=store.name,
        revision=store.revision,
        current=store.current.get(fabric, 0),
        key_schema=store.key_schema,
        schemas=store.schemas,
        feeds=store.feeds,
        reads=store.config.reads,
        versions=tuple(versions),
    )


def _desired_version(version: Version, partitions: tuple[int, ...]) -> DesiredVersion:
    if version.manifest is None:
        raise AssertionError("a version without a manifest is served by nobody")
    return DesiredVersion(
        number=version.number,
        config=version.config,
        feeds=version.feeds,
        start=version.start,
        stop=version.stop,
        ttl_floor_ms=version.ttl_floor_ms,
        tombstone_floor_ms=version.tombstone_floor_ms,
        manifest=version.manifest,
        partitions=partitions,
    )
