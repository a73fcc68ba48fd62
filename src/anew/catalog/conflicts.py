"""Compare-and-swap: what it means when a row was not there as it was."""

from __future__ import annotations

from anew.core.errors import Refused


def check_swapped(row_count: int, what: str, fence: int | str | None) -> None:
    """Raise unless a row was changed.

    Raises:
        Refused: ``revision_conflict``.
    """
    if row_count != 1:
        raise Refused(
            "revision_conflict",
            f"{what} was changed by somebody else meanwhile",
            expected=f"revision {fence}" if isinstance(fence, int) else fence,
            hint="try again",
        )
