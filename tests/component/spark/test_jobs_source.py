"""The source of a stream job where its topic gets more partitions: planned without a session, on a real log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from anew.api.location import LogLocation
from anew.core.jobs.inputs import JobInput, Offsets, Span
from anew.core.topics.topic import TopicFormat
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicPartition, TopicSpec
from anew.spark.jobs.decoding import InputTask
from anew.spark.jobs.source import Reading, _Reader
from anew.testing.builders import some_records
from anew.testing.clock import ManualClock

_SPEC = TopicSpec("events", "uid-1", 2)
_ALL = ReadAllAvailable()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """A log with a topic of two partitions, of 3 records and of none."""
    log = EmbeddedLog(tmp_path, clock=ManualClock(), durable=False)
    log.create_topic(_SPEC)
    _append(log, 0, 3)
    yield log
    log.close()


def _append(log: EmbeddedLog, partition: int, records: int) -> None:
    log.append(TopicPartition(_SPEC.name, _SPEC.uid, partition), some_records(records))


def _reader(folder: Path, start: Offsets | None = None) -> _Reader:
    of = JobInput(
        name="events",
        fabric="dc-0",
        topic=_SPEC.name,
        topic_uid=_SPEC.uid,
        partitions=_SPEC.partitions,
        format=TopicFormat.BYTES,
    )
    task = InputTask(LogLocation(kind="embedded", address=str(folder)), of)
    return _Reader(Reading(task, {0: 0, 1: 0} if start is None else start, 4), None)


def _ranges(reader: _Reader, start: dict[str, Any], end: dict[str, Any]) -> list[Span]:
    tasks: Any = reader.partitions(start, end)
    return sorted(chain.from_iterable(task.ranges for task in tasks), key=lambda span: span.partition)


def _span(partition: int, begin: int, end: int) -> Span:
    return Span(input="events", partition=partition, begin=begin, end=end)


@pytest.mark.case("streams:B7")
def test_an_added_partition_is_read_from_its_beginning(log: EmbeddedLog, tmp_path: Path) -> None:
    """By a reader that lives, in its next batch; by one that begins from offsets that do not name it; ever after."""
    reader = _reader(tmp_path)
    first = reader.latestOffset(reader.initialOffset(), _ALL)
    assert first == {"input": "events", "0": 3, "1": 0}
    log.add_partitions(_SPEC.name, _SPEC.uid, 3)
    _append(log, 2, 2)
    for each in (reader, _reader(tmp_path)):
        end = each.latestOffset(first, _ALL)
        assert end == {"input": "events", "0": 3, "1": 0, "2": 2}
        assert _ranges(each, first, end) == [_span(2, 0, 2)]
        assert each.reportLatestOffset() == end
    _append(log, 2, 1)
    following = reader.latestOffset(end, _ALL)
    assert _ranges(reader, end, following) == [_span(2, 2, 3)]


@pytest.mark.case("streams:B7")
def test_an_added_partition_has_its_share_of_a_batch(log: EmbeddedLog, tmp_path: Path) -> None:
    """A batch that does not hold everything takes of each partition by what it has, and none is passed over."""
    log.add_partitions(_SPEC.name, _SPEC.uid, 3)
    _append(log, 2, 9)
    reader = _reader(tmp_path)
    start, seen = reader.initialOffset(), list[Span]()
    while (end := reader.latestOffset(start, ReadMaxRows(4))) != start:
        seen += _ranges(reader, start, end)
        start = end
    assert start == {"input": "events", "0": 3, "1": 0, "2": 9}
    for partition, count in ((0, 3), (2, 9)):
        mine = [span for span in seen if span.partition == partition]
        assert [each.begin for each in mine] == [0, *(each.end for each in mine[:-1])]
        assert mine[-1].end == count
        assert len(mine) > 1


@pytest.mark.case("streams:B7", "streams:B9")
def test_an_added_partition_that_lost_its_beginning_is_not_skipped(log: EmbeddedLog, tmp_path: Path) -> None:
    """Where retention took its first records the source fails, as it does for every other partition."""
    reader = _reader(tmp_path)
    first = reader.latestOffset(reader.initialOffset(), _ALL)
    log.add_partitions(_SPEC.name, _SPEC.uid, 3)
    _append(log, 2, 2)
    log.truncate_below(TopicPartition(_SPEC.name, _SPEC.uid, 2), 1)
    with pytest.raises(Exception, match="input_expired") as caught:
        reader.latestOffset(first, _ALL)
    assert "1 records are gone" in str(caught.value)


def test_what_is_read_until_now_ends_where_it_was_then(log: EmbeddedLog, tmp_path: Path) -> None:
    """A run to what is there leaves a partition that is added meanwhile to the next run."""
    reader = _reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    log.add_partitions(_SPEC.name, _SPEC.uid, 3)
    _append(log, 2, 2)
    assert reader.latestOffset(reader.initialOffset(), _ALL) == {"input": "events", "0": 3, "1": 0}


def test_a_count_that_goes_back_for_a_moment_takes_no_partition_away(log: EmbeddedLog, tmp_path: Path) -> None:
    """One of several brokers may not have heard of a partition yet: what was read of it is not read again."""
    reader = _reader(tmp_path)
    start = {**reader.initialOffset(), "2": 7}
    assert reader.latestOffset(start, _ALL) == {"input": "events", "0": 3, "1": 0, "2": 7}
    assert reader.latestOffset(start, ReadMaxRows(1)) == {"input": "events", "0": 1, "1": 0, "2": 7}


@pytest.mark.case("streams:B8")
def test_a_topic_that_was_made_again_is_no_topic_with_other_partitions(log: EmbeddedLog, tmp_path: Path) -> None:
    """Its partitions are not counted for the one before."""
    reader = _reader(tmp_path)
    log.delete_topic(_SPEC.name, _SPEC.uid)
    log.create_topic(TopicSpec(_SPEC.name, "uid-2", 5))
    with pytest.raises(Exception, match="topic_lost"):
        reader.latestOffset(reader.initialOffset(), _ALL)
