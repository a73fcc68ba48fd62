"""The shapes of the face: what ``--json`` prints of stores, rebuilds and the cluster's health."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from anew.api.models import LoopTrouble, NodeReport, NodeView, Problem, ReplicaReport, ReplicaState, StatusView
from anew.controller.context import Context
from anew.controller.drivers import driver_problems, driver_view, failure_problems
from anew.controller.nodes import live_reports, node_views, replicas_of
from anew.controller.nodes import reports as reports_of
from anew.controller.pausing import cluster_paused
from anew.controller.readiness import coverage_of, load_progress
from anew.controller.scheduling import decision_of
from anew.controller.tables.views import stale_counts, table_problems, table_rebuild_view, table_view
from anew.core.errors import NotFound
from anew.core.lifecycle import missing_feeds
from anew.core.partitioners import is_custom
from anew.core.plan import Plan
from anew.core.rebuild import Rebuild
from anew.core.store import SERVABLE, Frozen, Store, Version, VersionStatus, pending_changes, source_digest
from anew.core.tables.table import Table


def store_view(context: Context, store: Store, number: int | None) -> dict[str, Any]:
    """The ``store`` shape; with a number only that version is listed.

    Raises:
        NotFound: ``unknown_version``.
    """
    reports = live_reports(context, store.fabrics)
    view = _store_view(store, reports, context.catalog.dead_letter_counts().get(store.uid, 0), number)
    return view | {"schedule": _schedule_view(context, store, [r for found in reports.values() for r in found])}


def _schedule_view(context: Context, store: Store, reports: list[NodeReport]) -> dict[str, Any] | None:
    """What the schedule says now and why; None without one."""
    if store.config.repush_schedule is None:
        return None
    decision = decision_of(context, store, reports)
    state = decision.state
    return {
        "schedule": store.config.repush_schedule,
        "when": store.config.repush_when,
        "due_ms": decision.due_ms,
        "next_ms": decision.next_ms,
        "reasons": list(decision.reasons),
        "failures": state.failures,
        "under_way": state.request_id,
        "held": store.schedule_held,
    }


def store_views(context: Context) -> list[dict[str, Any]]:
    """The ``store`` shape of every store."""
    reports = live_reports(context, context.fabrics)
    letters = context.catalog.dead_letter_counts()
    return [_store_view(store, reports, letters.get(store.uid, 0), None) for store in context.catalog.stores()]


def rebuild_view(context: Context, rebuild: Rebuild) -> dict[str, Any]:
    """The ``rebuild`` shape."""
    fingerprint = rebuild.fingerprint
    return {
        "id": rebuild.id,
        "kind": rebuild.kind.value,
        "store": rebuild.store,
        "version": rebuild.version,
        "status": rebuild.status.value,
        "stage": rebuild.stage.value,
        "plan": _shown_plan(rebuild.plan),
        "ledger": None if rebuild.ledger is None else rebuild.ledger.counts(),
        "fingerprint": None
        if fingerprint is None
        else {"source": f"{fingerprint.source:016x}", "target": f"{fingerprint.target:016x}"},
        "timings": rebuild.timings,
        "records_per_s": rebuild.records_per_s,
        "error": rebuild.error,
        "epoch": rebuild.epoch,
        "driver": driver_view(context, rebuild),
        "progress": load_progress(context, rebuild).model_dump(),
        "created_at_ms": rebuild.created_at_ms,
        "ended_at_ms": rebuild.ended_at_ms,
    }


def status_view(context: Context) -> StatusView:
    """What is unhealthy, since when, and which command comes next."""
    nodes = node_views(context)
    stores = context.catalog.stores()
    reports = live_reports(context, context.fabrics)
    problems = [
        *_node_problems(nodes, context),
        *_loop_problems(context, reports),
        *_fault_problems(reports),
        *_step_problems(context),
        *(p for store in stores for p in _store_problems(store, reports)),
    ]
    tables = context.catalog.tables()
    for table in tables:
        problems += table_problems(context, table, reports[table.fabric])
    running = context.catalog.rebuilds(store_uid=None, running_only=True)
    of_tables = context.catalog.table_rebuilds(table_uid=None, running_only=True)
    problems += [p for one in running for p in driver_problems(context, one, one.store)]
    problems += [p for one in of_tables for p in driver_problems(context, one, one.table)]
    problems += failure_problems(context)
    letters = context.catalog.dead_letter_counts()
    return StatusView(
        healthy=not problems,
        problems=tuple(problems),
        notes=(*_pause_notes(context, stores), *_stale_notes(context, tables)),
        controller={"release": context.release, "revision": context.catalog.revision()},
        nodes=nodes,
        stores=tuple(_store_view(store, reports, letters.get(store.uid, 0), None) for store in stores),
        tables=tuple(table_view(context, table) for table in tables),
        rebuilds=(
            *(rebuild_view(context, one) for one in running),
            *(table_rebuild_view(context, one) for one in of_tables),
        ),
    )


def _pause_notes(context: Context, stores: list[Store]) -> list[Problem]:
    """What was paused or held: as somebody asked for, so that it is not unhealthy, and easily forgotten."""
    paused = cluster_paused(context)
    notes = [] if paused is None else [Problem(what=f"everything is {paused}", since_ms=None, hint="anew unpause")]
    for store in stores:
        go_on = f"anew unpause --store {store.name}"
        if store.paused is not None:
            notes.append(Problem(what=f"{store.name} is paused: {store.paused}", since_ms=None, hint=go_on))
        if store.schedule_held is not None:
            what = f"scheduled repushes of {store.name} are held: {store.schedule_held}"
            notes.append(Problem(what=what, since_ms=None, hint=go_on))
        pending = pending_changes(store.config, _running_config(store))
        if pending and store.current and max(store.current.values()) > 0:
            what = f"{store.name} waits for a new version: {', '.join(change['setting'] for change in pending)}"
            notes.append(Problem(what=what, since_ms=None, hint=f"anew repush {store.name}"))
    return notes


def _stale_notes(context: Context, tables: list[Table]) -> list[Problem]:
    """Tables with segments of another configuration: they are read as they are to be, only slower."""
    notes = []
    for table in tables:
        stale, failed = stale_counts(context, table)
        what, hint = f"{table.name} has {stale} stale segments", f"anew table refresh {table.name}"
        if failed:
            what += f"; {failed} of them failed with this configuration"
            hint = f"anew table segments {table.name} --stale says why; then: {hint} --retry-failed"
        if stale:
            notes.append(Problem(what=what, since_ms=None, hint=hint))
    return notes


def _running_config(store: Store) -> Frozen | None:
    running = store.version(max(store.current.values(), default=0))
    return None if running is None else running.config


def _store_view(
    store: Store, reports: dict[str, list[NodeReport]], dead_letters: int, number: int | None
) -> dict[str, Any]:
    if number is not None and store.version(number) is None:
        raise NotFound("unknown_version", f"{store.name} has no version {number}", found=number)
    running = store.version(max(store.current.values(), default=0))
    pending = pending_changes(store.config, None if running is None else running.config)
    return {
        "name": store.name,
        "uid": store.uid,
        "key_schema": store.key_schema,
        "value_schema": store.schemas[store.newest_schema_id],
        "key_schema_id": store.key_schema_id,
        "value_schema_id": store.newest_schema_id,
        "value_schemas": {str(number): schema for number, schema in sorted(store.schemas.items())},
        "config": _shown_config(store.config),
        "pending": pending,
        "stale": bool(pending),
        "paused": store.paused,
        "notes": _notes(store),
        "dead_letters": dead_letters,
        "fabrics": {fabric: _fabric_view(store, fabric, reports.get(fabric, []), number) for fabric in store.fabrics},
    }


def _notes(store: Store) -> list[str]:
    """What the configuration costs, and what is held back."""
    notes = []
    if is_custom(store.config.partitioner) and store.feeds:
        few = math.gcd(store.config.partitions, store.config.rt_partitions)
        notes.append(
            f"under {store.config.partitioner} each replica reads all {store.config.rt_partitions} partitions of a "
            f"feed; under xxhash64 it would read {store.config.rt_partitions // few}"
        )
    if store.schedule_held is not None:
        go_on = f"anew unpause --store {store.name}"
        notes.append(f"scheduled repushes are held: {store.schedule_held}; to let them go on: {go_on}")
    return notes


def _fabric_view(store: Store, fabric: str, reports: list[NodeReport], number: int | None) -> dict[str, Any]:
    current = store.version(store.current.get(fabric, 0))
    shown = [v for v in store.versions if fabric in v.statuses and number in (None, v.number)]
    return {
        "current": store.current.get(fabric, 0),
        "versions": [_version_view(version, fabric) | _lag(store, version, reports) for version in shown],
        **(_NO_LAG if current is None else _lag(store, current, reports)),
    }


_NO_LAG: dict[str, Any] = {"lag_records": 0, "lag_seconds": 0.0}


def _lag(store: Store, version: Version, reports: list[NodeReport]) -> dict[str, Any]:
    """How far a version's replicas are behind, by the one that is furthest; 0 where none reports."""
    replicas = replicas_of(reports, store, version).values()
    return {
        "lag_records": max((replica.lag_records for replica in replicas), default=0),
        "lag_seconds": round(max((replica.lag_ms for replica in replicas), default=0) / 1000, 3),
    }


