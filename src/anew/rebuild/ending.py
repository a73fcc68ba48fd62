"""How a driver's part of a rebuild ends: by its own work, by what others did, or by an error."""

from __future__ import annotations

import time
from collections.abc import Callable

from anew.api.http import ControllerClient
from anew.api.models import EndRebuild
from anew.api.rebuilds import RebuildView
from anew.core.errors import AnewError, Failed, InvalidRequest, Refused, Unreachable
from anew.core.rebuild import Rebuild, Stage
from anew.rebuild.lease import Lease
from anew.rebuild.observer import Observer

_LISTEN_SECONDS = 1.0
"""So often progress is told of a stage that goes on."""
_POLL_SECONDS, _MOST_POLLS = 0.1, 5
"""Whoever does not wait is asked less and less often: by a fifth each time, down to every five of these."""
_TURNED_AWAY = frozenset({"rebuild_ended", "epoch_outdated"})
_MOST_CHARACTERS = 4_000
_CONTROLLER_AWAY = "controller_unreachable"


def is_turned_away(error: BaseException, lease: Lease) -> bool:
    """Whether a job ended because the rebuild had, or is another driver's: whoever follows it is told how it ends."""
    return isinstance(error, AnewError) and (lease.lost or error.code in _TURNED_AWAY)


def give_up(controller: ControllerClient, rebuild: Rebuild, lease: Lease, error: BaseException) -> None:
    """End a rebuild at once because of an error, unless it has ended."""
    if lease.lost:
        return
    try:
        if isinstance(error, KeyboardInterrupt):
            controller.kill_rebuild(rebuild.id)
        else:
            controller.fail_rebuild(rebuild.id, EndRebuild(epoch=rebuild.epoch, error=str(error)[:_MOST_CHARACTERS]))
    except AnewError:
        # The controller is away or has ended the rebuild already: the lease's end does the same.
        return


def raise_as_failed(error: BaseException, rebuild: Rebuild) -> None:
    """Raise an error that promises that nothing was changed as a failure: a rebuild was begun, and it has failed.

    Raises:
        Unreachable: ``controller_unreachable``: the driver has waited for the controller long enough. Nobody there
            heard that it gave up: the rebuild fails when its lease ends.
        Failed: All others.
    """
    if isinstance(error, Unreachable) and error.code == _CONTROLLER_AWAY:
        hint = (
            f"{error.hint}; then: anew rebuild show {rebuild.id}" if error.hint else f"anew rebuild show {rebuild.id}"
        )
        raise Unreachable(error.code, error.message, found=error.found, expected=error.expected, hint=hint) from error
    if isinstance(error, InvalidRequest | Refused | Unreachable):
        raise Failed(error.code, error.message, found=error.found, expected=error.expected, hint=error.hint) from error


def followed(
    look: Callable[[Stage | None, float], RebuildView],
    observer: Observer,
    pause: Callable[[float], None],
    clock_seconds: Callable[[], float] = time.monotonic,
) -> RebuildView:
    """Follow a rebuild until it has ended, whoever works on it; returns its ``rebuild`` shape.

    Args:
        look: Asks for the shape, which is answered when the rebuild is in another stage than this, or after so many
            seconds. Whoever answers may also answer at once; then it is asked less and less often.
        observer: Is told of stages and progress.
        pause: Waits for so many seconds.
        clock_seconds: A monotonic clock.
    """
    stage, seconds = None, _POLL_SECONDS
    while True:
        asked_at = clock_seconds()
        view = look(stage, _LISTEN_SECONDS)
        if view.status != "running":
            observer.ended(view)
            return view
        goes_on = view.stage == stage
        if not goes_on:
            stage, seconds = view.stage, _POLL_SECONDS
            observer.stage(stage)
        observer.progress(view.stage, view.progress)
        if goes_on and clock_seconds() - asked_at < _LISTEN_SECONDS / 2:
            pause(seconds)
            seconds = min(1.2 * seconds, _MOST_POLLS * _POLL_SECONDS)


def check_ended_well(view: RebuildView, what: str, expected: str, hint: str) -> None:
    """Check how a rebuild ended.

    Args:
        view: Its ``rebuild`` shape.
        what: What it is called, ``the rebuild``.
        expected: What it was to come to.
        hint: What is so in spite of it.

    Raises:
        Failed: ``rebuild_failed``, ``rebuild_killed``.
    """
    if view.status not in ("failed", "killed"):
        return
    raise Failed(
        f"rebuild_{view.status}",
        f"{what} {view.id} {'was killed' if view.status == 'killed' else 'failed'}",
        found=view.error,
        expected=expected,
        hint=f"{hint}; anew rebuild show {view.id}",
    )
