"""How long to wait before something that failed is tried again."""

from __future__ import annotations

_MOST_DOUBLINGS = 64
"""More would be beyond any wait, and at last beyond what a float can hold."""


def backoff_seconds(failures: int, first_seconds: float, longest_seconds: float) -> float:
    """The pause after so many failures before the last one: twice the pause before it, up to the longest."""
    return min(longest_seconds, first_seconds * 2.0 ** min(failures, _MOST_DOUBLINGS))
