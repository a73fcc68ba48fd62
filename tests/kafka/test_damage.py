"""A broker whose disk changed what was appended."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from anew.brokers.configuration import BrokerFolder
from anew.core.errors import Failed
from anew.log.interface import SetAside, TopicPartition, TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from tests.brokers import running_brokers

_RECORDS = 5


def test_a_flipped_bit_on_a_brokers_disk_is_named(tmp_path: Path) -> None:
    """What a broker gives damaged ends in ``log_corrupt`` with topic, partition and offset; another topic reads on."""
    with running_brokers() as running:
        log = KafkaLog(running.cluster.bootstrap, clock=now_ms)
        topics = [log.create_topic(TopicSpec(name, name, 2)) for name in ("damaged", "whole", "aside")]
        damaged, whole, aside = (TopicPartition(topic.name, topic.uid, 1) for topic in topics)
        for _ in range(2):
            for at in (damaged, whole):
                assert log.append(at, some_records(_RECORDS)).next_offset % _RECORDS == 0
        log.close()
        # In order: after a crash the broker would look at the segment and cut the damaged batch off.
        running.cluster.kill(1, signal.SIGTERM)
        _flip_a_bit(BrokerFolder(running.brokers, 1).data / "damaged-1" / f"{0:020}.log")
        running.cluster.restart(1)
        log = KafkaLog(running.cluster.bootstrap, clock=now_ms)
        assert log.read(damaged, 0, _RECORDS).next_offset == _RECORDS, "the batch before is whole"
        with pytest.raises(Failed) as read:
            # It is there: without its end a read may give nothing yet, where the broker takes its time.
            log.read(damaged, _RECORDS, _RECORDS, 2 * _RECORDS)
        with pytest.raises(Failed) as copied:
            log.set_aside(damaged, [SetAside(_RECORDS, "why")], aside)
        for caught in (read, copied):
            assert caught.value.code == "log_corrupt"
            assert f"partition 1 of damaged is damaged from offset {_RECORDS} on" in str(caught.value)
        assert log.offsets(aside).end == 0, "nothing was copied"
        assert log.read(whole, 0, 2 * _RECORDS).records.num_rows == 2 * _RECORDS
        log.close()


def _flip_a_bit(segment: Path) -> None:
    """Of the last byte of its last batch: behind the batch's header, in what the checksum is of."""
    content = bytearray(segment.read_bytes())
    # What follows stays: a record may end in zeros, and a batch without them would be one that was cut off.
    content[len(content.rstrip(b"\0")) - 2] ^= 1
    segment.write_bytes(content)