def _shown_config(config: Frozen) -> dict[str, Any]:
    """The configuration with the source of a partitioner as its hash."""
    return config.model_dump() | {"partitioner_source": source_digest(config)}


def _shown_plan(plan: Plan) -> dict[str, Any]:
    """The plan with the sources of partitioners as their hashes; its id is that of the whole."""
    shown = plan.model_dump(mode="json")
    for side, config in (("source", plan.source.config), ("target", plan.target.config)):
        if config is not None:
            shown[side]["config"]["partitioner_source"] = source_digest(config) or ""
    return shown


def _version_view(version: Version, fabric: str) -> dict[str, Any]:
    manifest = version.manifest
    return {
        "number": version.number,
        "status": version.statuses[fabric].value,
        "kind": version.kind.value,
        "source_version": version.source_version,
        "rows": None if manifest is None else manifest.rows,
        "bytes": None if manifest is None else manifest.bytes,
        "config": _shown_config(version.config),
        "config_hash": version.config_hash,
        "created_at": version.created_at_ms,
        "rebuild": version.rebuild,
        "error": version.error,
        "start": version.start.to_json(),
    }


_LOOK = "anew node list"
_FEW = 10
_PATIENCE_MS = 60_000
"""What fails or waits for longer is told."""


def _last_fault(context: Context, node: NodeView) -> str:
    """What a silent node said last of its own troubles: likely the reason."""
    said = [report for report in reports_of(context) if report.node == node.id]
    whys = [why for report in said for why in (*(f.what for f in report.faults), *(t.error for t in report.loops))]
    return f"; the last that it said: {whys[0]}" if whys else ""


