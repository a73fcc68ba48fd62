"""Taking a rebuild over from a driver that is gone (case H11)."""

from __future__ import annotations

from anew.api.models import ResumeRebuild
from anew.catalog.change import Put, PutRebuild, PutReclaim, Reclaim
from anew.controller.context import Context, change_store
from anew.controller.rebuilds import rebuild_of
from anew.core import lifecycle
from anew.core.errors import Refused
from anew.core.rebuild import DRIVEN_STAGES, Progress, Rebuild, Stage
from anew.core.store import Store
from anew.segments.layout import version_path


def resume(context: Context, rebuild_id: str, request: ResumeRebuild, actor: str) -> Rebuild:
    """Give a rebuild a new driver: its epoch grows, so that the one before is turned away wherever it knocks (R22).

    A sealed rebuild needs no driver; it is returned as it is.

    Raises:
        NotFound: ``unknown_rebuild``.
        Refused: ``rebuild_ended``, ``driver_alive``.
    """
    rebuild = rebuild_of(context, rebuild_id)
    _check_free(context, rebuild)
    if rebuild.stage not in DRIVEN_STAGES:
        return rebuild

    def change(present: Store) -> tuple[Store, tuple[Put, ...]]:
        newest, now_ms = rebuild_of(context, rebuild_id), context.clock()
        _check_free(context, newest)
        if newest.stage not in DRIVEN_STAGES:
            return present, ()
        epoch, version = newest.epoch + 1, lifecycle.existing(present, newest.version)
        # The new driver builds all of it again: its signs of life begin with the first stage.
        taken = newest.model_copy(
            update={
                "epoch": epoch,
                "driver": request.driver,
                "lease_until_ms": now_ms + int(context.limits.lease_seconds * 1000),
                "stage": Stage.BEGIN,
                "stage_since_ms": now_ms,
                "progress": Progress(),
            }
        )
        path = version_path(present.uid, version.number, rebuild_id, epoch)
        due_ms = context.reclaim_due_ms()
        left = (
            PutReclaim(Reclaim(f"{version.path}@{fabric}", "tree", fabric, version.path, due_ms, "its driver is gone"))
            for fabric in version.statuses
        )
        return lifecycle.take_over(present, version.number, epoch, path), (PutRebuild(taken, newest.revision), *left)

    operation = context.operation("resume rebuild", rebuild.store, actor, rebuild=rebuild_id, version=rebuild.version)
    change_store(context, rebuild.store_uid, operation, change)
    return rebuild_of(context, rebuild_id)


def _check_free(context: Context, rebuild: Rebuild) -> None:
    """Raise unless the rebuild runs and its driver has been silent for a while."""
    if rebuild.ended:
        raise Refused(
            "rebuild_ended",
            f"the rebuild {rebuild.id} has ended",
            found=f"{rebuild.status.value}: {rebuild.error}",
            expected="a rebuild that runs",
            hint=f"start a new one for {rebuild.store}",
        )
    last_sign_ms = rebuild.lease_until_ms - int(context.limits.lease_seconds * 1000)
    silent_ms = context.clock() - last_sign_ms
    least_ms = int(context.limits.takeover_seconds * 1000)
    if rebuild.stage in DRIVEN_STAGES and silent_ms < least_ms:
        raise Refused(
            "driver_alive",
            f"the rebuild {rebuild.id} has a driver",
            found=f"{rebuild.driver} gave a sign of life {silent_ms} ms ago",
            expected=f"none for {least_ms} ms",
            hint=f"wait a moment, or end it: anew rebuild kill {rebuild.id}",
        )
