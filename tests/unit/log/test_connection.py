"""How long brokers are asked: one deadline per operation, however many questions it takes."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from anew.core.errors import Unreachable
from anew.log.kafka.connection import Connection

_SECONDS = 0.6


def _silent(_seconds: float) -> None:
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _asked(connection: Connection) -> float:
    """The seconds until a question was given up."""
    began = time.monotonic()
    with pytest.raises(Unreachable, match="does not answer"):
        connection.ask("see anything", _silent)
    return time.monotonic() - began


def test_an_operation_has_one_deadline_for_all_that_it_asks() -> None:
    """The second question is asked once and given up at once; alone each has all the time."""
    connection = Connection("127.0.0.1:1", {}, _SECONDS)
    with connection.operation():
        first = _asked(connection)
        with connection.operation():
            second = _asked(connection)
    alone = _asked(connection)
    assert first > _SECONDS / 2
    assert second < first / 2
    assert alone > _SECONDS / 2


def test_what_comes_late_is_tried_once_all_the_same() -> None:
    """A broker that answers by then has its answer counted."""
    connection = Connection("127.0.0.1:1", {}, _SECONDS)
    with connection.operation():
        _asked(connection)
        assert connection.ask("see anything", lambda seconds: seconds) > 0


def test_an_operation_that_failed_leaves_no_deadline() -> None:
    """The next one begins anew."""
    connection = Connection("127.0.0.1:1", {}, _SECONDS)
    with pytest.raises(Unreachable), connection.operation():
        connection.ask("see anything", _silent)
    assert connection.deadline() > time.monotonic() + _SECONDS / 2


def _clients_asked(connection: Connection, code: int, seen: list[tuple[object, object]]) -> None:
    """Ask until it is given up, each time with the same error, and note the clients that it is asked through."""

    def ask(_seconds: float) -> None:
        seen.append((connection.admin, connection.offsets))
        raise KafkaException(KafkaError(code))

    with pytest.raises(Unreachable):
        connection.ask("see anything", ask)


def test_what_got_no_answer_twice_is_asked_over_new_connections() -> None:
    """A client that lost its brokers for good costs two attempts, and the next operation none."""
    connection = Connection("127.0.0.1:1", {}, _SECONDS)
    seen: list[tuple[object, object]] = []
    _clients_asked(connection, KafkaError._TIMED_OUT, seen)
    first, second, third, *more = seen
    assert first == second
    assert first[0] is not third[0]
    assert first[1] is not third[1]
    assert set(more) == {third}, "not for each attempt: whoever connects needs a moment"
    _clients_asked(connection, KafkaError._TIMED_OUT, seen)
    assert seen[len(more) + 3] not in (first, third)
    connection.close()


def test_a_client_that_is_answered_is_kept() -> None:
    """What a broker says of its cluster, though it is not what was asked for, came over a connection that works."""
    connection = Connection("127.0.0.1:1", {}, _SECONDS)
    seen: list[tuple[object, object]] = []
    _clients_asked(connection, KafkaError.NOT_CONTROLLER, seen)
    _clients_asked(connection, KafkaError.NOT_CONTROLLER, seen)
    assert len(set(seen)) == 1
    connection.close()


def test_a_client_is_let_go_after_its_last_user() -> None:
    """Who still waits for an answer keeps the client that he asked, also when others have got a new one meanwhile."""
    connection = Connection("127.0.0.1:1", {}, _SECONDS)
    waits, goes_on = threading.Event(), threading.Event()

    def slow(_seconds: float) -> str:
        consumer = connection.offsets
        waits.set()
        assert goes_on.wait(30)
        assert connection.offsets is consumer
        # A consumer that was closed would raise another error than that nobody answers.
        with pytest.raises(KafkaException):
            consumer.list_topics(timeout=0.1)
        return "answered"

    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(connection.ask("see anything", slow)))
    asking.start()
    assert waits.wait(30)
    _clients_asked(connection, KafkaError._TIMED_OUT, [])
    goes_on.set()
    asking.join(30)
    assert found == ["answered"]
    connection.close()
