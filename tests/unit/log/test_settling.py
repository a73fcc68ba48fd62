"""An end that lies before an offset which was there is asked again before it is believed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anew.log.interface import Offsets, TopicPartition, TopicSpec
from anew.log.settling import settled_offsets
from anew.testing.builders import append_records
from anew.testing.clock import ManualClock
from anew.testing.memory.log import MemoryLog, Topics

_AT = TopicPartition("events", "u", 0)


@pytest.fixture
def log() -> MemoryLog:
    """A topic with three records."""
    made = MemoryLog(Topics(), clock=ManualClock())
    made.create_topic(TopicSpec("events", "u", 1))
    _write(made, 3)
    return made


def _write(log: MemoryLog, records: int) -> None:
    log.append(_AT, append_records([b"k"] * records, [b"v"] * records))


def _comes_back(log: MemoryLog, after: int) -> tuple[list[float], Callable[[float], None]]:
    """The pauses that were made, and a pause: in the one of that number two more records come into sight."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == after:
            _write(log, 2)

    return pauses, pause


@pytest.mark.case("streams:N7")
def test_an_end_that_is_back_in_a_moment_is_believed(log: MemoryLog) -> None:
    """As soon as it has come to where it was; what is there already takes no pause."""
    pauses, pause = _comes_back(log, 2)
    assert settled_offsets(log, {_AT: 3}, pause) == {_AT: Offsets(0, 3)}
    assert pauses == []
    assert settled_offsets(log, {_AT: 5}, pause) == {_AT: Offsets(0, 5)}
    assert len(pauses) == 2


@pytest.mark.case("streams:N7")
def test_an_end_that_stays_behind_is_what_it_is(log: MemoryLog) -> None:
    """After looks for a second whoever asked judges it."""
    pauses, pause = _comes_back(log, 99)
    assert settled_offsets(log, {_AT: 5}, pause) == {_AT: Offsets(0, 3)}
    assert sum(pauses) == pytest.approx(1.0)
