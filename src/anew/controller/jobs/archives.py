"""Archives of code that no generation names any more go, in two steps with a grace between them (rules R15, R22).

An archive lies in the deep store before its generation is begun, and a plan may be run a while after it was made. So
only one that has lain there unnamed for longer than a plan is good for is noted; the second step looks once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anew.catalog.change import PutReclaim, Reclaim
from anew.controller.engine.apart import Apart
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.core.jobs.generation import GenerationStatus
from anew.core.jobs.places import CODE_FOLDER, PLAN_SECONDS

CODE = "code"
"""The kind of the notes of archives."""
_EVERY_MS = 3_600_000


@dataclass(slots=True)
class ArchiveUpkeep:
    """Notes archives that nothing names, every hour.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _at_ms: int = 0

    def step(self, apart: Apart) -> None:
        """First step: note them."""
        now_ms = self.context.clock()
        if now_ms - self._at_ms < _EVERY_MS:
            return
        left = set(self.context.fabrics)
        for fabric in self.context.fabrics:
            with apart.step(f"archives of code in {fabric}"):
                for path in _left(self.context, fabric):
                    note = Reclaim(
                        f"{path}@{fabric}", CODE, fabric, path, self.context.reclaim_due_ms(), "code of no generation"
                    )
                    operation = self.context.operation("archive left", "cluster", "controller", path=path)
                    commit(self.context, operation, PutReclaim(note))
                left.discard(fabric)
        if not left:
            self._at_ms = now_ms


def remove_archive(context: Context, note: Reclaim) -> None:
    """Second step: remove an archive, unless a generation names it again, or it was stored again.

    Raises:
        Unreachable: The deep store does not answer.
    """
    deep_store = context.fabrics[note.fabric].deep_store
    stored = deep_store.stat(note.target)
    if stored is not None and note.target not in _named(context) and _is_old(context, stored.modified_ms):
        deep_store.delete(note.target)


def _left(context: Context, fabric: str) -> Iterator[str]:
    noted = {reclaim.target for reclaim in context.catalog.reclaims(None) if reclaim.kind == CODE}
    stored = list(context.fabrics[fabric].deep_store.list(CODE_FOLDER))
    # Read after the files were listed: whatever generation names one of them is known by now.
    named = _named(context)
    for file in stored:
        if file.path not in named | noted and _is_old(context, file.modified_ms):
            yield file.path


def _is_old(context: Context, modified_ms: int) -> bool:
    return context.clock() - modified_ms > PLAN_SECONDS * 1000


def _named(context: Context) -> set[str]:
    """The archives of all generations that are not reclaimed, of deleted jobs too."""
    jobs = (*context.catalog.jobs(), *context.catalog.deleted_jobs())
    return {
        generation.code.path
        for job in jobs
        for generation in job.generations
        if generation.status is not GenerationStatus.RECLAIMED
    }