def _node_problems(nodes: tuple[NodeView, ...], context: Context) -> list[Problem]:
    problems = [
        Problem(
            what=f"node {node.id} does not report{_last_fault(context, node)}", since_ms=node.last_seen_ms, hint=_LOOK
        )
        for node in nodes
        if not node.alive
    ]
    for fabric in context.fabrics:
        if not any(node.alive for node in nodes if node.fabric == fabric):
            problems.append(Problem(what=f"{fabric} has no live node", since_ms=None, hint="anew up"))
    return problems


def _loop_problems(context: Context, reports: dict[str, list[NodeReport]]) -> list[Problem]:
    """Loops of this controller and of live nodes that do not get on."""
    ours = [("the controller", LoopTrouble(**asdict(trouble))) for trouble in context.loops.troubles()]
    theirs = [(report.node, trouble) for found in reports.values() for report in found for trouble in report.loops]
    return [
        Problem(
            what=f"{process}: its loop {trouble.loop} does not get on: {trouble.error}",
            since_ms=trouble.since_ms,
            hint="what is broken is in the error; the process goes on by itself once it is mended",
        )
        for process, trouble in (*ours, *theirs)
    ]


def _step_problems(context: Context) -> list[Problem]:
    """Steps of this controller's rounds that have failed for longer than a moment."""
    oldest_ms = context.clock() - _PATIENCE_MS
    return [
        Problem(
            what=f"the controller does not get on with {of}: {failing.error}",
            since_ms=failing.since_ms,
            hint="what is broken is in the error; it is tried again in every round",
        )
        for of, failing in sorted(context.failing.copy().items())
        if failing.since_ms <= oldest_ms
    ]


