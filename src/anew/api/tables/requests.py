"""The wire models of tables: requests, and what drivers exchange with the controller."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from anew.api.wire import Request, Wire, example
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Build, Segment
from anew.core.tables.table import Table

MAX_SEGMENTS_READ = 1_000


class CreateTable(Request):
    """Make a table. ``columns`` is what a schema file holds; the same ``request_id`` with the same body is the same."""

    model_config = example(
        name="trips",
        columns={
            "columns": [
                {"name": "id", "type": "bigint", "nullable": False},
                {"name": "left_at", "type": "timestamp", "role": "time"},
            ]
        },
        settings={"time_column": "left_at", "bucket": "month", "sort": ["id"]},
        request_id="create-trips-1",
    )

    name: str
    columns: dict[str, Any]
    settings: dict[str, Any] = Field(default_factory=dict)
    request_id: str | None = None


class UpdateTable(Request):
    """Give a table other columns, or other settings; a setting that is null has its default again."""

    model_config = example(settings={"sort": ["left_at"], "bloom": {"id": 0.01}})

    columns: dict[str, Any] | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class ReloadTable(Request):
    """Let nodes make their copies again with the newest configuration: of one segment, or of all."""

    model_config = example(segment="trips_2013-01_0")

    segment: str | None = None


class DropSegments(Request):
    """Take segments out of a table."""

    model_config = example(segments=["trips_2013-01_0"])

    segments: tuple[str, ...]


class PlanRefresh(Request):
    """Plan a refresh; what is not said is as the table's refresh task says."""

    model_config = example(reload_only=False, max_segments=20, retry_failed=True)

    reload_only: bool | None = None
    force_reload: bool | None = None
    max_segments: int | None = Field(default=None, ge=0)
    retry_failed: bool = False


class ReadSegments(Request):
    """What the catalog holds of some segments of a rebuild's table."""

    model_config = example(epoch=1, segments=["trips_2013-01_0"])

    epoch: int
    segments: tuple[str, ...] = Field(max_length=MAX_SEGMENTS_READ)


class CommitSegment(Request):
    """What became of a segment: a new build in the place of the one that was read, or why not.

    Attributes:
        read: The build that was read.
        build: What takes its place: a new file, or, stamped, the same file with another hash; None without one.
        try_again: Whether what failed may go well the next time, because it was not the segment's own fault.
    """

    epoch: int
    done: Done
    read: str
    build: Build | None = None
    try_again: bool = False


class LoadedSegment(Request):
    """A segment that a load made."""

    segment: str
    build: Build


class CommitLoad(Request):
    """All segments of a load, at once: all are visible, or none (case F3)."""

    epoch: int
    segments: tuple[LoadedSegment, ...]
    read: int
    skipped: int = 0


class TableSnapshot(Wire):
    """What planners of loads, importers and readers need: the table, and its segments where they were asked for."""

    table: Table
    segments: tuple[Segment, ...] = ()
    deep_store: str
    now_ms: int
