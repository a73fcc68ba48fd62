"""What drivers of generations logged on this machine goes with the generations."""

from __future__ import annotations

from dataclasses import dataclass

from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.core.jobs.generation import GenerationStatus
from anew.core.jobs.rebuild import JobRebuild

_EVERY_MS = 3_600_000


@dataclass(slots=True)
class LogUpkeep:
    """Removes logs, every hour; each controller those on its own machine.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _at_ms: int = 0

    def step(self, apart: Apart) -> None:
        """Remove what drivers logged of generations that are reclaimed, and all but the last logs of the others."""
        now_ms = self.context.clock()
        if now_ms - self._at_ms < _EVERY_MS:
            return
        with apart.step("logs of drivers"):
            grace_ms = int(self.context.limits.reclaim_grace_seconds * 1000)
            for rebuild_id in self.context.driver_logs.rebuilds():
                self.context.driver_logs.trim(rebuild_id, is_over=_is_over(self.context, rebuild_id), older_ms=grace_ms)
            self._at_ms = now_ms


def _is_over(context: Context, rebuild_id: str) -> bool:
    """Whether nobody asks for the logs of a generation any more: it is reclaimed, or the catalog has forgotten it."""
    rebuild = context.catalog.rebuild(rebuild_id)
    if not isinstance(rebuild, JobRebuild):
        return rebuild is None
    job = context.catalog.job_by_uid(rebuild.job_uid)
    generation = None if job is None else job.find(rebuild.generation)
    return generation is None or generation.status is GenerationStatus.RECLAIMED
