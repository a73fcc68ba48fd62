"""Where a generation's source plans its next batch, and what it says of a log that does not hold it."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from anew.api.location import LogLocation
from anew.log.interface import TopicPartition, TopicSpec
from anew.spark.failures import TaskFailed
from anew.spark.jobs import source
from anew.spark.jobs.decoding import InputTask
from anew.testing.builders import append_records
from anew.testing.clock import NOON_MS
from anew.testing.job_builders import an_input
from anew.testing.memory.log import MemoryLog, Topics

_AT = TopicPartition("events", "u", 0)
_START = {"input": "events", "0": 5, "1": 0}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """A topic of two partitions, the first with three records; the source reads it."""
    made = MemoryLog(Topics(), clock=lambda: NOON_MS)
    made.create_topic(TopicSpec("events", "u", 2))
    _write(made, 3)
    monkeypatch.setattr(source, "_log_of", lambda _location: made)
    return made


def _write(log: MemoryLog, records: int) -> None:
    log.append(_AT, append_records([b"k"] * records, [b"v"] * records))


def _reader() -> source._Reader:
    task = InputTask(LogLocation(kind="embedded", address="here"), an_input())
    return source._Reader(source.Reading(task, {0: 0, 1: 0}, 100), None)


@pytest.mark.case("streams:N7")
def test_an_end_that_moved_back_for_a_moment_ends_no_generation(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look finds it where it was, and the batch goes up to there."""
    monkeypatch.setattr(source, "wait_seconds", lambda _seconds: _write(log, 1))
    assert _reader().latestOffset(_START, ReadMaxRows(10)) == {"input": "events", "0": 5, "1": 0}


@pytest.mark.case("streams:N7", "streams:B9")
def test_an_end_that_stays_behind_is_lost(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never taken as the place to go on from; what expired is asked for once."""
    pauses: list[float] = []
    monkeypatch.setattr(source, "wait_seconds", pauses.append)
    with pytest.raises(TaskFailed, match=r"input_lost.*offsets \[0, 3\)"):
        _reader().latestOffset(_START, ReadMaxRows(10))
    assert len(pauses) == 5
    log.truncate_below(_AT, 2)
    with pytest.raises(TaskFailed, match="input_expired"):
        _reader().latestOffset(_START | {"0": 1}, ReadMaxRows(10))
    assert len(pauses) == 5
