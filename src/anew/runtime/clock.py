"""The real clock and the real source of ids; everybody else gets them handed in."""

from __future__ import annotations

import time
import uuid


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A fresh unique id, 32 hex digits, sortable by the time it was made."""
    return f"{now_ms():012x}{uuid.uuid4().hex[:20]}"
