"""Waiting for the catalog to move: woken at once by changes made here, within moments by those made elsewhere."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

_POLL_SECONDS = 0.25


class Watch:
    """Lets long polls and the reconciler wait for a newer revision of the catalog.

    Whoever waits for the catalog keeps no thread meanwhile: each node of a cluster waits here, and a server answers
    with a few dozen threads. However many wait, one thread looks for all; each of the nodes' reports is a reason to.
    """

    def __init__(self, revision: Callable[[], int]) -> None:
        """Watch the number that ``revision`` gives."""
        self._revision = revision
        lock = threading.Lock()
        self._noted, self._due = threading.Condition(lock), threading.Condition(lock)
        self._closed = False
        self._is_noted = False
        self._is_due = False
        self._acts = -1
        self._seen = -1
        self._looked_at_seconds = -math.inf
        self._waiting: dict[asyncio.Future[Exception | None], int] = {}
        self._looker: threading.Thread | None = None

    def notify(self) -> None:
        """Something may have changed: it is looked at again, and whoever pauses goes on."""
        with self._noted:
            self._is_due = True
            # Who acts and pauses by turns knows of its own changes, and would never rest if they woke it.
            if threading.get_ident() != self._acts:
                self._is_noted = True
                self._noted.notify_all()
            self._due.notify_all()

    def repeat(self, act: Callable[[], None], most: int) -> int:
        """Act as long as each time the catalog moves, at most so often; whoever waits for it hears of it at once.

        Returns:
            How often it acted.
        """
        self._acts = threading.get_ident()
        for number in range(1, most + 1):
            before = self._look()
            act()
            if self._look() == before:
                return number
        return most

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self.notify()
        with self._due:
            self._let_go(list(self._waiting), None)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def waiting(self) -> int:
        """How many wait for the catalog now."""
        return len(self._waiting)

    async def wait_beyond(self, revision: int, seconds: float) -> bool:
        """Wait until the catalog is beyond ``revision``; False when it is not within ``seconds``.

        Raises:
            AnewError: A look at the catalog failed: whoever waited longest is told, the others wait on.
        """
        if await run_in_threadpool(self._look) > revision:
            return True
        gone: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        with self._due:
            if self._seen > revision or self._closed:
                return self._seen > revision
            self._waiting[gone] = revision
            if self._looker is None:
                self._looker = threading.Thread(target=self._look_for_all, name="watch", daemon=True)
                self._looker.start()
        try:
            await asyncio.wait((gone,), timeout=seconds)
        finally:
            with self._due:
                self._waiting.pop(gone, None)
        error = gone.result() if gone.done() else None
        if error is not None:
            raise error
        return self._seen > revision

    def pause(self, seconds: float) -> None:
        """Wait for a notification, or for so long; one that came since the last pause counts. For one thread."""
        with self._noted:
            if not self._closed and not self._is_noted:
                self._noted.wait(seconds)
            self._is_noted = False

    def _look_for_all(self) -> None:
        """Look as soon as there is a reason to, and every few moments, for as long as anybody waits."""
        while True:
            with self._due:
                while (due_seconds := self._due_seconds()) > 0 and self._waiting:
                    self._due.wait(due_seconds)
                if not self._waiting:
                    self._looker = None
                    return
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - raised where somebody waits
                with self._due:
                    self._looked_at_seconds = time.monotonic()
                    self._let_go(list(self._waiting)[:1], error)

    def _due_seconds(self) -> float:
        """In how many seconds the next look is due."""
        return 0.0 if self._is_due else self._looked_at_seconds + _POLL_SECONDS - time.monotonic()

    def _look(self) -> int:
        """The catalog's revision now; those who wait for it hear of it."""
        began = time.monotonic()
        with self._due:
            # What is notified from here on may come too late for this look.
            self._is_due = False
        revision = self._revision()
        with self._due:
            if began >= self._looked_at_seconds:
                self._seen, self._looked_at_seconds = revision, began
                self._let_go([gone for gone, beyond in self._waiting.items() if revision > beyond], None)
        return revision

    def _let_go(self, waiting: list[asyncio.Future[Exception | None]], error: Exception | None) -> None:
        """End waits, each in the loop that it waits in."""
        for gone in waiting:
            self._waiting.pop(gone, None)
            # A loop that has ended has nobody who waits.
            with suppress(RuntimeError):
                gone.get_loop().call_soon_threadsafe(_end, gone, error)


def _end(gone: asyncio.Future[Exception | None], error: Exception | None) -> None:
    # Its seconds may be over already.
    if not gone.done():
        gone.set_result(error)
