"""Telling: what a rebuild does, to a terminal, a log, or nobody. The executor calls, observers never answer."""

from __future__ import annotations

from typing import Protocol

import structlog

from anew.api.rebuilds import RebuildView
from anew.core.plan import PlanValue
from anew.core.rebuild import Progress, Rebuild, Stage

_LOG = structlog.get_logger("anew.rebuild")


class Observer(Protocol):
    """Told of each step as it happens, from one thread at a time; must return at once and never raise."""

    def planned(self, plan: PlanValue) -> None:
        """The plan that is about to run."""

    def began(self, rebuild: Rebuild) -> None:
        """The rebuild was created."""

    def stage(self, stage: Stage) -> None:
        """A stage begins."""

    def progress(self, stage: Stage, progress: Progress) -> None:
        """How far the present stage is; called every second or so."""

    def ended(self, rebuild: RebuildView) -> None:
        """The rebuild ended: its ``rebuild`` shape."""


class LogObserver:
    """Structured events."""

    def planned(self, plan: PlanValue) -> None:
        """See `Observer.planned`."""
        _LOG.info("planned", plan=plan.id, kind=str(plan.kind), of=plan.subject_name)

    def began(self, rebuild: Rebuild) -> None:
        """See `Observer.began`."""
        _LOG.info("began", rebuild=rebuild.id, of=rebuild.subject.name)

    def stage(self, stage: Stage) -> None:
        """See `Observer.stage`."""
        _LOG.info("stage", stage=stage.value)

    def progress(self, stage: Stage, progress: Progress) -> None:
        """See `Observer.progress`."""
        _LOG.debug("progress", stage=stage.value, **progress.model_dump())

    def ended(self, rebuild: RebuildView) -> None:
        """See `Observer.ended`."""
        _LOG.info("ended", rebuild=rebuild.id, status=rebuild.status.value, error=rebuild.error)
