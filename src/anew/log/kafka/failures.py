"""What Kafka's errors mean here: not reachable, not allowed, another topic than the one asked for, or unknown."""

from __future__ import annotations

from confluent_kafka import KafkaError

from anew.core.errors import AnewError, Failed, Refused, Unreachable
from anew.log.interface import TopicPartition

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
    """What an error says for good, whatever is tried again; None when it may pass."""
    if code in _NOT_ALLOWED:
        return Refused(
            "log_not_allowed",
            f"Kafka does not allow to {what}",
            found=found,
            expected="the rights that docs/operations.md lists",
            hint="give them to this user: kafka-acls.sh",
        )
    return None
