"""How the rows of a load are dealt to segments: by span of time, by partition, then so many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.errors import InvalidRequest
from anew.core.tables.config import SegmentConfig

_FORMATS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
"""How a bucket is named."""
_NO_TIME = "none"
_WHOLE = "all"


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Rows that may share a segment: of one bucket, and of one partition."""

    bucket: str
    partition: int

    @property
    def key(self) -> str:
        """Its one text."""
        return f"{self.bucket}/{self.partition}"


def group_of(key: str) -> Group:
    """The inverse of `Group.key`."""
    bucket, _, partition = key.rpartition("/")
    return Group(bucket, int(partition))


def groups_of(
    rows: pa.RecordBatch, config: SegmentConfig, bucket: str | None, partitions: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.int64], list[Group]]:
    """The group of each row: its number, shape (n,), and the groups that the numbers mean."""
    buckets = _buckets(rows, config, bucket)
    placed = np.zeros(rows.num_rows, np.int64) if partitions is None else partitions
    encoded = buckets.dictionary_encode()
    names: list[Any] = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    pairs, numbers = np.unique(np.stack([codes, placed]), axis=1, return_inverse=True)
    found = [Group(names[code], int(partition) if partitions is not None else -1) for code, partition in pairs.T]
    return numbers.reshape(-1), found


@dataclass(frozen=True, slots=True)
class Deal:
    """Which rows make which segment.

    Attributes:
        first: (task, group) → the number within the group of the task's first row of it.
        base: Group → the number of its first segment.
        names: Segment number → its name.
        rows: Segment number → how many rows it gets.
        most: How many rows a segment holds at most.
    """

    first: Mapping[tuple[int, str], int]
    base: Mapping[str, int]
    names: tuple[str, ...]
    rows: tuple[int, ...]
    most: int


def deal(counts: Mapping[int, Mapping[str, int]], most: int, prefix: str) -> Deal:
    """Deal rows to segments: within a group in the order of tasks, so many at a time.

    Args:
        counts: Scanning task → group → how many rows it has.
        most: How many rows a segment holds at most.
        prefix: How the segments' names begin.

    Raises:
        InvalidRequest: ``bad_name``.
    """
    first: dict[tuple[int, str], int] = {}
    totals: dict[str, int] = {}
    for task, found in sorted(counts.items()):
        for key, count in found.items():
            first[task, key] = totals.get(key, 0)
            totals[key] = first[task, key] + count
    base: dict[str, int] = {}
    names: list[str] = []
    rows: list[int] = []
    for key in sorted(totals, key=group_of):
        base[key] = len(names)
        group = group_of(key)
        for number in range(-(-totals[key] // most)):
            names.append(_name(prefix, group, number))
            rows.append(min(most, totals[key] - number * most))
    return Deal(first, base, tuple(names), tuple(rows), most)


def _name(prefix: str, group: Group, number: int) -> str:
    parts = [prefix]
    if group.bucket != _WHOLE:
        parts.append(group.bucket)
    if group.partition >= 0:
        parts.append(f"p{group.partition}")
    return "_".join([*parts, str(number)])


def _buckets(rows: pa.RecordBatch, config: SegmentConfig, bucket: str | None) -> Any:
    if bucket is None or config.time_column is None:
        return pa.repeat(pa.scalar(_WHOLE), rows.num_rows)
    column: Any = rows.column(config.time_column)
    if pa.types.is_int64(column.type):
        column = column.cast(pa.timestamp("ms"))
    elif pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    # Not cast to seconds: that rounds times before 1970 up, into the next bucket.
    return pc.strftime(column, format=_FORMATS[bucket]).fill_null(_NO_TIME)


def check_prefix(prefix: str) -> None:
    """Raise unless the names of a load's segments may begin so.

    Raises:
        InvalidRequest: ``bad_name``.
    """
    if not prefix.replace("_", "").replace("-", "").isalnum() or not prefix.isascii() or len(prefix) > 80:
        raise InvalidRequest(
            "bad_name", "segments cannot be called so", found=prefix, expected="letters, digits, _ and -; at most 80"
        )
