"""How brokers are asked for anything but records: one deadline per operation, whatever passes in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from anew.log.kafka.failures import refusal, unreachable

Answer = TypeVar("Answer")
_PAUSE_SECONDS = 0.1
_LEAST_SECONDS = 0.1
_SILENT_SECONDS = 10.0
_ATTEMPTS = 3
"""As many fit into an operation's time, each twice as long as the one before: a broker may be slow, too."""
_ADMIN_SETTINGS = {
    # What is asked of "the controller" goes to the broker that was named last, also when that has died since: clients
    # learn of another one with the next metadata, of which they ask every five minutes otherwise.
    "topic.metadata.refresh.interval.ms": 1_000,
}


class Connection:
    """The brokers at an address. Safe to use from several threads; connects when it is used first."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str], timeout_seconds: float) -> None:
        """Keep how to connect.

        Args:
            bootstrap: ``HOST:PORT,…`` of some brokers.
            properties: librdkafka's settings, such as those of TLS and SASL.
            timeout_seconds: How long one operation may take.
        """
        self.bootstrap = bootstrap
        self.timeout_seconds = timeout_seconds
        self._properties = dict(properties)
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._offsets: Consumer | None = None
        self._said = ""
        self._own = threading.local()

    @contextmanager
    def operation(self) -> Iterator[None]:
        """What this thread asks within, step by step, has one deadline for all of it: that of the outermost."""
        if getattr(self._own, "deadline", None) is not None:
            yield
            return
        self._own.deadline = time.monotonic() + self.timeout_seconds
        try:
            yield
        finally:
            self._own.deadline = None

    def deadline(self) -> float:
        """Until when what this thread begins now may take, in `time.monotonic`'s seconds."""
        begun: float | None = getattr(self._own, "deadline", None)
        return time.monotonic() + self.timeout_seconds if begun is None else begun

    def settings(self, more: Mapping[str, str | int | bool]) -> dict[str, str]:
        """The settings of librdkafka for a client: ours, those of security, and ``more``."""
        # Who may wait for long still turns from a broker that is silent to another one.
        milliseconds = int(min(self.timeout_seconds, _SILENT_SECONDS) * 1000)
        ours: dict[str, str | int | bool] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "anew",
            "allow.auto.create.topics": False,
            "socket.keepalive.enable": True,
            "socket.timeout.ms": milliseconds,
            "socket.connection.setup.timeout.ms": max(1000, milliseconds),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.fast.interval.ms": 100,
        }
        return {**_texts(ours), **self._properties, **_texts(more)}

    @property
    def admin(self) -> AdminClient:
        """For topics and their settings."""
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(self._with_ears(_ADMIN_SETTINGS), logger=QUIET)
            return self._admin

    @property
    def offsets(self) -> Consumer:
        """For begins and ends: a consumer that reads nothing; the end is the last stable offset (rule R7)."""
        with self._lock:
            if self._offsets is None:
                told = {"group.id": "anew", "isolation.level": "read_committed"}
                self._offsets = Consumer(self._with_ears(told), logger=QUIET)
            return self._offsets

    def ask(self, what: str, act: Callable[[float], Answer]) -> Answer:
        """Do something that changes nothing when it is done twice; failures that may pass are ridden out.

        Args:
            what: Completes "Kafka does not allow to …".
            act: Takes the seconds that are left, raises ``KafkaException``. It is tried once, however late it is.

        Raises:
            Unreachable: ``log_unreachable``: not done within the time.
            Refused: ``log_not_allowed``.
            KafkaException: What else is final, for the caller to understand.
        """
        deadline = self.deadline()
        # One broker is asked at a time. It may be the one that stands still: then the next attempt may ask another.
        most = min(self.timeout_seconds, _SILENT_SECONDS) / (2**_ATTEMPTS - 1)
        while True:
            left = max(_LEAST_SECONDS, deadline - time.monotonic())
            try:
                return act(min(left, max(_LEAST_SECONDS, most)))
            except FutureTimeoutError:
                found = "no answer"
            except KafkaException as error:
                found = self.passing(error, what)
            if time.monotonic() + _PAUSE_SECONDS > deadline:
                raise unreachable(self.bootstrap, self.reason(found), self.timeout_seconds) from None
            most *= 2
            threading.Event().wait(_PAUSE_SECONDS)

    def passing(self, error: KafkaException, what: str) -> str:
        """The words of an error that may pass; raises any other one."""
        told = error.args[0]
        refused = refusal(told.code(), told.str(), what)
        if refused is not None:
            raise refused from None
        if not (told.retriable() or told.code() in _MAY_PASS):
            raise error
        return str(told.str())

    def reason(self, found: str) -> str:
        """Why there is no answer: what was said of connections, if anything."""
        if self._admin is not None:
            self._admin.poll(0)
        said, self._said = self._said, ""
        return f"{found} ({said})" if said else found

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            if self._offsets is not None:
                self._offsets.close()
            self._offsets = self._admin = None

    def _with_ears(self, more: Mapping[str, str | int | bool]) -> dict[str, Any]:
        return {**self.settings(more), "error_cb": self._heard}

    def _heard(self, error: KafkaError) -> None:
        self._said = str(error.str())


def _texts(settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    return {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in settings.items()}


class _Quiet:
    """Takes librdkafka's own log lines, which would go to stderr: what matters of them is in errors."""

    def log(self, *_words: object) -> None:
        """Say nothing."""


QUIET = _Quiet()
_MAY_PASS = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        # What a client has of a broker that left the cluster: where else to ask is known a moment later.
        KafkaError._DESTROY_BROKER,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._WAIT_CACHE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._WAIT_COORD,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REBOOTSTRAP_REQUIRED,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
