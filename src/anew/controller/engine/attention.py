"""Since when a controller listens: silence counts only while there was somebody to hear it.

A driver or a node is lost when it was silent for its limit and this controller has been listening for as long. One that
was just started, or stood still, begins to listen anew: what it did not hear is nobody's fault but its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Attention:
    """When a controller began to listen, and when it last said that it does."""

    _since_ms: int | None = None
    _last_ms: int = 0
    _last_seconds: float = 0.0

    def listen(self, now_ms: int, now_seconds: float, gap_seconds: float) -> None:
        """Say that the controller listens now.

        Args:
            now_ms: The wall clock.
            now_seconds: A monotonic clock.
            gap_seconds: After a longer pause than this it begins to listen anew; also where the wall clock was set by
                more, or the machine slept, which a monotonic clock may not count.
        """
        passed_seconds = now_seconds - self._last_seconds
        is_set = abs((now_ms - self._last_ms) / 1000 - passed_seconds) > gap_seconds
        if self._since_ms is None or passed_seconds > gap_seconds or is_set:
            self._since_ms = now_ms
        self._last_ms, self._last_seconds = now_ms, now_seconds

    def listened_for(self, seconds: float, now_ms: int) -> bool:
        """Whether the controller has been listening for so long."""
        return self._since_ms is not None and now_ms - self._since_ms >= seconds * 1000
