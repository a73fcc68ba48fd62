"""What somebody else does to a store's topic, or to its broker's clock: seen and said, and nothing is passed over."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from anew.brokers.configuration import BrokerSettings
from anew.core.errors import InvalidRequest
from anew.log.interface import TopicPartition as LogPartition
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.runtime.connect import connect
from tests.brokers import running_brokers
from tests.cluster.commands import wait_until
from tests.crash.crashing import Crashing
from tests.kafka.faults.stores import crashing_on
from tests.kafka.topics import QUIET

pytestmark = pytest.mark.timeout(600)

_FIVE_MINUTES_MS = 299_789
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Handled:
    """A cluster of two nodes on one broker, and what somebody else can do there.

    Attributes:
        admin: Somebody else's.
        shift: Where the broker's clock finds how far it is off.
    """

    crashing: Crashing
    bootstrap: str
    admin: AdminClient
    shift: Path

    @contextmanager
    def clock_shifted(self, shift_ms: int) -> Iterator[None]:
        """The broker's clock is off by this much, and nobody else's."""
        self.shift.write_text(str(shift_ms), encoding="ascii")
        try:
            yield
        finally:
            self.shift.unlink()

    @contextmanager
    def nodes_stopped(self) -> Iterator[None]:
        """Both nodes stand still."""
        pids = [self.crashing.pid(node) for node in ("node-1", "node-2")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def append(self, store: str, changes: dict[str, Any]) -> None:
        """Write, acknowledged by the log; nodes may not have it yet."""
        with connect(home=str(self.crashing.anew.home)) as cluster, cluster.store(store).writer() as writer:
            for key, value in changes.items():
                writer.put(key, value)

    def delete_all(self, topic: str, partitions: int) -> list[int]:
        """Delete every record, as retention does; where the partitions begin from then on."""
        all_of_it = [TopicPartition(topic, partition, OFFSET_END) for partition in range(partitions)]
        done = self.admin.delete_records(all_of_it, request_timeout=_SECONDS)
        return [done[each].result(_SECONDS).low_watermark for each in all_of_it]

    def errors(self, store: str) -> list[str]:
        """What replicas of a store say is wrong."""
        found = self.crashing.anew.run_here("status").json["problems"]
        return [json.dumps(problem) for problem in found if store in json.dumps(problem)]


@pytest.fixture(scope="module")
def handled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handled]:
    """The cluster, and the broker with a clock of its own."""
    folder = tmp_path_factory.mktemp("foreign")
    library, shift = folder / "clock_shift.so", folder / "shift_ms"
    source = Path(__file__).with_name("clock_shift.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    clock = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(shift)}
    with running_brokers(BrokerSettings(1, environment={1: clock})) as running:
        bootstrap = running.cluster.bootstrap
        with crashing_on(running.cluster, folder, ANEW_LOW_WATER_INTERVAL_SECONDS="5") as crashing:
            admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET)
            yield Handled(crashing, bootstrap, admin, shift)


@pytest.mark.case("rules:R6")
def test_what_is_written_later_wins_although_the_broker_s_clock_stepped_back(handled: Handled) -> None:
    """Append times run backwards, and of a key's records the last one counts: in nodes, and in scans from anywhere."""
    store = handled.crashing.store("stepped")
    anew = handled.crashing.anew
    handled.crashing.write(store, {"k": {"name": "old", "age": 1}, "gone": {"name": "old", "age": 1}})
    with handled.clock_shifted(-_FIVE_MINUTES_MS):
        handled.crashing.write(store, {"k": {"name": "new", "age": 2}, "gone": None, "late": {"name": "new", "age": 2}})
        times = _append_times(handled.bootstrap, "stepped_rt")
        steps = [after - before for each in times for before, after in itertools.pairwise(each)]
        assert min(steps) < -_FIVE_MINUTES_MS // 2, f"the clock did not step back: {times}"
        expected = _people() | {'"k"': {"name": "new", "age": 2}, '"late"': {"name": "new", "age": 2}}
        assert anew.scan(store) == expected
        anew.here("repush", store)
        assert anew.scan(store) == expected
    handled.crashing.write(store, {"k": {"name": "newest", "age": 3}})
    expected['"k"'] = {"name": "newest", "age": 3}
    assert anew.scan(store) == expected
    assert anew.run_here("store", "verify", store).code == 0
    anew.here("repush", store)
    assert anew.scan(store) == expected


