"""Times and durations as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Unit of a duration's text → ms."""

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: the calendar knows no later time."""

_DURATION = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>[smhdw])", re.ASCII)
_EPOCH = datetime.fromtimestamp(0, UTC)


def utc_text(at_ms: int) -> str:
    """``2025-06-15T15:06:40Z``: a time in ms since the epoch, to the second; what no calendar has stays a number."""
    if not 0 <= at_ms <= LAST_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant_text(at_ms: int) -> str:
    """``2025-06-15T15:06:40.250Z``: as `utc_text`, to the millisecond, so that `instant_ms` reads the same time."""
    if not 0 <= at_ms <= LAST_MS:
        return f"{at_ms} ms"
    return f"{utc_text(at_ms).removesuffix('Z')}.{at_ms % 1000:03}Z"


def instant_ms(text: str) -> int | None:
    """A time in ISO 8601 in ms since the epoch; None where the text is no time, or does not name its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else (at - _EPOCH) // timedelta(milliseconds=1)


def duration_ms(text: str) -> int | None:
    """``36h``, ``7d``: a whole number of one unit (`UNITS_MS`) in ms; None where the text is no such duration."""
    matched = _DURATION.fullmatch(text)
    return None if matched is None else int(matched["number"]) * UNITS_MS[matched["unit"]]


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
