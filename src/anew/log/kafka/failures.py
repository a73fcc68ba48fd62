"""What Kafka's errors mean here: not reachable, not allowed, another topic than the one asked for, or unknown."""

from __future__ import annotations

from confluent_kafka import KafkaError

from anew.core.errors import AnewError, Failed, Refused, Unreachable
from anew.log.interface import TopicPartition
from anew.log.kafka.meanings import Meaning, meaning_of

LOST = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
OUT_OF_RANGE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})
SILENT = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
)
"""No broker has answered, or none was found to ask."""
DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError.INVALID_MSG})
"""Records do not have the checksum that they were written with, or cannot be decoded."""
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
UNDER_A_DEADLINE = frozenset({KafkaError.INVALID_REPLICATION_FACTOR})
"""What a broker says in a moment in which others are not there yet, and also for good: it counts at the deadline.

While the only broker comes back all brokers are fenced, so that none is left for the first replica.
"""
_NOT_ALLOWED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def unreachable(address: str, found: str, seconds: float) -> Unreachable:
    """No answer in time, or none that lets us in."""
    return Unreachable(
        "log_unreachable",
        "Kafka does not answer",
        found=f"{address}: {found}",
        expected=f"an answer within {seconds:g} s",
        hint="look at the brokers, their address and the settings of security: anew doctor",
    )


def damaged(at: TopicPartition, offset: int, found: str) -> Failed:
    """Records that are there and are not what was appended."""
    return Failed(
        "log_corrupt",
        f"partition {at.partition} of {at.topic} is damaged from offset {offset} on",
        found=found,
        expected="records with the checksum that they were appended with",
        hint="another replica of the partition may be whole: move its leader, then delete the damaged replica's files",
    )


def refusal(code: int, found: str, what: str) -> AnewError | None:
    """The error to raise for what is not allowed; None for every other code."""
    if code in _NOT_ALLOWED:
        return Refused(
            "log_not_allowed",
            f"Kafka does not allow to {what}",
            found=found,
            expected="the rights that docs/operations.md lists",
            hint="give them to this user: kafka-acls.sh",
        )
    return None


def final(code: int, found: str, what: str) -> AnewError | None:
    """What an error of reading or writing says for good, whatever is tried again; None when it may pass.

    Topics that are gone, offsets out of range, damaged and too large records are for the caller to judge before.
    """
    refused = refusal(code, found, what)
    if refused is not None or code in _JUDGED or meaning_of(code) is not Meaning.NO:
        return refused
    return Failed("log_failed", f"Kafka refuses to {what}", found=found, hint="look at the brokers' logs")


_JUDGED = LOST | OUT_OF_RANGE | DAMAGED | TOO_LARGE
