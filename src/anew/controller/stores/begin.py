"""What the plan of a push or a repush begins: a version in the making, if nothing that the plan saw has moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anew.catalog.change import PutRebuild, PutStore
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import alive_nodes
from anew.controller.engine.records import find_of
from anew.controller.engine.subjects import Begun
from anew.controller.stores.feeds import is_to_be_made
from anew.controller.stores.records import store_named
from anew.controller.stores.versiontopics import announced
from anew.core.assignment import assign
from anew.core.errors import Failed, Refused
from anew.core.rebuild import RebuildStatus, end
from anew.core.stores import lifecycle
from anew.core.stores.displacing import displaced
from anew.core.stores.plan import Plan
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import Store, Version, VersionInFabric, VersionStatus
from anew.log.interface import Log, Offsets, TopicPartition, topic_partition
from anew.segments.layout import version_path


def begin(context: Context, plan: Plan, opening: Mapping[str, Any]) -> Begun[StoreRebuild]:
    """The version of a plan and the record of its rebuild.

    Raises:
        Refused: ``rebuild_running``, ``plan_outdated``, ``truncated_above_start``, ``topic_lost``, ``no_nodes``.
        NotFound: ``unknown_store``.
    """
    store = store_named(context, plan.store)
    lifecycle.check_fence(store, plan)
    _check_logs(context, store, plan)
    made = _version(context, store, plan, str(opening["id"]))
    for fabric, topic in announced(context, made.name_in(store.name), made.config, tuple(made.fabrics)).items():
        made = made.moved((fabric,), topic=topic)
    record = StoreRebuild(**opening, store=store.name, store_uid=store.uid, version=made.number)
    in_the_way = displaced(store, plan.kind, plan.target.fabrics)
    after = lifecycle.begin(store, plan, made, context.clock())
    return Begun(
        record,
        (PutStore(after, store.revision), *(_displace(context, version, plan, made) for version in in_the_way)),
        {"killed": ", ".join(version.rebuild for version in in_the_way)} if in_the_way else {},
    )


def _displace(context: Context, version: Version, plan: Plan, made: Version) -> PutRebuild:
    """The end of a rebuild that is in the way of another one; its driver stops at its next sign of life."""
    running = find_of(context, version.rebuild, StoreRebuild)
    why = lifecycle.displaced_by(plan.kind, made.number)
    return PutRebuild(end(running, RebuildStatus.KILLED, why, context.clock()), running.revision)


def _version(context: Context, store: Store, plan: Plan, rebuild_id: str) -> Version:
    config, now_ms, number = plan.target.config, context.clock(), plan.target.version
    fabrics = {}
    for fabric in plan.target.fabrics:
        nodes = alive_nodes(context, fabric)
        if not nodes:
            raise Refused(
                "no_nodes",
                f"no node of {fabric} may hold replicas",
                found=0,
                expected="at least one that is alive and not drained",
                hint="anew node list",
            )
        fabrics[fabric] = VersionInFabric(
            status=VersionStatus.BUILDING,
            since_ms=now_ms,
            start=plan.target.start,
            swap_from=store.current.get(fabric, 0),
            assignment=assign(config.partitions, config.replicas, nodes, {}),
        )
    return Version(
        number=number,
        kind=plan.kind,
        config=config,
        config_hash=config.hash,
        fabrics=fabrics,
        created_at_ms=now_ms,
        rebuild=rebuild_id,
        epoch=1,
        path=version_path(store.uid, number, rebuild_id, 1),
        source_version=plan.source.version,
        feeds=plan.target.feeds,
        stop=plan.target.stop,
        ttl_floor_ms=plan.target.ttl_floor_ms,
        tombstone_floor_ms=plan.target.tombstone_floor_ms,
        timed=plan.target.timed,
        defer_swap=plan.target.defer_swap,
        **_inherited(plan, store.version(plan.source.version or 0)),
    )


def _inherited(plan: Plan, source: Version | None) -> dict[str, Any]:
    """What a version has from its source: which feeds of a job it replaces, and that no push brought its rows."""
    if source is None:
        return {"unpushed": plan.source.input is not None and not plan.source.input.paths}
    base = source.manifest
    was_empty = base is not None and base.rows + base.tombstones == 0
    return {"replaces": source.replaces, "unpushed": source.unpushed or was_empty}


def _check_logs(context: Context, store: Store, plan: Plan) -> None:
    """Each feed's topic is still the one that the plan saw, and holds all that the plan reads (R2, R3)."""
    for feed in store.feeds:
        log = context.fabrics[feed.fabric].log
        for at in feed.feed_partitions():
            start = plan.source.start.get(at)
            if start is None or is_to_be_made(feed):
                continue
            present = _offsets(log, topic_partition(feed, at.partition))
            stop = plan.source.end.get(at, start)
            if not (present.begin <= start and stop <= present.end):
                raise Refused(
                    "truncated_above_start" if present.begin > start else "log_lost_tail",
                    f"the log does not hold what the plan reads of {at}",
                    found=f"[{present.begin}, {present.end})",
                    expected=f"[{start}, {stop})",
                    hint="make a new plan with --dry-run",
                )


def _offsets(log: Log, topic: TopicPartition) -> Offsets:
    try:
        return log.offsets(topic)
    except Failed as error:
        if error.code != "topic_lost":
            raise
        raise Refused(
            "topic_lost",
            f"the topic {topic.topic} is not the one that the store's feed names",
            found=error.found,
            expected=topic.uid,
            hint="its records are lost; a topic that was made again is another feed",
        ) from error
