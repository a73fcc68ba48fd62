"""For how long the catalog keeps rows that nothing depends on any more."""

from __future__ import annotations

from dataclasses import dataclass

REPUSH_SOURCE_WAIT_SECONDS = 3_600
"""How long a version between two plain repushes stays after it became a backup, for readers and jobs still at it."""

_MONTH_SECONDS = 30 * 86_400


@dataclass(frozen=True, slots=True)
class RowRetention:
    """The catalog's retentions, in seconds.

    Attributes:
        history: Lines of who did what when.
        rebuild: Rebuilds that have ended, and what became of each of their segments.
        request: Request ids: a request that is repeated later is a new one.
        past_version: What is shown of versions that were reclaimed.
        dead_letter: Notes of records that no version applies, once they were set aside and no version reads there.
        deleted: Deleted stores and tables; their names keep their version numbers for ever.
    """

    history: int = _MONTH_SECONDS
    rebuild: int = _MONTH_SECONDS
    request: int = _MONTH_SECONDS
    past_version: int = _MONTH_SECONDS
    dead_letter: int = _MONTH_SECONDS
    deleted: int = _MONTH_SECONDS
