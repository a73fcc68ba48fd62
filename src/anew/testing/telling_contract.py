"""What a log that tells of appends promises to who follows many topics; see `anew.log.interface.Log.touched`."""

from __future__ import annotations

import threading
import time

from anew.log.interface import Log, TopicPartition
from anew.testing.builders import some_records

_SOON_SECONDS = 10.0


def check_appends_are_told_of(reader: Log, writer: Log, at: TopicPartition) -> None:
    """Once all is read nothing is told of until somebody appends; whoever reads what is told of comes to the end.

    Args:
        reader: Follows the partition alone.
        writer: Another handle on the log.
        at: A partition without records.
    """
    offset = 0
    for count in range(1, 4):
        _await_silence(reader, at, offset)
        writer.append(at, some_records(count))
        deadline = time.monotonic() + _SOON_SECONDS
        while offset < writer.offsets(at).end:
            assert time.monotonic() < deadline, "an append was not told of"
            if at.topic in _told(reader, at):
                offset = reader.read(at, offset, 100).next_offset
            else:
                threading.Event().wait(0.01)


def _await_silence(reader: Log, at: TopicPartition, offset: int) -> None:
    deadline = time.monotonic() + _SOON_SECONDS
    while at.topic in _told(reader, at):
        assert time.monotonic() < deadline, "what is still is told of"
        assert reader.read(at, offset, 100).next_offset == offset
        threading.Event().wait(0.01)


def _told(reader: Log, at: TopicPartition) -> frozenset[str]:
    told = reader.touched([at.topic])
    assert told is not None
    return frozenset(told)
