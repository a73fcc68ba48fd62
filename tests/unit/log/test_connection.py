"""How long brokers are asked: one deadline per operation, however many questions it takes."""

from __future__ import annotations

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
