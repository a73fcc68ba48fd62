"""The driver's lease: a thread that gives signs of life, and stops the job when it is told to.

Another thread measures how far the job is: Spark answers that when it can, which on a loaded machine may be after the
lease, and a driver that waits for it is alive.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

import structlog

from anew.api.http import ControllerClient
from anew.api.models import Heartbeat
from anew.core.errors import AnewError, InvalidRequest, Refused
from anew.core.rebuild import DriverTrouble, Progress, Stage
from anew.loops.guarded import Loops, Trouble

_LOG = structlog.get_logger("anew.rebuild")

_AGAIN = frozenset({"revision_conflict"})
"""What is refused in this moment only: the next sign of life may be taken."""


class Lease:
    """Renews a rebuild's lease until it is closed. A context manager.

    An unreachable controller is waited for: the lease ends by itself there, and the seal is refused afterwards.
    """

    def __init__(
        self,
        controller: ControllerClient,
        rebuild_id: str,
        epoch: int,
        interval_seconds: float = 2.0,
        clock_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `__enter__` starts the thread."""
        self._controller = controller
        self._rebuild_id = rebuild_id
        self._epoch = epoch
        self._interval_seconds = interval_seconds
        self._closed = threading.Event()
        self._woken = threading.Event()
        self._stage = Stage.BEGIN
        self._measure: Callable[[], Progress] | None = None
        self._measured = Progress()
        self._cancel: Callable[[], None] | None = None
        self._loops = Loops(_monotonic_ms)
        beats, measures = self._loops.loop("lease"), self._loops.loop("progress", stall_seconds=math.inf)
        beats.on_failure = self._tell
        self._beats = threading.Thread(
            target=lambda: beats.run(self._give_sign, self._closed), name="lease", daemon=True
        )
        self._measures = threading.Thread(
            target=lambda: measures.run(self._follow, self._closed), name="progress", daemon=True
        )
        self.lost = False
        self._now_seconds = clock_seconds
        self._answered_seconds = clock_seconds()

    def __enter__(self) -> Lease:
        """Start giving signs of life."""
        self._beats.start()
        self._measures.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop; the lease then ends by itself."""
        self._closed.set()
        self._woken.set()
        for thread in (self._beats, self._measures):
            thread.join(timeout=10)

    @property
    def silent_seconds(self) -> float:
        """For how long the controller has answered no sign of life."""
        return self._now_seconds() - self._answered_seconds

    def enter(self, stage: Stage, measure: Callable[[], Progress], cancel: Callable[[], None]) -> None:
        """Say that a stage begins, how to measure it, and how to stop it."""
        self._stage, self._measure, self._cancel = stage, measure, cancel
        self._woken.set()

    def _give_sign(self) -> None:
        # At once: who was kept from beginning, by a controller that was away, has little of its lease left.
        self._beat()
        self._woken.wait(self._interval_seconds)
        self._woken.clear()

    def _follow(self) -> None:
        if not self._closed.wait(self._interval_seconds) and self._measure is not None:
            self._measured = self._measure()

    def _tell(self, _trouble: Trouble) -> None:
        """Say what keeps the loop from giving signs of life, in a sign of life of its own."""
        with contextlib.suppress(AnewError):
            self._controller.heartbeat(self._rebuild_id, self._sign())

    def _sign(self) -> Heartbeat:
        now_ms = _monotonic_ms()
        told = tuple(
            DriverTrouble(loop=t.loop, error=t.error, for_ms=max(0, now_ms - t.since_ms), failures=t.failures)
            for t in self._loops.troubles()
        )
        return Heartbeat(epoch=self._epoch, stage=self._stage, progress=self._measured, troubles=told)

    def _beat(self) -> None:
        beat = self._sign()
        began_seconds = self._now_seconds()
        try:
            answer = self._controller.heartbeat(self._rebuild_id, beat)
            self._answered_seconds = self._now_seconds()
            took_seconds = self._answered_seconds - began_seconds
            if took_seconds > self._interval_seconds:
                _LOG.warning("heartbeat_slow", rebuild=self._rebuild_id, took_seconds=round(took_seconds, 1))
        except AnewError as error:
            over = isinstance(error, InvalidRequest | Refused) and error.code not in _AGAIN
            _LOG.warning("heartbeat_refused" if over else "heartbeat_unanswered", **error.to_json())
            if over:
                self._stop()
            return
        if answer.kill_asked:
            self._stop()
        elif answer.stop_asked and self._cancel is not None:
            self._cancel()

    def _stop(self) -> None:
        self.lost = True
        if self._cancel is not None:
            self._cancel()


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
