"""The shapes of the face that are about tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from anew.api.models import NodeReport, Problem
from anew.api.pages import Page, page_of
from anew.api.tables.segments import SegmentReport, SegmentState
from anew.api.tables.views import CopyView, SegmentView, TableSchedule, TableView, UnknownCopy
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import live_reports
from anew.controller.tables.planning import Explainer
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table


def table_view(context: Context, table: Table) -> TableView:
    """The ``table`` shape: columns, settings, how much it holds, how much of it is stale."""
    size = context.catalog.table_size(table.uid)
    stale, failed = stale_counts(context, table)
    state = table.schedule_state
    return TableView(
        name=table.name,
        uid=table.uid,
        fabric=table.fabric,
        columns=table.columns,
        config=table.settings,
        config_hash=table.config_hash,
        segments=size.segments,
        rows=size.rows,
        bytes=size.bytes,
        stale=stale,
        failed=failed,
        created_at=table.created_at_ms,
        schedule=None
        if table.settings.refresh.schedule is None
        else TableSchedule(
            schedule=table.settings.refresh.schedule,
            reasons=() if state is None else tuple(state.reasons),
            failures=0 if state is None else state.failures,
            under_way=None if state is None else state.request_id,
        ),
    )


def stale_counts(context: Context, table: Table) -> tuple[int, int]:
    """How many segments of a table are stale, and how many of these failed with the wanted configuration."""
    stale = failed = 0
    for segment in context.catalog.stale_segments(table.uid, table.config_hash):
        stale, failed = stale + 1, failed + (segment.failed_hash == table.config_hash)
    return stale, failed


def segment_page(context: Context, table: Table, after: str, limit: int, *, stale_only: bool) -> Page[SegmentView]:
    """The ``segments`` shape of some segments, the next ones by name."""
    other_than = table.config_hash if stale_only else None
    read = context.catalog.segments_page(table.uid, after, limit + 1, other_than=other_than)
    found = page_of(read, limit, lambda segment: segment.name)
    why, reports = Explainer(context, table.config), live_reports(context, (table.fabric,))[table.fabric]
    copies = _reported(context, table, reports, [segment.name for segment in found.items])
    return Page(items=tuple(_segment_view(table, segment, why, copies) for segment in found.items), next=found.next)


def table_problems(context: Context, table: Table, reports: list[NodeReport]) -> list[Problem]:
    """What is unhealthy about a table: segments that failed on nodes, or that too few nodes serve."""
    found, problems = _reported(context, table, reports), []
    for segment in context.catalog.segments(table.uid):
        copies = found.get(segment.name, {})
        problems += [
            Problem(
                what=f"{table.name}/{segment.name} on {node}: {copy.error}",
                since_ms=None,
                hint=f"anew table segments {table.name}",
            )
            for node, copy in copies.items()
            if copy.state is SegmentState.ERROR
        ]
        serving = sum(copy.state is SegmentState.SERVING for copy in copies.values())
        if serving < table.settings.replicas:
            problems.append(
                Problem(
                    what=f"{table.name}/{segment.name} is served by {serving} of {table.settings.replicas} nodes",
                    since_ms=None,
                    hint="anew node list",
                )
            )
    return problems


def _segment_view(
    table: Table, segment: Segment, why: Explainer, found: dict[str, dict[str, SegmentReport]]
) -> SegmentView:
    build, stale = segment.build, segment.build.config_hash != table.config_hash
    copies = found.get(segment.name, {})
    return SegmentView(
        name=segment.name,
        rows=build.contents.rows,
        bytes=build.bytes,
        build=build.id,
        path=build.path,
        sha256=build.sha256,
        config_hash=build.config_hash,
        wanted_hash=table.config_hash,
        stale=stale,
        reasons=why.reasons(build.config_hash) if stale else (),
        created_at=segment.created_at_ms,
        pushed_at=segment.pushed_at_ms,
        columns=build.contents.columns,
        partitions=build.contents.partitions,
        failure=segment.failure,
        replicas=tuple(_copy_view(node, copies.get(node)) for node in table.nodes_of(segment.slot)),
    )


def _copy_view(node: str, copy: SegmentReport | None) -> CopyView | UnknownCopy:
    if copy is None:
        return UnknownCopy(node=node, error="it does not answer")
    return CopyView(
        node=node,
        build=copy.build,
        config_hash=copy.config_hash,
        state=copy.state,
        error=copy.error,
        reload=copy.reload,
        rebuilt_rows=copy.rebuilt_rows,
    )


def _reported(
    context: Context, table: Table, reports: list[NodeReport], names: Collection[str] | None = None
) -> dict[str, dict[str, SegmentReport]]:
    """Segment → node → what the node says of it; only of those named, unless None."""
    found: dict[str, dict[str, SegmentReport]] = {}
    for report in reports:
        copies = context.node_reports.derived(report, _by_table).get(table.uid, {})
        for name in copies if names is None else names:
            if name in copies:
                found.setdefault(name, {})[report.node] = copies[name]
    return found


def _by_table(report: NodeReport) -> dict[str, dict[str, SegmentReport]]:
    """Uid of a table → segment → what a node says of it."""
    copies = defaultdict[str, dict[str, SegmentReport]](dict)
    for copy in report.segments:
        copies[copy.table_uid][copy.segment] = copy
    return dict(copies)
