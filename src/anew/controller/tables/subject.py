"""Tables as a subject of rebuilds: a refresh, a load or a repair commits segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from anew.api.rebuilds import TableStart
from anew.catalog.change import Put, PutTable
from anew.controller.engine.context import Context
from anew.controller.engine.subjects import Begun, Step, Subject
from anew.controller.tables.commits import finished
from anew.controller.tables.planning import segments_in_work
from anew.controller.tables.reclaim import RECLAIMS, attempt_left
from anew.controller.tables.records import table_named, table_of
from anew.core.errors import Refused
from anew.core.rebuild import Progress
from anew.core.schedule import ScheduleState
from anew.core.tables.plan import TablePlan, TableRebuildKind
from anew.core.tables.rebuild import TABLE, TableRebuild, refresh_view
from anew.core.tables.table import Table

_MOST_NAMED = 5


class TableSubject(Subject[TableRebuild, TablePlan]):
    """Tables."""

    name: ClassVar[str] = TABLE
    record = TableRebuild
    plan = TablePlan
    start = TableStart
    reclaims = RECLAIMS

    def begin(self, context: Context, plan: TablePlan, opening: Mapping[str, Any]) -> Begun[TableRebuild]:
        """See `Subject.begin`."""
        table = table_named(context, plan.table)
        _check_fence(context, table, plan)
        total_bytes = sum(planned.bytes for planned in plan.segments)
        progress = Progress(total=len(plan.segments), unit="segments", total_bytes=total_bytes)
        record = TableRebuild(**opening, table=table.name, table_uid=table.uid, progress=progress)
        # So that of two refreshes that begin at once the second sees what the first took.
        return Begun(record, (PutTable(table, table.revision),), {"segments": len(plan.segments)})

    def progressed(self, rebuild: TableRebuild, progress: Progress) -> TableRebuild:
        """Progress is counted here, commit by commit; what the driver counts is Spark's tasks."""
        return rebuild

    def document(self, context: Context, rebuild: TableRebuild) -> Table:
        """The table."""
        return table_of(context, rebuild)

    def finished(self, context: Context, rebuild: TableRebuild) -> Step[TableRebuild]:
        """See `anew.controller.tables.commits.finished`."""
        return finished(context, rebuild)

    def taken_over(self, context: Context, before: TableRebuild, after: TableRebuild) -> Step[TableRebuild]:
        """The new driver goes on with the segments that are not done."""
        return after, attempt_left(context, before)

    def ended(self, context: Context, before: TableRebuild, ended: TableRebuild) -> tuple[Put, ...]:
        """What it committed stays."""
        return attempt_left(context, before)

    def uid_of(self, context: Context, name: str) -> str:
        """See `Subject.uid_of`."""
        return table_named(context, name).uid

    def well_since(self, context: Context) -> Mapping[str, int]:
        """When each was made: a rebuild that went well has its failure forgotten."""
        return {table.name: table.created_at_ms for table in context.catalog.tables()}

    def schedules(self, context: Context) -> Iterable[ScheduleState]:
        """See `Subject.schedules`."""
        return (t.schedule_state for t in context.catalog.tables() if t.schedule_state is not None)

    def view(self, context: Context, rebuild: TableRebuild) -> dict[str, Any]:
        """How many rows it read and wrote, and the ``refresh`` shape."""
        ledger = {name: getattr(rebuild, name) for name in ("read", "filtered", "skipped", "written")}
        done = context.catalog.segments_done(rebuild.id)
        return {"ledger": ledger, "refresh": refresh_view(rebuild, done)}

    def again(self, rebuild: TableRebuild) -> str:
        """See `Subject.again`."""
        return f"start a new one: anew table refresh {rebuild.table}"


def _check_fence(context: Context, table: Table, plan: TablePlan) -> None:
    fence = plan.fence
    found = [] if table.uid == fence.table_uid else [f"another table of the name {table.name}"]
    if table.config_hash != fence.config_hash:
        found.append(f"configuration {table.config_hash}")
    if plan.kind is not TableRebuildKind.TABLE_LOAD:
        taken = segments_in_work(context, table.uid)
        found += [f"{p.segment} is in {taken[p.segment]}" for p in plan.segments if p.segment in taken][:_MOST_NAMED]
    if found:
        raise Refused(
            "plan_outdated",
            "what the plan was made from has changed",
            found="; ".join(found),
            expected=f"configuration {fence.config_hash}, and segments that no other refresh works on",
            hint="make a new plan",
        )
