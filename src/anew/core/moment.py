"""Times and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Unit of a duration's text → ms."""

_LAST_MS = 253_402_300_799_999
"""The end of the year 9999: the calendar knows no later time."""


def utc_text(at_ms: int) -> str:
    """``2025-06-15T15:06:40Z``: a time in ms since the epoch, to the second; what no calendar has stays a number."""
    if not 0 <= at_ms <= _LAST_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_text(span_ms: int) -> str:
    """``3d 4h``: a duration in its two largest units, rounded down; below a second ``0s``."""
    parts: list[str] = []
    left = max(span_ms, 0)
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, UNITS_MS[unit])
        if count or parts:
            parts.append(f"{count}{unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0")) or "0s"
