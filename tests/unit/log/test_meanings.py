"""What each of Kafka's errors means."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from anew.core.errors import Failed, Refused
from anew.log.kafka.failures import DAMAGED, LOST, OUT_OF_RANGE, TOO_LARGE, UNDER_A_DEADLINE, final
from anew.log.kafka.meanings import NO, NOT_NOW, UNKNOWN, Meaning, meaning_of

_CODES = {
    name: code
    for name in dir(KafkaError)
    if name.lstrip("_").isupper() and isinstance(code := getattr(KafkaError, name), int)
}
_MOMENTS = {
    "_ALL_BROKERS_DOWN",
    "_DESTROY_BROKER",
    "_MSG_TIMED_OUT",
    "_RESOLVE",
    "_TIMED_OUT",
    "_TRANSPORT",
    "BROKER_NOT_AVAILABLE",
    "COORDINATOR_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "INVALID_REPLICATION_FACTOR",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NOT_CONTROLLER",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_NOT_AVAILABLE",
    "REBOOTSTRAP_REQUIRED",
    "REQUEST_TIMED_OUT",
    "STALE_BROKER_EPOCH",
    "THROTTLING_QUOTA_EXCEEDED",
}
_NEVER = {
    "_BAD_MSG",
    "_INVALID_ARG",
    "_UNSUPPORTED_FEATURE",
    "INVALID_CONFIG",
    "INVALID_MSG",
    "INVALID_PARTITIONS",
    "INVALID_REQUEST",
    "MSG_SIZE_TOO_LARGE",
    "OFFSET_OUT_OF_RANGE",
    "POLICY_VIOLATION",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_ALREADY_EXISTS",
    "TOPIC_AUTHORIZATION_FAILED",
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PART",
    "UNSUPPORTED_VERSION",
}


def test_every_code_is_in_exactly_one_list() -> None:
    """Each code that confluent_kafka has a name for is sorted once; success is no error."""
    lists = (NOT_NOW, NO, UNKNOWN)
    for name, code in _CODES.items():
        expected = 0 if code == KafkaError.NO_ERROR else 1
        assert sum(code in each for each in lists) == expected, name
    assert len(NOT_NOW) + len(NO) + len(UNKNOWN) == len({*_CODES.values()} - {KafkaError.NO_ERROR})


def test_moments_are_ridden_out_and_refusals_are_not() -> None:
    """What a broker says while it comes back, moves a leader or is busy is not now; what stays so is no."""
    assert {meaning_of(_CODES[name]) for name in _MOMENTS} == {Meaning.NOT_NOW}
    assert {meaning_of(_CODES[name]) for name in _NEVER} == {Meaning.NO}
    assert meaning_of(_CODES["UNKNOWN"]) is Meaning.UNKNOWN
    assert meaning_of(32_000) is Meaning.UNKNOWN, "a code of a later librdkafka"
    assert UNDER_A_DEADLINE <= NOT_NOW
    assert (LOST | OUT_OF_RANGE | DAMAGED | TOO_LARGE).isdisjoint(NOT_NOW)


@pytest.mark.parametrize("name", sorted(_CODES))
def test_reading_and_writing_end_at_once_by_a_no_alone(name: str) -> None:
    """A no is refused or failed in words; the rest, and what the caller judges itself, may pass."""
    code = _CODES[name]
    error = final(code, "said", "read t")
    if name.endswith("AUTHORIZATION_FAILED") and not name.startswith("DELEGATION"):
        assert isinstance(error, Refused)
        assert error.code == "log_not_allowed"
    elif code in NO and code not in LOST | OUT_OF_RANGE | DAMAGED | TOO_LARGE:
        assert isinstance(error, Failed)
        assert (error.code, error.found) == ("log_failed", "said")
    else:
        assert error is None
