"""What tests read of a log."""

from __future__ import annotations

from typing import Any

from anew.log.interface import Log, TopicPartition, TopicSpec


def partition_of(topic: TopicSpec, partition: int = 0) -> TopicPartition:
    """A partition of a topic that was made."""
    return TopicPartition(topic.name, topic.uid, partition)


def rows(log: Log, at: TopicPartition, offset: int = 0) -> list[dict[str, Any]]:
    """All records from an offset on, up to the end of now."""
    return _rows_below(log, at, offset, log.offsets(at).end, 7)


def keys(log: Log, at: TopicPartition, offset: int = 0) -> list[bytes]:
    """The keys of all records from an offset on, up to the end of now."""
    return [row["key"] for row in rows(log, at, offset)]


def keys_below(log: Log, at: TopicPartition, offset: int, end: int) -> list[bytes]:
    """The keys of all records from an offset to a known end."""
    return [row["key"] for row in _rows_below(log, at, offset, end, 100)]


def _rows_below(log: Log, at: TopicPartition, offset: int, end: int, step: int) -> list[dict[str, Any]]:
    """Read with the end, because a log may learn a moment late of what was just appended."""
    found: list[dict[str, Any]] = []
    while offset < end:
        read = log.read(at, offset, step, end)
        assert offset < read.next_offset <= end
        found += read.records.to_pylist()
        offset = read.next_offset
    return found
