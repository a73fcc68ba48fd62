"""Telling: what a rebuild does, to a terminal, a log, or nobody. The executor calls, observers never answer."""

from __future__ import annotations

from typing import Any, Protocol

import structlog

from anew.core.plan import Plan
from anew.core.rebuild import Progress, Stage
from anew.core.tables.plan import TablePlan

_LOG = structlog.get_logger("anew.rebuild")


class Observer(Protocol):
    """Told of each step as it happens, from one thread at a time; must return at once and never raise."""

    def planned(self, plan: Plan | TablePlan) -> None:
        """The plan that is about to run."""

    def began(self, rebuild_id: str, version: int | None) -> None:
        """The rebuild was created, and with it a store's version."""

    def stage(self, stage: Stage) -> None:
        """A stage begins."""

    def progress(self, stage: Stage, progress: Progress) -> None:
        """How far the present stage is; called every second or so."""

    def ended(self, rebuild: dict[str, Any]) -> None:
        """The rebuild ended: its ``rebuild`` shape."""


class LogObserver:
    """Structured events."""

    def planned(self, plan: Plan | TablePlan) -> None:
        """See `Observer.planned`."""
        if isinstance(plan, Plan):
            _LOG.info("planned", plan=plan.id, kind=plan.kind.value, store=plan.store, version=plan.target.version)
        else:
            _LOG.info("planned", plan=plan.id, kind=plan.kind.value, table=plan.table, segments=len(plan.segments))

    def began(self, rebuild_id: str, version: int | None) -> None:
        """See `Observer.began`."""
        _LOG.info("began", rebuild=rebuild_id, version=version)

    def stage(self, stage: Stage) -> None:
        """See `Observer.stage`."""
        _LOG.info("stage", stage=stage.value)

    def progress(self, stage: Stage, progress: Progress) -> None:
        """See `Observer.progress`."""
        _LOG.debug("progress", stage=stage.value, **progress.model_dump())

    def ended(self, rebuild: dict[str, Any]) -> None:
        """See `Observer.ended`."""
        _LOG.info("ended", rebuild=rebuild["id"], status=rebuild["status"], error=rebuild["error"])
