"""What a log promises of repeated appends that knows them itself, whoever repeats them; see `anew.log.interface`."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.core.errors import Refused
from anew.log.interface import Log, TopicPartition, TopicSpec, identified
from anew.testing.builders import append_records, some_records
from anew.testing.clock import ManualClock
from anew.testing.log_contract import ClockedLogContract


class RepeatedAppendContract(ClockedLogContract):
    """`ClockedLogContract`, and that appends are known by their ids."""

    def test_a_repeated_append_is_found(
        self, log: Log, at: TopicPartition, topic: TopicSpec, tmp_path: Path, clock: ManualClock
    ) -> None:
        """Under its id an append is made once, through whatever handle, later, and while the topic takes nothing."""
        records = identified(some_records(3))
        first = log.append(at, records)
        deleted = log.append(at, append_records([b"key-0"], [None]))
        clock.advance(1_000)
        other = self.open_log(tmp_path, clock)
        assert log.append(at, records) == other.append(at, records) == first
        log.set_open(topic, is_open=False, epoch=5)
        assert other.append(at, records) == first
        with pytest.raises(Refused):
            other.append(at, identified(some_records(1)))
        other.close()
        assert log.offsets(at).end == deleted.next_offset

    def test_a_refused_append_is_made_when_it_is_repeated(
        self, log: Log, at: TopicPartition, topic: TopicSpec, clock: ManualClock
    ) -> None:
        """What was refused is not there: its repeat is judged anew."""
        records = identified(some_records(2))
        log.set_open(topic, is_open=False, epoch=5)
        with pytest.raises(Refused):
            log.append(at, records)
        log.set_open(topic, is_open=True, epoch=6)
        assert log.append(at, records).first_offset == 0
        assert log.offsets(at).end == 2
