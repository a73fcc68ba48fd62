"""Topics on Kafka: made, closed and removed; whose they are.

A topic's identity is the id that Kafka gave it (rule R3), and `TopicSpec.uid` from the moment that it exists. Until its
maker has written that down, the uid that was chosen before marks the topic: as a number in ``delete.retention.ms``,
which has no meaning for a topic whose records are never compacted, and which is there from the topic's first moment.
So a create that is repeated after a lost answer knows its own. ``min.compaction.lag.ms``, as idle here, holds the epoch
of `Topics.set_open`; a closed topic takes messages of one byte at most, so none.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from anew.core.errors import Failed, Refused
from anew.core.topics.topic import fewer_partitions
from anew.log.interface import KEEP_FOR_EVER, Retention, TopicPartition, TopicSpec
from anew.log.kafka.connection import Connection
from anew.log.kafka.failures import LOST
from anew.log.refusals import check_name, check_spec, exists, lost, unknown_partition

_SETTLE_SECONDS = 0.02
_HEARD_SECONDS = 1.0
"""Each broker hears of a topic a moment after it was made: one look is not enough to say that there is none."""
_TAG, _EPOCH, _LARGEST = "delete.retention.ms", "min.compaction.lag.ms", "max.message.bytes"
_KEPT_MS, _KEPT_BYTES = "retention.ms", "retention.bytes"
_CLOSED_BYTES = 1
_LEAST_LARGEST_BYTES = 2 << 20
"""Producers put many records into one message set, whatever the largest of them may be."""
_SETTINGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
}


class Kept(NamedTuple):
    """What brokers keep of a topic, by its settings."""

    retention: Retention
    compacted: bool


class Described(NamedTuple):
    """A topic as brokers describe it."""

    uid: str
    partitions: int


class Topics:
    """The topics of some brokers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, spec: TopicSpec) -> TopicSpec:
        """See `Log.create_topic`."""
        check_spec(spec)
        new = NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=-1,  # the brokers' own default
            config={
                **_settings(spec.retention),
                _TAG: str(_tag(spec.uid)),
                _EPOCH: "0",
                _LARGEST: str(_largest_bytes(spec)),
            },
        )

        def create(seconds: float) -> None:
            self._connection.admin.create_topics([new], operation_timeout=seconds, request_timeout=seconds)[
                spec.name
            ].result(seconds + 1)

        try:
            self._connection.ask(f"create the topic {spec.name}", create)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _refused(spec, error) from error
        found = self._await(spec.name)
        if found.partitions != spec.partitions or not self._is_of(spec.name, found, spec.uid):
            raise exists(spec, found.uid, found.partitions)
        self._check_settings(spec)
        return replace(spec, uid=found.uid)

    def grow(self, name: str, uid: str, partitions: int) -> int:
        """See `Log.add_partitions`.

        Brokers are asked by the topic's name: a topic that takes the place of the one that was meant just then may get
        partitions. It is told of as lost, and only its own maker reads it.
        """
        if self._grown(name, uid, partitions):
            return partitions
        check_spec(TopicSpec(name, uid, partitions))
        new = NewPartitions(name, partitions)

        def grow(seconds: float) -> None:
            admin = self._connection.admin
            admin.create_partitions([new], operation_timeout=seconds, request_timeout=seconds)[name].result(seconds + 1)

        try:
            self._connection.ask(f"add partitions to the topic {name}", grow)
        except KafkaException as error:
            # An attempt whose answer was lost may have made them, or another caller: what is there is looked at.
            if error.args[0].code() not in (*LOST, KafkaError.INVALID_PARTITIONS):
                raise _failed(f"the topic {name} cannot get {partitions} partitions", error) from error
        # Brokers hear of them one after the other.
        deadline = self._connection.deadline()
        while not self._grown(name, uid, partitions):
            if time.monotonic() > deadline:
                raise Failed(
                    "log_failed",
                    f"brokers do not tell of the partitions that the topic {name} was given",
                    expected=f"{partitions} partitions",
                    hint="repeat it, and look at the brokers' logs",
                )
            threading.Event().wait(_SETTLE_SECONDS)
        return partitions

    def delete(self, name: str, uid: str) -> None:
        """See `Log.delete_topic`."""
        found = self.described(name)
        if found is None or not self._is_of(name, found, uid):
            return

        def delete(seconds: float) -> None:
            admin = self._connection.admin
            admin.delete_topics([name], operation_timeout=seconds, request_timeout=seconds)[name].result(seconds + 1)

        try:
            self._connection.ask(f"delete the topic {name}", delete)
        except KafkaException as error:
            if error.args[0].code() not in LOST:
                raise _failed(f"the topic {name} cannot be deleted", error) from error
        # Brokers hear of it one after the other: nobody shall find it again.
        self._await_gone(name, found.uid)

    def spec(self, name: str) -> TopicSpec | None:
        """See `Log.topic`."""
        found = self.described(name)
        return None if found is None else TopicSpec(name, found.uid, found.partitions)

    def cluster_id(self) -> str:
        """What Kafka identifies the cluster by."""

        def describe(seconds: float) -> str:
            return str(self._connection.admin.describe_cluster(request_timeout=seconds).result().cluster_id)

        return self._connection.ask("see which cluster it is", describe)

    def described(self, name: str) -> Described | None:
        """A topic's id and number of partitions as some broker knows it now, None when there is none."""
        check_name(name)

        def describe(seconds: float) -> TopicDescription:
            futures = self._connection.admin.describe_topics(TopicCollection([name]), request_timeout=seconds)
            found: TopicDescription = futures[name].result(seconds + 1)
            return found

        try:
            found = self._connection.ask(f"describe the topic {name}", describe)
        except KafkaException as error:
            if error.args[0].code() in LOST:
                return None
            raise _failed(f"the topic {name} cannot be described", error) from error
        return Described(str(found.topic_id), len(found.partitions))

    def present(self, uids: Mapping[str, str]) -> set[str]:
        """Which of these topics are, at this moment, those with these uids; one request asks for all."""

        def describe(seconds: float) -> set[str]:
            futures = self._connection.admin.describe_topics(TopicCollection(list(uids)), request_timeout=seconds)
            found = set()
            for name, future in futures.items():
                with suppress(KafkaException):
                    if str(future.result(seconds + 1).topic_id) == uids[name]:
                        found.add(name)
            return found

        return self._connection.ask("describe topics", describe)

    def kept(self, name: str) -> Kept:
        """What brokers keep of a topic, as its settings say.

        Raises:
            Failed: ``topic_lost``.
        """
        found = self._configured(name)
        time_ms, size_bytes = int(found[_KEPT_MS]), int(found[_KEPT_BYTES])
        policy = found["cleanup.policy"].split(",")
        # Without `delete` among its policies nothing goes for its age or for size.
        forgets = "delete" in policy
        retention = Retention(
            time_ms if forgets and time_ms >= 0 else None, size_bytes if forgets and size_bytes >= 0 else None
        )
        return Kept(retention, "compact" in policy)

    def check(self, at: TopicPartition) -> Described:
        """Raise unless the topic is, at this moment, the one that was asked for.

        Raises:
            Failed: ``topic_lost``.
            NotFound: ``unknown_partition``.
        """
        deadline = time.monotonic() + _HEARD_SECONDS
        while True:
            found = self.described(at.topic)
            is_it = found is not None and found.uid == at.uid
            if found is not None and is_it and 0 <= at.partition < found.partitions:
                return found
            if time.monotonic() > deadline:
                if found is not None and is_it:
                    raise unknown_partition(at, found.partitions)
                raise lost(at.topic, at.uid, "no such topic" if found is None else f"uid {found.uid}")
            threading.Event().wait(_SETTLE_SECONDS)

    def largest_bytes(self, name: str) -> int | None:
        """How large a message set the topic takes; None when it is closed."""
        found = int(self._configured(name)[_LARGEST])
        return None if found <= _CLOSED_BYTES else found

    def tell(self, spec: TopicSpec, *, is_open: bool, epoch: int) -> bool:
        """Change what brokers are to accept, unless a later epoch has spoken; whether anything was changed.

        The brokers hear of it a moment later: whoever closes a topic has to see that it refuses.
        """
        self.check(TopicPartition(spec.name, spec.uid, 0))
        if epoch + 1 <= int(self._configured(spec.name)[_EPOCH]):
            return False
        largest = _largest_bytes(spec) if is_open else _CLOSED_BYTES
        self._alter(spec.name, {_LARGEST: str(largest), _EPOCH: str(epoch + 1)})
        return True

    def keep(self, name: str, uid: str, retention: Retention) -> None:
        """See `Log.set_retention`.

        Raises:
            Failed: ``topic_lost``, ``log_failed``.
        """
        self.check(TopicPartition(name, uid, 0))
        self._alter(name, _kept(retention))

    def _alter(self, name: str, settings: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, ConfigSource.UNKNOWN_CONFIG, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)

        def alter(seconds: float) -> None:
            admin = self._connection.admin
            admin.incremental_alter_configs([resource], request_timeout=seconds)[resource].result(seconds + 1)

        try:
            self._connection.ask(f"change the settings of the topic {name}", alter)
        except KafkaException as error:
            raise _failed(f"the settings of the topic {name} cannot be changed", error) from error

    def _grown(self, name: str, uid: str, partitions: int) -> bool:
        """Whether the topic has so many partitions.

        Raises:
            Failed: ``topic_lost``.
            Refused: ``fewer_partitions``: it has more.
        """
        found = self.check(TopicPartition(name, uid, 0)).partitions
        if found > partitions:
            raise fewer_partitions(name, found, partitions)
        return found == partitions

    def _is_of(self, name: str, found: Described, uid: str) -> bool:
        return uid == found.uid or self._configured(name)[_TAG] == str(_tag(uid))

    def _configured(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)

        def describe(seconds: float) -> dict[str, ConfigEntry]:
            admin = self._connection.admin
            found: dict[str, ConfigEntry] = admin.describe_configs([resource], request_timeout=seconds)[
                resource
            ].result(seconds + 1)
            return found

        deadline = time.monotonic() + _HEARD_SECONDS
        while True:
            try:
                found = self._connection.ask(f"see the settings of the topic {name}", describe)
                break
            except KafkaException as error:
                if error.args[0].code() not in LOST:
                    raise _failed(f"the settings of the topic {name} cannot be seen", error) from error
                if time.monotonic() > deadline:
                    raise lost(name, None, "no such topic") from error
            threading.Event().wait(_SETTLE_SECONDS)
        return {key: str(entry.value) for key, entry in found.items()}

    def _check_settings(self, spec: TopicSpec) -> None:
        found, expected = self._configured(spec.name), dict(_SETTINGS)
        if spec.retention == KEEP_FOR_EVER:
            # Whose topic has another retention says so himself, and an operator may change it; here nothing may go.
            expected = _settings(spec.retention)
        wrong = {key: found.get(key) for key, value in expected.items() if found.get(key) != value}
        if wrong:
            raise Failed(
                "topic_settings",
                f"the topic {spec.name} has settings under which records may be lost or misplaced",
                found=", ".join(f"{key} = {value}" for key, value in wrong.items()),
                expected=", ".join(f"{key} = {expected[key]}" for key in wrong),
                hint="set them right: kafka-configs.sh --alter",
            )

    def _await(self, name: str) -> Described:
        """The topic once brokers know it."""
        deadline = self._connection.deadline()
        while True:
            found = self.described(name)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise lost(name, None, "no such topic, although it was made")
            threading.Event().wait(_SETTLE_SECONDS)

    def _await_gone(self, name: str, uid: str) -> None:
        deadline = self._connection.deadline()
        while True:
            found = self.described(name)
            if found is None or found.uid != uid or time.monotonic() > deadline:
                return
            threading.Event().wait(_SETTLE_SECONDS)


