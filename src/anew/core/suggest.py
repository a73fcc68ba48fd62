"""The nearest known name to one that is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """``did you mean …?`` with the nearest known name, or None when nothing is near."""
    near = difflib.get_close_matches(found, list(known), n=1)
    return f"did you mean {near[0]}?" if near else None
