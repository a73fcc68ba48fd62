"""A broker that lets clients in and allows them little: each refusal names what it was, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from anew.brokers.configuration import BrokerSettings
from anew.core.errors import Refused
from anew.log.interface import Offsets, TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import keys, partition_of
from tests.brokers import running_brokers
from tests.cluster.commands import Anew, wait_until
from tests.kafka.topics import QUIET
from tests.ports import port_of

_SECRET = "correct-horse-battery"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_BROKER = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": f'{_LOGIN} user_owner="owner" user_alice="{_SECRET}";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:owner",
}


def _properties(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


@dataclass(frozen=True, slots=True)
class Guarded:
    """A broker with an authorizer; ``owner`` may do everything, ``alice`` what is given to her."""

    bootstrap: str
    owner: KafkaLog
    alice: KafkaLog

    def allow(self, topic: str, *operations: AclOperation) -> None:
        """Give alice rights on a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **_properties("owner", "owner")}, logger=QUIET)
        made = admin.create_acls(
            [
                AclBinding(
                    ResourceType.TOPIC,
                    topic,
                    ResourcePatternType.LITERAL,
                    "User:alice",
                    "*",
                    operation,
                    AclPermissionType.ALLOW,
                )
                for operation in operations
            ]
        )
        for future in made.values():
            future.result(30)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """The broker, and a log for each of the two users."""
    with running_brokers(BrokerSettings(1, _BROKER)) as running:
        bootstrap = running.cluster.bootstrap
        owner = KafkaLog(bootstrap, clock=now_ms, properties=_properties("owner", "owner"))
        alice = KafkaLog(bootstrap, clock=now_ms, properties=_properties("alice", _SECRET))
        yield Guarded(bootstrap, owner, alice)
        owner.close()
        alice.close()


def test_a_cluster_without_rights_does_not_start(guarded: Guarded, tmp_path: Path) -> None:
    """``anew up`` ends with 3, says what is not allowed, has started nothing, and shows no password."""
    file = tmp_path / "kafka.properties"
    lines = [f"{name}={value}" for name, value in _properties("alice", _SECRET).items()]
    file.write_text("\n".join(lines), encoding="utf-8")
    file.chmod(0o600)
    settings = {
        "ANEW_PORT": str(port_of("never started")),
        "ANEW_LOG": f"kafka://{guarded.bootstrap}",
        "ANEW_KAFKA_PROPERTIES_FILE": str(file),
    }
    anew = Anew(tmp_path / "home", settings)
    answer = anew.run("up", "--detach")
    assert (answer.code, answer.error["code"]) == (3, "log_not_allowed")
    assert "describe the topic" in answer.error["message"]
    assert not (anew.home / "cluster.json").exists()
    assert _SECRET not in answer.out + answer.err + anew.run("doctor").out


def test_each_refused_operation_is_named_and_changes_nothing(guarded: Guarded) -> None:
    """Who may only look is refused everything else, at once; the topic is as it was."""
    topic = guarded.owner.create_topic(TopicSpec("guarded_rt", "uid-guarded", 1))
    at = partition_of(topic)
    guarded.owner.append(at, some_records(3, "owned"))
    guarded.allow(topic.name, AclOperation.DESCRIBE)
    wait_until(lambda: _may(lambda: guarded.alice.topic(topic.name)), "alice's right to be known")
    forbidden: dict[str, Callable[[], Any]] = {
        "write to guarded_rt": lambda: guarded.alice.append(at, some_records(1, "hers")),
        "read guarded_rt": lambda: guarded.alice.read(at, 0, 10),
        "delete records of": lambda: guarded.alice.truncate_below(at, 2),
        "delete the topic guarded_rt": lambda: guarded.alice.delete_topic(topic.name, topic.uid),
        "create the topic other_rt": lambda: guarded.alice.create_topic(TopicSpec("other_rt", "uid-other", 1)),
        "settings of the topic guarded_rt": lambda: guarded.alice.set_open(topic, is_open=False, epoch=1),
    }
    for what, act in forbidden.items():
        with pytest.raises(Refused) as caught:
            act()
        assert caught.value.code == "log_not_allowed", what
        assert what in caught.value.message
        assert _SECRET not in str(caught.value)
    assert guarded.owner.offsets(at) == Offsets(0, 3)
    assert keys(guarded.owner, at) == [b"owned-0", b"owned-1", b"owned-2"]
    assert guarded.owner.topic("other_rt") is None


def test_a_right_that_is_given_acts_without_a_restart(guarded: Guarded) -> None:
    """A writer that was refused writes once it may."""
    topic = guarded.owner.create_topic(TopicSpec("granted_rt", "uid-granted", 1))
    at = partition_of(topic)
    guarded.allow(topic.name, AclOperation.DESCRIBE)
    wait_until(lambda: _may(lambda: guarded.alice.topic(topic.name)), "alice's right to be known")
    with pytest.raises(Refused):
        guarded.alice.append(at, some_records(1))
    guarded.allow(topic.name, AclOperation.WRITE)
    wait_until(lambda: _may(lambda: guarded.alice.append(at, some_records(1, "hers"))), "alice to be let in")
    assert set(keys(guarded.owner, at)) == {b"hers-0"}


def _may(act: Callable[[], object]) -> bool:
    try:
        act()
    except Refused:
        return False
    return True
