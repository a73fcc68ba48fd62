"""The controller's connections end when a request's line and headers do not come: uvicorn itself would wait forever."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def patient_for(head_seconds: float) -> type[H11Protocol]:
    """The class of connections on which each request's head must be there within a time."""

    class Patient(H11Protocol):
        """Runs a timer from the connection's begin to the head of its first request.

        From then on a head that has begun to come has the same time; before it begins `timeout_keep_alive` counts.
        """

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
            """The first head is due."""
            super().connection_made(transport)
            self._timer = self.loop.call_later(head_seconds, transport.close)

        def handle_events(self) -> None:
            """Take what came; a head that is complete stops the timer, one that has begun starts it."""
            super().handle_events()
            incomplete = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
            if self.conn.their_state is not h11.IDLE:
                self._stop_timer()
            elif incomplete and self._timer is None:
                self._timer = self.loop.call_later(head_seconds, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            """Nothing is due any more."""
            self._stop_timer()
            super().connection_lost(exc)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Patient
