"""Brokers as tests use them: killed, stopped, started again, each with settings of the test's own."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from anew.brokers.cluster import Brokers, start, stop
from anew.brokers.configuration import BrokerSettings
from anew.core.errors import Failed, Refused
from tests.brokers import broker_home, heal, quickly, running_brokers
from tests.cluster.commands import wait_until
from tests.kafka.topics import QUIET, make_topic, read, write

_VALUES = [b"one", b"two", b"three"]


@pytest.fixture(scope="module")
def three() -> Iterator[Brokers]:
    """Three brokers that tests of this file share."""
    with running_brokers(BrokerSettings(3)) as running:
        yield running.cluster


@pytest.fixture
def kept(three: Brokers) -> Iterator[Brokers]:
    """The same; they all run before the next test."""
    yield three
    heal(three)


def _serving(cluster: Brokers) -> list[int]:
    return [broker.id for broker in cluster.status().brokers if broker.answers]


def test_one_broker_serves_all_tests_of_a_run(brokers: Brokers) -> None:
    """It answers, and keeps records."""
    assert brokers.status().healthy
    make_topic(brokers.bootstrap, "shared")
    write(brokers.bootstrap, "shared", _VALUES)
    assert read(brokers.bootstrap, "shared", 3) == _VALUES


def test_three_brokers_outlast_any_one_of_them(kept: Brokers) -> None:
    """With one broker killed acknowledged records are read and others written; it comes back and catches up."""
    make_topic(kept.bootstrap, "outlasting", 3)
    for broker in kept.record.brokers:
        write(kept.bootstrap, "outlasting", [str(broker).encode()])
        kept.kill(broker)
        status = kept.status()
        assert [b.id for b in status.brokers if not b.alive] == [broker]
        assert not status.healthy
        write(kept.bootstrap, "outlasting", _VALUES)
        kept.restart(broker)
        wait_until(lambda: kept.status().healthy, "all to be there again")
    expected = [value for broker in (1, 2, 3) for value in (str(broker).encode(), *_VALUES)]
    assert read(kept.bootstrap, "outlasting", len(expected)) == expected


def test_all_three_may_go_at_once(kept: Brokers) -> None:
    """After SIGKILL of all of them they are started one by one, and what was acknowledged is there."""
    make_topic(kept.bootstrap, "gone_at_once", 3)
    write(kept.bootstrap, "gone_at_once", _VALUES)
    for broker in kept.record.brokers:
        kept.kill(broker)
    assert _serving(kept) == []
    for broker in kept.record.brokers:
        kept.restart(broker)
    assert kept.status().healthy
    assert read(kept.bootstrap, "gone_at_once", 3) == _VALUES


def test_a_broker_can_stand_still_and_go_on(kept: Brokers) -> None:
    """SIGSTOP: it lives, does not answer, and is missed by the others; SIGCONT: it is back by itself."""
    kept.kill(2, signal.SIGSTOP)
    wait_until(lambda: _serving(kept) == [], "the others to miss it")
    assert [broker.alive for broker in kept.status().brokers] == [True, True, True]
    kept.kill(2, signal.SIGCONT)
    wait_until(lambda: kept.status().healthy, "all to be there again")


def test_a_broker_is_started_with_a_test_s_own_settings() -> None:
    """Settings of Kafka and variables of one broker: both reach its process, also after a restart."""
    settings = BrokerSettings(1, {"message.max.bytes": "2000"}, {1: {"OF_THE_TEST": "yes"}})
    with running_brokers(settings) as running:
        running.cluster.restart(1)
        environment = psutil.Process(running.pid).environ()
        assert environment["OF_THE_TEST"] == "yes"
        assert not {"ANEW_TOKEN", "ANEW_TOKEN_FILE"} & set(environment)
        make_topic(running.cluster.bootstrap, "short")
        with pytest.raises(AssertionError, match="Message size too large"):
            write(running.cluster.bootstrap, "short", [b"x" * 3000])
        write(running.cluster.bootstrap, "short", [b"x"])


def test_brokers_that_cannot_start_say_why() -> None:
    """The reason is Kafka's own, and nothing runs on; a start with other settings puts it right."""
    with running_brokers() as running:
        cluster = running.cluster
        cluster.stop()
        with pytest.raises(Failed, match=r"ClassNotFoundException: no\.such\.Authorizer") as caught:
            start(running.brokers, quickly(BrokerSettings(1, {"authorizer.class.name": "no.such.Authorizer"})))
        assert caught.value.code == "start_failed"
        assert cluster.pid(1) is None
        assert start(running.brokers, quickly(BrokerSettings(1))).status().healthy


def test_a_cluster_that_cannot_be_formatted_says_why() -> None:
    """The reason is that of Kafka's own tool; nothing half made counts, and other settings put it right."""
    with broker_home() as home:
        with pytest.raises(Failed, match=r"num\.io\.threads") as caught:
            start(home.brokers, quickly(BrokerSettings(3, {"num.io.threads": "many"})))
        assert caught.value.code == "format_failed"
        assert stop(home.brokers) is False
        assert start(home.brokers, quickly(BrokerSettings(3))).status().healthy
        assert list(home.brokers.rglob("formatting.*")) == []


def test_clients_can_be_made_to_authenticate() -> None:
    """A listener of theirs asks for a password and an authorizer for rights; brokers and this package need neither."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f'{login} user_alice="right";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running_brokers(BrokerSettings(1, settings)) as running:
        assert running.cluster.status().healthy
        told = {"bootstrap.servers": running.cluster.bootstrap, "security.protocol": "SASL_PLAINTEXT"}
        told |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
            AdminClient({**told, "sasl.password": "wrong"}, logger=QUIET).list_topics(timeout=3)
        alice = AdminClient({**told, "sasl.password": "right"}, logger=QUIET)
        assert list(alice.list_topics(timeout=30).brokers) == [1]
        with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
            alice.create_topics([NewTopic("forbidden", 1, 1)])["forbidden"].result(30)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "gzip"])
def test_every_compression_is_understood(brokers: Brokers, compression: str) -> None:
    """With the native libraries that the jars bring, unpacked in the broker's own directory and nowhere else."""
    make_topic(brokers.bootstrap, compression)
    values = [b"a" * 1000] * 100
    write(brokers.bootstrap, compression, values, compression)
    assert read(brokers.bootstrap, compression, 100) == values
    unpacked = list((brokers.directory / "broker-1" / "tmp").glob(f"*{compression}*"))
    assert bool(unpacked) == (compression in ("snappy", "lz4")), "zstd's takes its own away, and gzip is Java's"


def test_a_broker_that_does_not_run_takes_no_signal(brokers: Brokers) -> None:
    """Nor does one that was never there."""
    with pytest.raises(Refused) as caught:
        brokers.kill(2)
    assert caught.value.code == "broker_down"
    assert brokers.status().healthy
