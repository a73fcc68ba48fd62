"""A guarded loop in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from anew.loops.guarded import GuardedLoop


@dataclass(slots=True)
class LoopThread:
    """Takes a loop's steps until it is stopped.

    Attributes:
        loop: The loop; the thread has its name.
        step: What it does, which waits for ``wake`` where there is nothing to do.
        wake: Set when there is something to do, and at the end.
    """

    loop: GuardedLoop
    step: Callable[[], None]
    wake: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        thread = threading.Thread(
            target=self.loop.run, args=(self.step, self._stopped), name=self.loop.name, daemon=True
        )
        self._thread = thread
        thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """End after the step under way, which is left behind when it takes longer."""
        self._stopped.set()
        self.wake.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
