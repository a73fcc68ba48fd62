"""Planning a refresh: the pure choice of `anew.core.tables.choosing`, fed with what is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from anew.api.models import NodeReport
from anew.api.tables.requests import PlanRefresh
from anew.api.tables.segments import SegmentState
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import live_reports
from anew.controller.engine.records import rebuilds_of
from anew.core.plan import PACE_LOOKS_AT, Change, Estimate, pace_of
from anew.core.tables.choosing import Asked, Serving, choose, mode_of
from anew.core.tables.config import Reason, SegmentConfig, differences
from anew.core.tables.plan import PlannedSegment, TableFence, TablePlan, TableRebuildKind, TableTarget
from anew.core.tables.rebuild import TableRebuild, waiting
from anew.core.tables.segment import StaleSegment
from anew.core.tables.table import Table

NO_HASH = "imported: its configuration is not known"
_UNKNOWN = "its configuration is not known any more"


def plan_refresh(context: Context, table: Table, request: PlanRefresh) -> TablePlan:
    """The plan of a refresh of what is stale now."""
    task = table.settings.refresh
    mode = mode_of(
        reload_only=task.reloadOnly if request.reload_only is None else request.reload_only,
        force_reload=task.forceReload if request.force_reload is None else request.force_reload,
    )
    most = task.maxSegments if request.max_segments is None else request.max_segments
    chosen = choose(
        context.catalog.stale_segments(table.uid, table.config_hash),
        table.config_hash,
        Asked(mode, most, request.retry_failed),
        serving_of(context, table),
        segments_in_work(context, table.uid),
    )
    why = Explainer(context, table.config)
    return TablePlan(
        kind=TableRebuildKind.REFRESH,
        table=table.name,
        target=TableTarget(config=table.config, config_hash=table.config_hash, fabric=table.fabric),
        mode=mode,
        changes=why.changes(segment.config_hash for segment in chosen.segments),
        why=_reasons(table, chosen.segments, chosen.left),
        estimate=_estimate(context, table, chosen.segments),
        segments=tuple(
            PlannedSegment(
                segment=segment.name,
                build=segment.build,
                config_hash=segment.config_hash,
                reasons=why.reasons(segment.config_hash),
                bytes=segment.bytes,
                rows=segment.rows,
            )
            for segment in chosen.segments
        ),
        drift=tuple(chosen.drift),
        skipped=chosen.skipped,
        left=chosen.left,
        fence=TableFence(table_uid=table.uid, config_hash=table.config_hash),
        planned_at_ms=context.clock(),
    ).sealed()


class Explainer:
    """Why builds are stale, each configuration compared once (case A9)."""

    def __init__(self, context: Context, wanted: SegmentConfig) -> None:
        """Nothing is compared yet."""
        self._context, self._wanted = context, wanted
        self._known: dict[str | None, tuple[Reason, ...] | None] = {}

    def reasons(self, config_hash: str | None) -> tuple[str, ...]:
        """All reasons in words, none for a build with the wanted configuration."""
        if config_hash is None:
            return (NO_HASH,)
        found = self._differences(config_hash)
        return (_UNKNOWN,) if found is None else tuple(reason.shown for reason in found)

    def changes(self, hashes: Iterable[str | None]) -> tuple[Change, ...]:
        """Every difference of any of these configurations, each once."""
        shown: dict[tuple[str, str, str], Change] = {}
        for config_hash in sorted({each for each in hashes if each is not None}):
            for reason in self._differences(config_hash) or ():
                setting = reason.kind if reason.column is None else f"{reason.kind} {reason.column}"
                key = (setting, str(reason.now), str(reason.wanted))
                shown[key] = Change(setting=setting, now=reason.now, wanted=reason.wanted)
        return tuple(shown.values())

    def _differences(self, config_hash: str) -> tuple[Reason, ...] | None:
        if config_hash not in self._known:
            config = self._context.catalog.table_config(config_hash)
            self._known[config_hash] = None if config is None else differences(config, self._wanted)
        return self._known[config_hash]


def serving_of(context: Context, table: Table) -> Serving:
    """What nodes say that they serve; an assigned node that does not say so serves something unknown (case A8)."""
    return Serving(served_hashes(table, live_reports(context, (table.fabric,))[table.fabric]), table.assignment)


def served_hashes(table: Table, reports: Iterable[NodeReport]) -> dict[str, dict[str, str | None]]:
    """Node → segment → the hash of the copy that it serves, None for a copy that it does not serve yet."""
    return {
        report.node: {
            found.segment: found.config_hash if found.state is SegmentState.SERVING else None
            for found in report.segments
            if found.table_uid == table.uid
        }
        for report in reports
    }


def segments_in_work(context: Context, table_uid: str) -> dict[str, str]:
    """The segments that running refreshes have yet to do, and which refresh (case B9)."""
    running = rebuilds_of(context, table_uid, TableRebuild, running_only=True)
    return {segment: rebuild.id for rebuild in running for segment in _waiting(context, rebuild)}


def _waiting(context: Context, rebuild: TableRebuild) -> list[str]:
    return [planned.segment for planned in waiting(rebuild, context.catalog.segments_done(rebuild.id))]


def _reasons(table: Table, segments: list[StaleSegment], left: int) -> tuple[str, ...]:
    kinds = Counter("without a hash" if segment.config_hash is None else "with another hash" for segment in segments)
    lines = [f"{count} segments {what}" for what, count in sorted(kinds.items())]
    if left:
        lines.append(f"{left} stale segments are left")
    if table.config.partition is not None:
        lines.append("a refresh does not move rows between segments: those of several partitions stay so")
    return tuple(lines)


def _estimate(context: Context, table: Table, segments: list[StaleSegment]) -> Estimate:
    records, size = sum(segment.rows for segment in segments), sum(segment.bytes for segment in segments)
    past = rebuilds_of(context, table.uid, TableRebuild, running_only=False, limit=PACE_LOOKS_AT)
    pace = pace_of((rebuild.read, rebuild.records_per_s) for rebuild in past)
    return Estimate(records=records, bytes=size, seconds=None if pace is None else pace.seconds_for(records))
