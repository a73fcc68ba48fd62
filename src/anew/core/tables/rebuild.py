"""The record of a rebuild of a table: its segments one by one, each done, skipped or failed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from anew.core.rebuild import Rebuild, RebuildStatus, SubjectId
from anew.core.tables.plan import PlannedSegment, TablePlan, TableRebuildKind

TABLE = "table"
"""What the face calls the subject of these rebuilds."""


class SegmentOutcome(StrEnum):
    """What became of a segment.

    ``stamped``: its bytes satisfied the wanted configuration already; only the record changed (case A4). ``same``: a
    load brought what was there already (case D6). ``repaired``: its file lies in the deep store again. ``removed``: it
    belonged to an earlier load with the same prefix, and the new one deals its rows otherwise.
    """

    REFRESHED = "refreshed"
    STAMPED = "stamped"
    LOADED = "loaded"
    SAME = "same"
    REPAIRED = "repaired"
    REMOVED = "removed"
    SKIPPED = "skipped"
    FAILED = "failed"


class Done(BaseModel):
    """A segment that a rebuild is done with; ``why`` says what was wrong, or why it was skipped."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    segment: str
    outcome: SegmentOutcome
    rows: int = 0
    bytes: int = 0
    filtered: int = 0
    why: str | None = None


class TableRebuild(Rebuild):
    """One refresh of a table, or one load into it; what became of its segments is kept beside it, one by one.

    Attributes:
        read: Rows read in the segments that are done: those written, filtered and skipped.
        skipped: Rows that did not fit and were put aside.
    """

    kinds: ClassVar = tuple(TableRebuildKind)

    kind: TableRebuildKind
    table: str
    table_uid: str
    plan: TablePlan
    read: int = 0
    filtered: int = 0
    skipped: int = 0
    written: int = 0

    @property
    def subject(self) -> SubjectId:
        """The table."""
        return SubjectId(TABLE, self.table_uid, self.table)


def waiting(rebuild: TableRebuild, done: Sequence[Done]) -> list[PlannedSegment]:
    """The segments of its plan that a rebuild is not done with."""
    known = {one.segment for one in done}
    return [planned for planned in rebuild.plan.segments if planned.segment not in known]


def refresh_view(rebuild: TableRebuild, done: Sequence[Done]) -> dict[str, Any]:
    """The ``refresh`` shape of the face."""

    def of(*outcomes: SegmentOutcome) -> list[Done]:
        return [one for one in done if one.outcome in outcomes]

    made = of(SegmentOutcome.REFRESHED, SegmentOutcome.LOADED, SegmentOutcome.REPAIRED)
    left = [{"segment": name, "reason": why} for name, why in rebuild.plan.skipped.items()]
    return {
        "rebuild": rebuild.id,
        "chosen": [planned.segment for planned in rebuild.plan.segments],
        "refreshed": [one.segment for one in made],
        "removed": [one.segment for one in of(SegmentOutcome.REMOVED)],
        "stamped": [one.segment for one in of(SegmentOutcome.STAMPED, SegmentOutcome.SAME)],
        "skipped": [*({"segment": one.segment, "reason": one.why} for one in of(SegmentOutcome.SKIPPED)), *left],
        "drift": list(rebuild.plan.drift),
        "failed": [{"segment": one.segment, "error": one.why} for one in of(SegmentOutcome.FAILED)],
    }


def ending(done: Sequence[Done]) -> RebuildStatus:
    """How a rebuild ends that is done with all its segments."""
    failed = sum(one.outcome is SegmentOutcome.FAILED for one in done)
    if failed == 0:
        return RebuildStatus.SUCCEEDED
    return RebuildStatus.FAILED if failed == len(done) else RebuildStatus.PARTLY