@pytest.mark.case("rules:R2", "rules:R3")
def test_what_retention_took_is_said_and_never_skipped(handled: Handled) -> None:
    """Records that nodes had still to apply are deleted by somebody else: replicas say so, and a repush is refused."""
    store = handled.crashing.store("retained")
    anew = handled.crashing.anew
    with handled.nodes_stopped():
        handled.append(store, {f"lost{n}": {"name": "lost", "age": n} for n in range(20)})
        begin = handled.delete_all("retained_rt", partitions=2)
        handled.append(store, {"after": {"name": "after", "age": 1}})

    def is_said_of_both() -> bool:
        shown = " ".join(handled.errors(store))
        return all(f"expected: {offset} to" in shown for offset in begin)

    wait_until(is_said_of_both, "the loss to be said of both partitions")
    repush = anew.run_here("repush", store)
    assert (repush.code, repush.error["code"]) == (3, "truncated_above_start"), repush.out
    # What they had applied before is not in the log any more: they are the only ones that have it.
    found = anew.scan(store)
    assert found == _people(), found


@pytest.mark.case("rules:R3")
def test_a_topic_made_again_under_a_store_is_another_one(handled: Handled) -> None:
    """Its records are nobody's: writes and a repush are refused, nodes serve what they have and say so."""
    store = handled.crashing.store("again")
    anew = handled.crashing.anew
    before = anew.scan(store)
    handled.admin.delete_topics(["again_rt"])["again_rt"].result(_SECONDS)
    wait_until(lambda: "again_rt" not in handled.admin.list_topics(timeout=_SECONDS).topics, "the topic to go")
    handled.admin.create_topics([NewTopic("again_rt", 2, 1)])["again_rt"].result(_SECONDS)
    row = json.dumps({"key": "k", "value": {"name": "n", "age": 1}})
    written = anew.run_here("write", store, "-", stdin=row + "\n")
    assert written.code == 1, written.out
    assert "topic_lost" in written.out
    repush = anew.run_here("repush", store)
    assert repush.code in (1, 3), repush.out
    assert repush.error["code"] == "topic_lost"
    wait_until(lambda: bool(handled.errors(store)), "the loss to be said")
    end = handled.admin.list_topics("again_rt", timeout=_SECONDS)
    assert end is not None
    assert anew.scan(store) == before


def test_a_record_too_large_for_a_topic_is_named(handled: Handled) -> None:
    """Somebody lowered the topic's limit: the writer is told which key, how large it is and what the limit is."""
    store = handled.crashing.store("narrow")
    resource = ConfigResource(
        ResourceType.TOPIC,
        "narrow_rt",
        incremental_configs=[
            ConfigEntry(
                "max.message.bytes",
                "5000",
                ConfigSource.UNKNOWN_CONFIG,
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    handled.admin.incremental_alter_configs([resource])[resource].result(_SECONDS)
    with connect(home=str(handled.crashing.anew.home)) as cluster, cluster.store(store).writer() as writer:
        writer.put("small", {"name": "n", "age": 1})
        writer.put("huge", {"name": "n" * 6_000, "age": 1})
        with pytest.raises(InvalidRequest) as caught:
            _flush_until_refused(writer)
    assert caught.value.code == "record_too_large"
    said = str(caught.value)
    assert "huge" in said, said
    assert "60" in str(caught.value.found)
    assert "5000" in str(caught.value.expected)


def _flush_until_refused(writer: Any) -> None:
    """A broker learns of a changed limit a moment after it was made."""

    def flush() -> bool:
        writer.put("huge", {"name": "n" * 6_000, "age": 1})
        writer.flush()
        return False

    wait_until(flush, "a refusal")


def _append_times(bootstrap: str, name: str) -> list[list[Any]]:
    """Of each partition, by offset."""
    log = KafkaLog(bootstrap, clock=now_ms)
    try:
        topic = log.topic(name)
        assert topic is not None
        found: list[list[Any]] = []
        for partition in range(topic.partitions):
            at = LogPartition(name, topic.uid, partition)
            found.append(log.read(at, 0, 1_000, log.offsets(at).end).records.column("appended_ms").to_pylist())
        return found
    finally:
        log.close()


def _people() -> dict[str, Any]:
    return {f'"p{n}"': {"name": f"name {n}", "age": n + 20} for n in range(20)}


@pytest.mark.case("rules:R8")
def test_partitions_that_somebody_added_are_told_of(handled: Handled) -> None:
    """What our writers write goes where it went, and is served; that other producers may write past us is said."""
    store = handled.crashing.store("grown")
    handled.crashing.write(store, {"a": {"name": "before", "age": 1}})
    before = len(handled.admin.list_topics("grown_rt", timeout=_SECONDS).topics["grown_rt"].partitions)
    grown = NewPartitions("grown_rt", before + 2)
    handled.admin.create_partitions([grown])["grown_rt"].result(_SECONDS)
    handled.crashing.write(store, {"b": {"name": "after", "age": 2}})
    wait_until(lambda: bool(handled.errors("grown_rt")), "the new partitions to be told of")
    (error,) = handled.errors("grown_rt")
    assert f"has {before + 2} partitions, and was made with {before}" in error
    anew = handled.crashing.anew
    anew.here("repush", store)
    assert anew.scan(store) == _people() | {
        '"a"': {"name": "before", "age": 1},
        '"b"': {"name": "after", "age": 2},
    }
