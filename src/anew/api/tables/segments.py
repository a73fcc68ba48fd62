"""What nodes are told of tables and their segments, and what they tell."""

from __future__ import annotations

from enum import StrEnum

from anew.api.wire import Wire
from anew.core.tables.columns import Column
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Build


class DesiredSegment(Wire):
    """A segment of a table: all of them are told, because any node may be asked about all.

    Attributes:
        hosted: Whether this node is to hold it.
        reload: How often nodes were asked to make their copies of it again.
        redealt: Whether a copy with other rows than the build's may not be answered in its place.
    """

    name: str
    build: Build
    hosted: bool
    reload: int = 0
    redealt: bool = False


class DesiredTable(Wire):
    """A table as its nodes know it; the same revision is the same table."""

    uid: str
    name: str
    revision: int
    columns: tuple[Column, ...]
    config: SegmentConfig
    config_hash: str
    skip_segment_preprocess: bool
    segments: tuple[DesiredSegment, ...]


class SegmentState(StrEnum):
    """How far a node is with a segment."""

    PENDING = "pending"
    LOADING = "loading"
    SERVING = "serving"
    ERROR = "error"


class SegmentReport(Wire):
    """What a node says of one segment.

    Attributes:
        build: The build that it serves, None for none.
        config_hash: That of the copy that it serves: l of the cases.
        reload: The reload that its copy has followed.
        rebuilt_rows: How many rows it wrote again by itself, for all its copies so far.
    """

    table_uid: str
    segment: str
    state: SegmentState
    build: str | None = None
    config_hash: str | None = None
    reload: int = 0
    rebuilt_rows: int = 0
    error: str | None = None
