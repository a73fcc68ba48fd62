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

from anew.log.kafka.failures import SILENT, UNDER_A_DEADLINE, refusal, unreachable
from anew.log.kafka.meanings import Meaning, meaning_of

Answer = TypeVar("Answer")
_PAUSE_SECONDS = 0.1
_LEAST_SECONDS = 0.1
_SILENT_SECONDS = 10.0
_ATTEMPTS = 3
"""As many fit into an operation's time, each twice as long as the one before: a broker may be slow, too."""
_ENDING_SECONDS = 5.0
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
        self._clients = _Clients()
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
        """For topics and their settings. Used within `ask`."""
        clients: _Clients = self._own.clients
        with self._lock:
            if clients.admin is None:
                clients.admin = AdminClient(self._with_ears(_ADMIN_SETTINGS), logger=QUIET)
            return clients.admin

    @property
    def offsets(self) -> Consumer:
        """For begins and ends (rule R7: the last stable offset): a consumer that reads nothing. Used within `ask`."""
        clients: _Clients = self._own.clients
        with self._lock:
            if clients.offsets is None:
                told = {"group.id": "anew", "isolation.level": "read_committed"}
                clients.offsets = Consumer(self._with_ears(told), logger=QUIET)
            return clients.offsets

    def ask(self, what: str, act: Callable[[float], Answer]) -> Answer:
        """Do something that changes nothing when it is done twice; failures that may pass are ridden out.

        Args:
            what: Completes "Kafka does not allow to …".
            act: Takes the seconds that are left, raises ``KafkaException``. It is tried once, however late it is.

        Raises:
            Unreachable: ``log_unreachable``: not done within the time.
            Refused: ``log_not_allowed``.
            KafkaException: What else is final, or is so at the deadline, for the caller to understand.
        """
        deadline = self.deadline()
        # One broker is asked at a time. It may be the one that stands still: then the next attempt may ask another.
        most = min(self.timeout_seconds, _SILENT_SECONDS) / (2**_ATTEMPTS - 1)
        silent = 0
        while True:
            left = max(_LEAST_SECONDS, deadline - time.monotonic())
            with self._using() as clients:
                try:
                    return act(min(left, max(_LEAST_SECONDS, most)))
                except FutureTimeoutError:
                    found, is_silent, answered = "no answer", True, None
                except KafkaException as error:
                    code = error.args[0].code()
                    found, is_silent = self.passing(error, what), code in SILENT
                    answered = error if code in UNDER_A_DEADLINE else None
                silent += is_silent
                is_over = time.monotonic() + _PAUSE_SECONDS > deadline
                # librdkafka forgets all brokers for good when one answers that it knows of none, as the only one does
                # in the moment in which it comes back (its issue 5301, open). So the last attempt, and whatever is
                # asked after it, goes over new connections.
                if is_silent and (is_over or silent == _ATTEMPTS - 1):
                    self._renew(clients)
                if is_over:
                    if answered is not None:
                        raise answered
                    raise unreachable(self.bootstrap, self._reason(clients, found), self.timeout_seconds) from None
            most *= 2
            threading.Event().wait(_PAUSE_SECONDS)

    def passing(self, error: KafkaException, what: str) -> str:
        """The words of an error that may pass; raises any other one."""
        told = error.args[0]
        refused = refusal(told.code(), told.str(), what)
        if refused is not None:
            raise refused from None
        if not (told.retriable() or meaning_of(told.code()) is Meaning.NOT_NOW):
            raise error
        return str(told.str())

    def close(self) -> None:
        """Let go of the connections."""
        clients = self._clients
        self._renew(clients)
        clients.ended.wait(_ENDING_SECONDS)

    @contextmanager
    def _using(self) -> Iterator[_Clients]:
        """What this thread asks through within; it is not let go meanwhile."""
        with self._lock:
            clients = self._clients
            clients.users += 1
            clients.unused.clear()
        before, self._own.clients = getattr(self._own, "clients", None), clients
        try:
            yield clients
        finally:
            self._own.clients = before
            with self._lock:
                clients.users -= 1
                if not clients.users:
                    clients.unused.set()

    def _renew(self, clients: _Clients) -> None:
        """Let these clients go, unless somebody did before; who asks from now on gets new ones."""
        with self._lock:
            if self._clients is not clients:
                return
            self._clients = _Clients()
        threading.Thread(target=clients.end, daemon=True).start()

    def _reason(self, clients: _Clients, found: str) -> str:
        """Why there is no answer: what was said of connections, if anything."""
        if clients.admin is not None:
            clients.admin.poll(0)
        said, self._said = self._said, ""
        return f"{found} ({said})" if said else found

    def _with_ears(self, more: Mapping[str, str | int | bool]) -> dict[str, Any]:
        return {**self.settings(more), "error_cb": self._heard}

    def _heard(self, error: KafkaError) -> None:
        self._said = str(error.str())


class _Clients:
    """What brokers are asked through, each made when it is used first.

    Attributes:
        users: How many ask through them just now.
        unused: Set while nobody does.
        ended: Set once they are let go.
    """

    def __init__(self) -> None:
        self.admin: AdminClient | None = None
        self.offsets: Consumer | None = None
        self.users = 0
        self.unused, self.ended = threading.Event(), threading.Event()
        self.unused.set()

    def end(self) -> None:
        """Let them go once nobody uses them; librdkafka may take for ever (its issues 4131 and 4674, open)."""
        self.unused.wait()
        offsets, self.offsets, self.admin = self.offsets, None, None
        if offsets is not None:
            offsets.close()
        self.ended.set()


def _texts(settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    return {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in settings.items()}


class _Quiet:
    """Takes librdkafka's own log lines, which would go to stderr: what matters of them is in errors."""

    def log(self, *_words: object) -> None:
        """Say nothing."""


QUIET = _Quiet()
