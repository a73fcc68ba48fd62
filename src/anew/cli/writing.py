"""Writing JSON lines: what becomes of a line that is refused, and of a write that a log ends."""

from __future__ import annotations

from typing import Protocol

from anew.core.errors import AnewError, Failed, InvalidRequest, OutcomeUnknown, PartlyDone
from anew.core.feed import PositionMap


class Writes(Protocol):
    """A writer whose progress can be told.

    Attributes:
        accepted: How many records were taken and not refused since.
        acknowledged: How many of them are on disk.
    """

    accepted: int
    acknowledged: int

    @property
    def position(self) -> PositionMap:
        """Behind the last acknowledged record of each partition."""

    def close(self) -> PositionMap:
        """Write what waits, and let go of the log."""


def bad_line(writer: Writes, line: int, error: InvalidRequest, *, as_json: bool) -> AnewError:
    """What becomes of a line that is refused: what came before it is written."""
    try:
        position = writer.close()
    except AnewError as another:
        return stopped(writer, line, another, as_json=as_json)
    counts = {"found": error.found, "accepted": writer.accepted, "line": line, "position": position.to_json()}
    return Failed(
        error.code,
        f"line {line}: {error.message}; records before it that were written: {writer.accepted}",
        found=counts if as_json else error.found,
        expected=error.expected,
        hint=error.hint,
    )


def stopped(writer: Writes, count: int, error: AnewError, *, as_json: bool) -> AnewError:
    """An error that ended a write of so many records, with how many of them are on the disk."""
    done = f"{writer.acknowledged:,} of {count:,} records are on disk"
    # Where nothing is on disk the error itself says it all, and that nothing was changed.
    if writer.acknowledged == 0 and not isinstance(error, PartlyDone):
        return error
    kind = OutcomeUnknown if isinstance(error, OutcomeUnknown) else PartlyDone
    position = writer.position.to_json()
    counts = {"found": error.found, "on_disk": writer.acknowledged, "records": count, "position": position}
    return kind(
        error.code,
        f"{done}: {error.message}",
        found=counts if as_json else error.found,
        expected=error.expected,
        hint=error.hint,
    )
