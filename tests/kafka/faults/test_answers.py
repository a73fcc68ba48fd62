"""Answers that are lost, or that refuse: of records, begins and ends only what is known is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from anew.brokers.cluster import start
from anew.core.errors import OutcomeUnknown
from anew.log.interface import Appended, Log, Offsets, TopicSpec, identified
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import keys, partition_of
from tests.brokers import running_brokers
from tests.kafka.faults.leading import Wavering
from tests.kafka.faults.losing import Losing

_TIMEOUT_SECONDS = 5.0
_LOOKS = 10


@dataclass(frozen=True)
class Ways:
    """The only way to a broker: through the one, then through the other."""

    wavering: Wavering
    losing: Losing

    def open(self) -> Log:
        """A log on the broker."""
        return KafkaLog(f"127.0.0.1:{self.wavering.port}", clock=now_ms, timeout_seconds=_TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    """A broker that these tests share."""
    with running_brokers() as running:
        ports = running.cluster.record.brokers[1]
        with Losing(ports.client) as losing, Wavering(losing.port) as wavering:
            # Its ports are known only once it ran.
            running.cluster.stop()
            seen = f"CLIENT://127.0.0.1:{wavering.port},BROKER://127.0.0.1:{ports.broker}"
            settings = replace(running.cluster.settings, extra={"advertised.listeners": seen})
            running.cluster = start(running.brokers, settings)
            yield Ways(wavering, losing)


@pytest.fixture
def way(ways: Ways) -> Losing:
    """What may lose."""
    return ways.losing


@pytest.fixture
def log(ways: Ways) -> Iterator[Log]:
    """A log on the broker."""
    log = ways.open()
    yield log
    log.close()


@pytest.mark.parametrize("before", [0, 3])
def test_an_append_whose_answer_was_lost_is_found(ways: Ways, log: Log, before: int) -> None:
    """The writer gets offsets and time as if it had been answered, also when this is the first that it appends."""
    at = partition_of(log.create_topic(TopicSpec(f"answered_{before}_rt", f"uid-answered-{before}", 1)))
    somebody, way = ways.open(), ways.losing
    somebody.append(at, some_records(4, "theirs"))
    if before:
        log.append(at, some_records(before, "before"))
    with way.losing("answers"):
        appended = log.append(at, some_records(5, "found"))
    assert way.lost > 0
    first = 4 + before
    times: list[Any] = somebody.read(at, 0, 100, first + 5).records.column("appended_ms").to_pylist()
    assert appended == Appended(first, first + 5, times[first + 4])
    assert log.append(at, some_records(1, "after")).first_offset == first + 5
    expected = [*_named("theirs", 4), *_named("before", before), *_named("found", 5), b"after-0"]
    assert keys(somebody, at) == expected
    somebody.close()


def test_an_append_that_did_not_arrive_is_unknown(way: Losing, log: Log) -> None:
    """Nobody can say that it will not come; nothing was acknowledged, and done again it is there."""
    at = partition_of(log.create_topic(TopicSpec("unheard_rt", "uid-unheard", 1)))
    log.append(at, some_records(2, "before"))
    with way.losing("requests"), pytest.raises(OutcomeUnknown) as caught:
        log.append(at, some_records(3, "lost"))
    assert caught.value.code == "append_unknown"
    assert way.lost > 0
    assert keys(log, at) == _named("before", 2)
    again = log.append(at, some_records(3, "lost"))
    assert again.first_offset == 2
    assert keys(log, at) == [*_named("before", 2), *_named("lost", 3)]


@pytest.mark.parametrize("landed", [True, False])
def test_a_repeated_append_is_in_the_log_once(ways: Ways, log: Log, *, landed: bool) -> None:
    """What landed is found, before what others appended since; what did not is appended once that is certain."""
    at = partition_of(log.create_topic(TopicSpec(f"repeated_{landed}_rt", f"uid-repeated-{landed}", 1)))
    somebody, way, records = ways.open(), ways.losing, identified(some_records(3, "mine"))
    log.append(at, some_records(1, "before"))
    with way.losing("answers and reads" if landed else "requests"), pytest.raises(OutcomeUnknown):
        log.append(at, records)
    somebody.append(at, some_records(1, "theirs"))
    appended = log.append(at, records)
    found = keys(somebody, at)
    assert found.count(b"mine-0") == found.count(b"mine-2") == 1
    assert (found[-1] == b"theirs-0") == landed
    read = somebody.read(at, appended.first_offset, 3, appended.next_offset).records
    assert read.column("key").to_pylist() == _named("mine", 3)
    somebody.close()


def test_a_begin_is_never_the_end_of_a_partition_that_has_records(ways: Ways, log: Log) -> None:
    """Also while its broker becomes the leader: whoever started at the end instead would miss what lies before it."""
    at = partition_of(log.create_topic(TopicSpec("begun_rt", "uid-begun", 1)))
    log.append(at, some_records(3, "there"))
    ways.wavering.wavers = True
    try:
        seen = {log.offsets(at) for _ in range(_LOOKS)}
    finally:
        ways.wavering.wavers = False
    assert seen == {Offsets(0, 3)}
    assert ways.wavering.refused >= _LOOKS


def _named(name: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (name.encode(), number) for number in range(count)]
