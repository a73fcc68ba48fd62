"""Opening a log by the kind and address that configuration and wire carry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from anew.core.errors import InvalidRequest
from anew.log.interface import Log

TIMEOUT_SECONDS = 10.0
BUILD_TIMEOUT_SECONDS = 60.0
"""A task of a build waits longer: brokers may take a while to agree on who leads, and it ends its whole build."""


class Location(Protocol):
    """Where a log is."""

    @property
    def kind(self) -> str:
        """``embedded`` or ``kafka``."""

    @property
    def address(self) -> str:
        """A directory, or ``HOST:PORT,…`` of brokers."""

    @property
    def properties_file(self) -> str | None:
        """Of Kafka: librdkafka's settings, such as those of TLS and SASL, as ``name=value`` lines."""


def no_clock() -> int:
    """The clock of a log that is only read."""
    raise AssertionError("who reads does not append, so that the time is never asked for")


def open_log(
    location: Location,
    *,
    clock: Callable[[], int],
    skew_limit_ms: int = 60_000,
    durable: bool = True,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Log:
    """The log at a location.

    Args:
        location: Where it is.
        clock: The time in ms since the epoch.
        skew_limit_ms: How far ahead a time that a writer gives may be.
        durable: Of the embedded log: whether an append is on disk before it is acknowledged.
        timeout_seconds: Of Kafka: how long an operation may take.

    Raises:
        InvalidRequest: ``unknown_log_kind``, ``bad_kafka_properties``.
    """
    kind, address = location.kind, location.address
    # Each kind brings libraries of its own, which those who open another one, or none, do without.
    if kind == "embedded":
        from anew.log.embedded import EmbeddedLog

        return EmbeddedLog(Path(address), clock=clock, skew_limit_ms=skew_limit_ms, durable=durable)
    if kind == "kafka":
        from anew.log.kafka.kafka_log import KafkaLog
        from anew.log.kafka.properties import read_properties

        file = location.properties_file
        properties = {} if file is None else read_properties(Path(file))
        return KafkaLog(
            address, clock=clock, properties=properties, skew_limit_ms=skew_limit_ms, timeout_seconds=timeout_seconds
        )
    raise InvalidRequest("unknown_log_kind", "there is no such kind of log", found=kind, expected="embedded, kafka")


def cluster_of(location: Location) -> str:
    """What identifies the cluster of brokers, or the directory, at a location.

    Raises:
        Unreachable: No broker answers.
        InvalidRequest: ``unknown_log_kind``, ``bad_kafka_properties``.
    """
    if location.kind != "kafka":
        return f"{location.kind} log in {location.address}"
    from anew.log.kafka.kafka_log import KafkaLog

    log = open_log(location, clock=no_clock)
    try:
        return log.cluster_id() if isinstance(log, KafkaLog) else ""
    finally:
        log.close()
