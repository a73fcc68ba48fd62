"""How little the embedded log costs who follows many partitions that are still, and that nobody misses a change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anew.core.errors import Failed
from anew.log import embedded, stillness
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicPartition, TopicSpec
from anew.log.partition_file import Opening, PartitionFile
from anew.log.stillness import Stillness
from anew.testing.builders import some_records
from anew.testing.clock import NOON_MS, ManualClock
from anew.testing.log_reading import keys
from anew.testing.telling_contract import check_appends_are_told_of

_MANY = TopicSpec("flights_rt", "uid-1", 100)
_ALL = [TopicPartition(_MANY.name, _MANY.uid, number) for number in range(_MANY.partitions)]


@pytest.fixture
def clock() -> ManualClock:
    """The clock of both handles."""
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedLog]:
    """A log with more partitions than a thread holds open."""
    log = EmbeddedLog(tmp_path, clock=clock)
    log.create_topic(_MANY)
    yield log
    log.close()


@pytest.fixture
def writer(tmp_path: Path, clock: ManualClock, log: EmbeddedLog) -> Iterator[EmbeddedLog]:
    """Another handle on it."""
    assert log is not None
    other = EmbeddedLog(tmp_path, clock=clock)
    yield other
    other.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are opened, one by one; what is still is trusted at once."""
    paths: list[Path] = []

    class Counted(PartitionFile):
        def __init__(self, opening: Opening) -> None:
            paths.append(opening.path)
            super().__init__(opening)

    monkeypatch.setattr(embedded, "PartitionFile", Counted)
    monkeypatch.setattr(stillness, "_COARSE_SECONDS", 0.0)
    return paths


def test_still_partitions_are_not_opened_again(log: EmbeddedLog, writer: EmbeddedLog, opened: list[Path]) -> None:
    """However many a reader follows: a look at one that is still opens nothing, and the next sees a new record."""
    for _ in range(3):
        assert [log.read(at, 0, 10).next_offset for at in _ALL] == [0] * len(_ALL)
    opened.clear()
    for _ in range(5):
        assert [log.read(at, 0, 10).next_offset for at in _ALL] == [0] * len(_ALL)
    assert opened == []
    writer.append(_ALL[7], some_records(2))
    opened.clear()
    assert [at.partition for at in _ALL if log.read(at, 0, 10).next_offset == 2] == [7]
    assert len(opened) <= 1


def test_the_end_of_a_still_partition_is_known_by_time(
    log: EmbeddedLog, writer: EmbeddedLog, clock: ManualClock, opened: list[Path]
) -> None:
    """What is older than a time was found once; it is looked up again when something was appended, or for less."""
    at = _ALL[3]
    writer.append(at, some_records(2))
    clock.advance(1_000)
    for _ in range(3):
        assert log.offset_for_time(at, NOON_MS + 500) == 2
    log.close()
    opened.clear()
    assert log.offset_for_time(at, NOON_MS + 900) == 2
    assert opened == []
    assert log.offset_for_time(at, NOON_MS) == 0
    writer.append(at, some_records(1))
    assert log.offset_for_time(at, NOON_MS + 900) == 2
    assert log.offset_for_time(at, NOON_MS + 2_000) == 3


def test_a_truncation_is_no_stillness(log: EmbeddedLog, writer: EmbeddedLog, opened: list[Path]) -> None:
    """Whoever stands at the end goes on; whoever stands below what is left is told."""
    at = _ALL[0]
    writer.append(at, some_records(3))
    for _ in range(3):
        assert log.read(at, 3, 10).next_offset == 3
    writer.truncate_below(at, 2)
    assert log.read(at, 3, 10).next_offset == 3
    assert len(keys(log, at, 2)) == 1
    with pytest.raises(Failed, match="truncated"):
        log.read(at, 1, 10)
    assert opened


def test_two_writes_at_the_same_time_are_told_apart(tmp_path: Path) -> None:
    """An end is trusted only when it was read after the files had looked the same for longer than clocks are coarse."""
    file, written = tmp_path / "p.sqlite", tmp_path / "p.sqlite-wal"
    file.write_bytes(b"file")
    written.write_bytes(b"one")
    still = Stillness(file)
    first = still.look()
    still.note(5, first, 10.0)
    assert not still.holds(5)
    times = written.stat().st_mtime_ns
    written.write_bytes(b"two")
    os.utime(written, ns=(times, times))
    assert still.look() == first, "the second write cannot be seen"
    still.note(5, still.look(), 12.0)
    assert not still.holds(5)
    still.note(6, still.look(), 12.1)
    still.note(6, still.look(), 14.7)
    assert still.holds(6)
    assert not still.holds(5)
    written.write_bytes(b"three")
    assert not still.holds(6)


def test_an_empty_write_ahead_log_comes_and_goes(tmp_path: Path) -> None:
    """Opening and closing a file that is still looks like nothing; another file at its place does not."""
    file, written = tmp_path / "p.sqlite", tmp_path / "p.sqlite-wal"
    file.write_bytes(b"file")
    still = Stillness(file)
    before = still.look()
    written.touch()
    assert still.look() == before
    _copy_of(file).replace(file)
    assert still.look() != before
    file.unlink()
    still.note(1, still.look(), 0.0)
    still.note(1, still.look(), 100.0)
    assert not still.holds(1), "where there is no file nothing is known"


def _copy_of(file: Path) -> Path:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    return other


def test_appends_are_told_of(log: EmbeddedLog, writer: EmbeddedLog) -> None:
    """Whoever follows the log hears of each append, and of nothing while there is none."""
    check_appends_are_told_of(log, writer, _ALL[0])


def test_a_topic_is_told_of_once(log: EmbeddedLog, writer: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks hears once of each topic that something was appended to, by anybody, and of one that went."""
    monkeypatch.setattr(embedded, "_SAME_TIME_SECONDS", 0.0)
    names = [_MANY.name, "none"]
    assert log.touched(names) == set(names), "the first time nothing is known"
    assert log.touched(names) == set()
    writer.append(_ALL[50], some_records(1))
    assert log.touched(names) == {_MANY.name}
    assert log.touched(names) == set()
    writer.delete_topic(_MANY.name, _MANY.uid)
    assert log.touched(names) == {_MANY.name}


def test_an_append_at_the_same_time_is_told_of(log: EmbeddedLog, writer: EmbeddedLog) -> None:
    """For a moment after a touch it is told again: another one may have had the same time."""
    log.touched([_MANY.name])
    writer.append(_ALL[50], some_records(1))
    assert log.touched([_MANY.name]) == {_MANY.name}
    assert log.touched([_MANY.name]) == {_MANY.name}
