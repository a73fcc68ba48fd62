"""``anew status``: what is unhealthy in the whole cluster, since when, and which command comes next."""

from __future__ import annotations

from dataclasses import asdict

from anew.api.models import LoopTrouble, NodeReport, NodeView, Problem, StatusView
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import driver_problems, failure_problems
from anew.controller.engine.listing import rebuild_view
from anew.controller.engine.nodes import live_reports, node_views
from anew.controller.engine.nodes import reports as reports_of
from anew.controller.engine.pause import cluster_paused
from anew.controller.jobs.views import job_problems
from anew.controller.stores.replicas import indexed
from anew.controller.stores.views import store_notes, store_problems, store_views
from anew.controller.tables.views import stale_counts, table_problems, table_view
from anew.core.stores.store import Store
from anew.core.tables.table import Table

_LOOK = "anew node list"
_PATIENCE_MS = 60_000
"""What fails or waits for longer is told."""


def status_view(context: Context) -> StatusView:
    """What is unhealthy, since when, and which command comes next."""
    nodes = node_views(context)
    stores = context.catalog.stores()
    reports = indexed(live_reports(context, context.fabrics))
    problems = [
        *_node_problems(nodes, context),
        *_loop_problems(context, reports),
        *_fault_problems(reports),
        *_step_problems(context),
        *(p for store in stores for p in store_problems(store, reports)),
    ]
    problems += [problem for job in context.catalog.jobs() for problem in job_problems(context, job)]
    tables = context.catalog.tables()
    for table in tables:
        problems += table_problems(context, table, reports[table.fabric])
    running = context.catalog.rebuilds(subject_uid=None, running_only=True)
    problems += [problem for rebuild in running for problem in driver_problems(context, rebuild)]
    problems += failure_problems(context)
    return StatusView(
        healthy=not problems,
        problems=tuple(problems),
        notes=(*_pause_notes(context, stores), *_stale_notes(context, tables)),
        controller={"release": context.release, "revision": context.catalog.revision()},
        nodes=nodes,
        stores=tuple(store_views(context)),
        tables=tuple(table_view(context, table) for table in tables),
        rebuilds=tuple(rebuild_view(context, rebuild) for rebuild in running),
    )


def _pause_notes(context: Context, stores: list[Store]) -> list[Problem]:
    """What was paused or held, or waits, as somebody asked for."""
    paused = cluster_paused(context)
    notes = [] if paused is None else [Problem(what=f"everything is {paused}", since_ms=None, hint="anew unpause")]
    return [*notes, *(note for store in stores for note in store_notes(store))]


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