def _fault_problems(reports: dict[str, list[NodeReport]]) -> list[Problem]:
    """What live nodes say is wrong with them as a whole."""
    return [
        Problem(what=f"{report.node}: {fault.what}", since_ms=fault.since_ms, hint=fault.hint)
        for found in reports.values()
        for report in found
        for fault in report.faults
    ]


def _store_problems(store: Store, reports: dict[str, list[NodeReport]]) -> list[Problem]:
    problems = [
        Problem(what=f"the topic of {feed.id} is not made yet", since_ms=None, hint="is the log there? anew doctor")
        for feed in store.feeds
        if not feed.ready
    ]
    problems += [
        Problem(
            what=f"the topic of {feed.id} has {feed.partitions_in_log} partitions, and was made with {feed.partitions}",
            since_ms=None,
            hint="nobody reads the others: let producers use the first ones, and write again what lies in the others",
        )
        for feed in store.feeds
        if feed.partitions_in_log is not None
    ]
    for version in store.versions:
        for fabric, status in version.statuses.items():
            if status in SERVABLE:
                problems += _replica_problems(store, version, fabric, reports.get(fabric, []))
            if status is VersionStatus.DEFERRED:
                problems.append(_waiting_problem(store, version, fabric))
    return problems


def _stuck_problems(
    store: Store, version: Version, replicas: list[tuple[tuple[str, int], ReplicaReport]]
) -> list[Problem]:
    """Replicas that serve and have waited for longer than a moment: what they wait for is in no error of theirs."""
    stuck = [
        (replica.stuck_ms, node, partition, replica.error)
        for (node, partition), replica in replicas
        if replica.state is not ReplicaState.ERROR and replica.error_code is None and replica.stuck_ms > _PATIENCE_MS
    ]
    if not stuck:
        return []
    longest_ms, node, partition, error = max(stuck, key=lambda one: one[0])
    first = f"{version.name_in(store.name)}/{partition} on {node}"
    more = f" ({len(stuck) - 1} more)" if len(stuck) > 1 else ""
    return [
        Problem(
            what=f"{first} has not got on for {longest_ms // 1000} s: {error}{more}",
            since_ms=None,
            hint=f"anew store show {store.name}",
        )
    ]


def _waiting_problem(store: Store, version: Version, fabric: str) -> Problem:
    lacks = missing_feeds(store, version, fabric)
    give_up = f"it lacks writes that {store.name} took since: anew rebuild kill {version.rebuild}"
    return Problem(
        what=f"{version.name_in(store.name)} waits to be swapped: {version.error}",
        since_ms=version.since_ms[fabric],
        hint=give_up if lacks else f"anew swap {store.name} {version.number}",
    )


def _replica_problems(store: Store, version: Version, fabric: str, reports: list[NodeReport]) -> list[Problem]:
    found = replicas_of(reports, store, version)
    name, problems = version.name_in(store.name), _stuck_problems(store, version, list(found.items()))
    # Those of which no node reports a replica at all are told below.
    told = {partition for _, partition in found}
    missing = [partition for partition in coverage_of(found, version, fabric).missing if partition in told]
    if missing and version.statuses[fabric] is VersionStatus.CURRENT:
        which = ", ".join(map(str, missing[:_FEW])) + (
            f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
        )
        problems.append(
            Problem(
                what=f"{name}: no node has loaded what can be read of partition {which}",
                since_ms=None,
                hint=f"anew store show {store.name}; anew node list",
            )
        )
    for partition, nodes in version.assignment.get(fabric, {}).items():
        alive = [node for node in nodes if (node, partition) in found]
        # Not in the state error alone: one that waits for room on its disk does not answer either.
        broken = [n for n in alive if found[n, partition].state is ReplicaState.ERROR or found[n, partition].error_code]
        for node in broken:
            problems.append(
                Problem(
                    what=f"{name}/{partition} on {node}: {found[node, partition].error}",
                    since_ms=None,
                    hint=f"anew store show {store.name}",
                )
            )
        wanted = max(len(nodes), version.config.replicas)
        if version.statuses[fabric] is VersionStatus.CURRENT and len(alive) < wanted:
            problems.append(
                Problem(
                    what=f"{name}/{partition} has {len(alive)} of {wanted} replicas",
                    since_ms=None,
                    hint="anew node list",
                )
            )
    return problems