def _settings(retention: Retention) -> dict[str, str]:
    """What a topic with that retention is made with."""
    return {**_SETTINGS, **_kept(retention)}


def _kept(retention: Retention) -> dict[str, str]:
    kept = {_KEPT_MS: retention.time_ms, _KEPT_BYTES: retention.partition_bytes}
    return {name: str(-1 if value is None else value) for name, value in kept.items()}


def _largest_bytes(spec: TopicSpec) -> int:
    return max(_LEAST_LARGEST_BYTES, spec.max_record_bytes)


def _tag(uid: str) -> int:
    """A number for a uid, within what managed Kafka services accept as ``delete.retention.ms``: a day to two years."""
    least, most = 86_400_000, 63_113_904_000
    return least + int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big") % (most - least)


def _refused(spec: TopicSpec, error: KafkaException) -> Refused:
    wanted = ", ".join(f"{name}={value}" for name, value in _settings(spec.retention).items())
    return Refused(
        "topic_refused",
        f"Kafka does not make the topic {spec.name}",
        found=error.args[0].str(),
        expected=f"{spec.partitions} partitions, with {wanted}",
        hint="look at the brokers' limits and policies",
    )


def _failed(message: str, error: KafkaException) -> Failed:
    return Failed("log_failed", message, found=error.args[0].str(), hint="look at the brokers' logs")
