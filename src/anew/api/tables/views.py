"""The controller's answers about tables: the shapes of the face."""

from __future__ import annotations

from typing import Literal

from anew.api.tables.segments import SegmentState
from anew.api.wire import Wire
from anew.core.tables.columns import Column
from anew.core.tables.segment import ColumnStats, Failure
from anew.core.tables.settings import TableSettings


class TableSchedule(Wire):
    """What the schedule of a table says now.

    Attributes:
        schedule: That of the refresh task.
        reasons: Why a refresh is due, or why not.
        failures: How many scheduled refreshes have failed in a row.
        under_way: The request id of the one that is under way.
    """

    schedule: str
    reasons: tuple[str, ...]
    failures: int
    under_way: str | None


class TableView(Wire):
    """The ``table`` shape.

    Attributes:
        segments, rows, bytes: How much it holds.
        stale: How many segments have another configuration than the wanted one.
        failed: How many of these failed with the wanted one.
        created_at: In ms.
    """

    name: str
    uid: str
    fabric: str
    columns: tuple[Column, ...]
    config: TableSettings
    config_hash: str
    segments: int
    rows: int
    bytes: int
    stale: int
    failed: int
    created_at: int
    schedule: TableSchedule | None


class UnknownCopy(Wire):
    """The copy of a segment on a node that is to hold it and does not report: it never counts as fresh (case A8)."""

    node: str
    build: None = None
    config_hash: None = None
    state: Literal["unknown"] = "unknown"
    error: str


class CopyView(Wire):
    """The copy of a segment on a node that is to hold it.

    Attributes:
        build: The build that the node serves, null for none.
        config_hash: That of the copy.
        reload: The reload that the copy has followed.
        rebuilt_rows: How many rows the node wrote again by itself, for all its copies so far.
    """

    node: str
    build: str | None
    config_hash: str | None
    state: SegmentState
    error: str | None
    reload: int
    rebuilt_rows: int


class SegmentView(Wire):
    """An item of the ``segments`` shape.

    Attributes:
        build: The id of the file in the deep store that holds its rows; ``path`` and ``sha256`` are that file's.
        config_hash: Of the configuration that the file was made with; null: nobody knows.
        reasons: Why it is stale, in words.
        created_at, pushed_at: In ms.
        columns: Column → what the file holds of it.
        partitions: Those of its rows; null where the table has no partitioning.
        failure: Of the last refresh that failed on it.
    """

    name: str
    rows: int
    bytes: int
    build: str
    path: str
    sha256: str
    config_hash: str | None
    wanted_hash: str
    stale: bool
    reasons: tuple[str, ...]
    created_at: int
    pushed_at: int
    columns: dict[str, ColumnStats]
    partitions: tuple[int, ...] | None
    failure: Failure | None
    replicas: tuple[CopyView | UnknownCopy, ...]
