"""Records of rebuilds: finding one, who may work on it, and the one way to change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anew.catalog.change import Operation, Put, PutRebuild
from anew.controller.engine.commit import change_document
from anew.controller.engine.context import Context
from anew.controller.engine.subjects import Step
from anew.core.errors import InvalidRequest, NotFound
from anew.core.rebuild import DRIVEN_STAGES, Rebuild, Stage, check_epoch, rebuild_ended

R = TypeVar("R", bound=Rebuild)


def find(context: Context, rebuild_id: str) -> Rebuild:
    """The rebuild of that id, whatever it is of.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    return find_of(context, rebuild_id, Rebuild)


def find_of(context: Context, rebuild_id: str, of: type[R]) -> R:
    """The rebuild of that id, which is one of a class.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    rebuild = context.catalog.rebuild(rebuild_id)
    if not isinstance(rebuild, of):
        raise NotFound(
            "unknown_rebuild", f"there is no rebuild {rebuild_id}", found=rebuild_id, hint="anew rebuild list"
        )
    return rebuild


def rebuilds_of(context: Context, uid: str, of: type[R], *, running_only: bool, limit: int | None = None) -> list[R]:
    """A subject's rebuilds, newest first, at most so many."""
    found = context.catalog.rebuilds(subject_uid=uid, running_only=running_only, limit=limit)
    return [rebuild for rebuild in found if isinstance(rebuild, of)]


def change_rebuild(context: Context, rebuild: R, operation: Operation, step: Callable[[R], Step[R] | None]) -> R:
    """Load the newest record, step, commit by compare-and-swap; again when somebody else was faster.

    ``step`` returns the next record and what is committed with it, None where there is nothing to do.

    Raises:
        Refused, NotFound: What ``step`` raises; ``revision_conflict``, ``unknown_rebuild``.
    """

    def changed(newest: R) -> tuple[R, tuple[Put, ...]]:
        stepped = step(newest)
        return (newest, ()) if stepped is None else stepped

    return change_document(context, operation, lambda: find_of(context, rebuild.id, type(rebuild)), PutRebuild, changed)


def check_driver(rebuild: Rebuild, epoch: int) -> None:
    """Raise unless a driver of that epoch may still work on it.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``.
    """
    if not rebuild.driven:
        raise rebuild_ended(rebuild, hint=f"anew rebuild show {rebuild.id}")
    check_epoch(rebuild, epoch)


def check_driven(stage: Stage) -> None:
    """Raise unless a driver works on a stage.

    Raises:
        InvalidRequest: ``bad_stage``.
    """
    if stage not in DRIVEN_STAGES:
        expected = ", ".join(sorted(DRIVEN_STAGES))
        raise InvalidRequest("bad_stage", "a driver does not work on this stage", found=stage.value, expected=expected)
