"""The plan of a rebuild of a table: a refresh, a load, or a repair."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from anew.core.plan import Change, Estimate, PlanValue, Value
from anew.core.tables.choosing import Mode
from anew.core.tables.config import SegmentConfig


class TableRebuildKind(StrEnum):
    """What is made of a table.

    ``table_repair``: files of the deep store that were changed or removed come back from the copies of nodes.
    """

    REFRESH = "refresh"
    TABLE_LOAD = "table_load"
    TABLE_REPAIR = "table_repair"


class TableFence(Value):
    """What must still be so when the plan is run; otherwise it is refused (exit 3)."""

    table_uid: str
    config_hash: str


class TableTarget(Value):
    """With what configuration segments are made: the one that was read when the plan was made (case C7)."""

    config: SegmentConfig
    config_hash: str
    fabric: str


class PlannedSegment(Value):
    """A segment that a refresh or a repair takes.

    Attributes:
        build: The build that the plan saw: whatever replaces it meanwhile wins (case C1).
        reasons: Why it is stale, or what is wrong with its file, in words.
    """

    segment: str
    build: str
    config_hash: str | None
    reasons: tuple[str, ...]
    bytes: int
    rows: int


class TableInput(Value):
    """What a load reads, and how.

    Attributes:
        paths: Files, absolute.
        format: csv, parquet, json or avro.
        options: Reader options, as given.
        prefix: How the names of its segments begin: a load replaces all segments of earlier loads with its prefix.
        bad_rows_to: Where rows that do not fit are put, or None: they fail the load.
        bucket, segment_rows: How rows are dealt to segments.
    """

    paths: tuple[str, ...]
    format: str
    options: dict[str, str] = Field(default_factory=dict)
    prefix: str
    bad_rows_to: str | None = None
    bucket: str | None = None
    segment_rows: int


class TablePlan(PlanValue):
    """The plan of a refresh, a load or a repair.

    Attributes:
        changes: In what the configurations of the builds differ from the wanted one, each difference once.
        drift: Segments that are stale in the deep store, while every node serves the wanted configuration.
        skipped: Stale segments that it leaves, with the reason, as far as they are named.
        left: How many stale segments it leaves.
        replaces: The segments of earlier loads with the same prefix: a load makes them again, or takes them out.
    """

    kind: TableRebuildKind
    table: str
    target: TableTarget
    mode: Mode = Mode.DEFAULT
    changes: tuple[Change, ...] = ()
    why: tuple[str, ...] = ()
    estimate: Estimate
    segments: tuple[PlannedSegment, ...] = ()
    drift: tuple[str, ...] = ()
    skipped: dict[str, str] = Field(default_factory=dict)
    left: int = 0
    replaces: tuple[str, ...] = ()
    source: TableInput | None = None
    fence: TableFence
    planned_at_ms: int

    def summary(self) -> tuple[str, ...]:
        """See `PlanValue.summary`."""
        size = f"{len(self.segments)} segments, {self.estimate.records} rows, " if self.source is None else ""
        return f"{self.kind.value} of {self.table}, {size}{self.estimate.bytes} bytes", *self.why

    @property
    def subject_name(self) -> str:
        """The table's."""
        return self.table
