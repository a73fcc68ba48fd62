"""A round for one table: slots of lost nodes, and the refresh task."""

from __future__ import annotations

from dataclasses import dataclass

from anew.api.models import NodeReport
from anew.api.tables.requests import PlanRefresh
from anew.catalog.change import Operation
from anew.controller.engine import schedules
from anew.controller.engine.context import Context
from anew.controller.engine.pause import cluster_paused
from anew.controller.tables.planning import plan_refresh
from anew.controller.tables.records import change_table
from anew.controller.tables.serving import reassign
from anew.core.condition import Facts
from anew.core.rebuild import SubjectId
from anew.core.schedule import Circumstances, Decision, ScheduleState, decide
from anew.core.tables.rebuild import TABLE
from anew.core.tables.table import Table

_NO_FACTS = Facts(stale=True, unsorted_share=0.0, tombstone_share=0.0, age_ms=0, rows=0, feed_records=0)


def step_table(context: Context, table: Table, nodes: list[str], reports: list[NodeReport]) -> None:
    """Take a table one step further."""
    table = reassign(context, table, nodes, reports)
    schedules.step(context, RefreshSchedule(context, table))


@dataclass(frozen=True, slots=True)
class RefreshSchedule:
    """The refresh task of a table; see `Scheduled`."""

    context: Context
    table: Table
    what: str = "refresh"

    @property
    def subject(self) -> SubjectId:
        """The table."""
        return SubjectId(TABLE, self.table.uid, self.table.name)

    @property
    def schedule(self) -> str | None:
        """Its setting."""
        return self.table.settings.refresh.schedule

    @property
    def state(self) -> ScheduleState | None:
        """What the table keeps of it."""
        return self.table.schedule_state

    def decide(self) -> Decision:
        """See `Scheduled.decide`."""
        now_ms = self.context.clock()
        return decide(
            self.schedule or "", None, _NO_FACTS, self.state, _circumstances(self.context, self.table), now_ms
        )

    def idle(self) -> str | None:
        """Where nothing is stale."""
        stale = plan_refresh(self.context, self.table, PlanRefresh()).segments
        return None if stale else "no segment is to be refreshed"

    def keep(self, operation: Operation, state: ScheduleState | None) -> bool:
        """See `Scheduled.keep`."""
        judged, kept = self.table, False

        def change(present: Table) -> tuple[Table, tuple[()]]:
            nonlocal kept
            kept = present.schedule_state == judged.schedule_state and present.settings == judged.settings
            return (present.model_copy(update={"schedule_state": state}) if kept else present), ()

        change_table(self.context, judged.uid, operation, change)
        return kept


def _circumstances(context: Context, table: Table) -> Circumstances:
    running = context.catalog.rebuilds(subject_uid=table.uid, running_only=True)
    return Circumstances(
        paused=cluster_paused(context),
        busy=None if not running else f"{running[0].id} is running",
        has_version=True,
        running_scheduled=schedules.running_scheduled(context),
        limit=context.limits.scheduled_rebuilds,
        writes=True,
    )
