"""A clock that goes where a test puts it."""

from __future__ import annotations

NOON_MS = 1_750_000_000_000
"""Where a `ManualClock` starts unless told otherwise: some time in June 2025."""


class ManualClock:
    """A clock in ms since the epoch; call it to read it."""

    def __init__(self, now_ms: int = NOON_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """The time in ms since the epoch."""
        return self.now_ms

    def seconds(self) -> float:
        """The same, as a monotonic clock in seconds: as long as nobody moves the clock backwards."""
        return self.now_ms / 1000

    def advance(self, by_ms: int) -> int:
        """Move the clock, backwards when negative; the new time."""
        self.now_ms += by_ms
        return self.now_ms
