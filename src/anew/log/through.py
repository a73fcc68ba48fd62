"""Reading a range of a partition through to its end, which is known to be there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from anew.core.errors import Failed
from anew.log.interface import Log, LogRead, TopicPartition

_BATCH_RECORDS = 30_000
_STALL_SECONDS = 60.0
_IDLE_SECONDS = 0.05


def read_through(log: Log, at: TopicPartition, begin: int, end: int, *, raw: bool = False) -> Iterator[LogRead]:
    """All of [begin, end), read by read, as it is or (``raw``) byte by byte; the last one's ``next_offset`` is ``end``.

    Raises:
        Failed: ``log_stalled``: nothing came although the end was not reached (case B6); what the log raises.
    """
    read_some = log.read_raw if raw else log.read
    offset, deadline = begin, time.monotonic() + _STALL_SECONDS
    while offset < end:
        read = read_some(at, offset, min(_BATCH_RECORDS, end - offset), end)
        if read.next_offset > offset:
            offset, deadline = read.next_offset, time.monotonic() + _STALL_SECONDS
            yield read
        elif time.monotonic() > deadline:
            raise Failed(
                "log_stalled",
                f"partition {at.partition} of {at.topic} cannot be read to its end",
                found=f"nothing after offset {offset}",
                expected=f"records up to {end}",
            )
        else:
            threading.Event().wait(_IDLE_SECONDS)
