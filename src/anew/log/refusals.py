"""What every log says alike: of topics that cannot be, are gone or closed, and of offsets that are not there."""

from __future__ import annotations

import re

from anew.core.errors import Failed, InvalidRequest, NotFound, Refused
from anew.log.interface import TailLost, TopicPartition, TopicSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MOST_PARTITIONS = 100_000
_MOST_KEPT = (1 << 63) - 1


def check_name(name: str) -> None:
    """Raise unless a topic may have that name.

    Raises:
        InvalidRequest: ``bad_topic``.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "bad_topic",
            "a topic cannot have this name",
            found=name,
            expected="letters, digits, dot, _ and -, at most 200, the first a letter or digit",
        )


def check_spec(spec: TopicSpec) -> None:
    """Raise unless there may be such a topic.

    Raises:
        InvalidRequest: ``bad_topic``.
    """
    check_name(spec.name)
    if not spec.uid:
        raise InvalidRequest("bad_topic", f"the topic {spec.name} has no identity", found=spec.uid, expected="a uid")
    if not 1 <= spec.partitions <= _MOST_PARTITIONS:
        raise InvalidRequest(
            "bad_topic",
            f"the topic {spec.name} cannot have so many partitions",
            found=spec.partitions,
            expected=f"1 to {_MOST_PARTITIONS}",
        )
    check_retention(spec)


def check_retention(spec: TopicSpec) -> None:
    """Raise unless a topic may be kept like that.

    Raises:
        InvalidRequest: ``bad_topic``.
    """
    for limit in (spec.retention.time_ms, spec.retention.partition_bytes):
        if limit is not None and not 1 <= limit <= _MOST_KEPT:
            raise InvalidRequest(
                "bad_topic",
                f"the topic {spec.name} cannot have such a retention",
                found=limit,
                expected=f"1 to {_MOST_KEPT} ms and bytes, or none",
            )


def exists(wanted: TopicSpec, uid: str, partitions: int) -> Refused:
    """Another topic has the name of the one that is wanted."""
    return Refused(
        "topic_exists",
        f"there is another topic {wanted.name}",
        found=f"uid {uid}, {partitions} partitions",
        expected=f"uid {wanted.uid}, {wanted.partitions} partitions",
        hint="a topic with another identity takes another name, or the old one is deleted first",
    )


def lost(topic: str, uid: str | None, found: str) -> Failed:
    """The topic is not the one that was asked for (rule R3); ``uid`` None: any would have done."""
    return Failed(
        "topic_lost",
        f"the topic {topic} is not the one that was asked for",
        found=found,
        expected="a topic" if uid is None else f"uid {uid}",
        hint="a topic that was lost or made again is a new feed, from offset 0",
    )


def closed(topic: str) -> Refused:
    """Nothing is accepted now."""
    return Refused(
        "topic_closed",
        f"{topic} takes no writes now",
        found="closed",
        expected="an open topic",
        hint="the store's nearline writes have ended, or end just now: anew store show",
    )


def unknown_partition(at: TopicPartition, partitions: int) -> NotFound:
    """The topic has fewer partitions."""
    return NotFound(
        "unknown_partition",
        f"the topic {at.topic} has no such partition",
        found=at.partition,
        expected=f"0 to {partitions - 1}",
    )


def out_of_range(at: TopicPartition, offset: int, begin: int, end: int) -> Failed:
    """An offset that the partition did not have when it was asked for (rule R3).

    One behind the end is a `TailLost`, also where the partition has grown past it since.
    """
    why = "was truncated" if offset < begin else "lost its tail"
    kind = Failed if offset < begin else TailLost
    return kind(
        "offset_out_of_range",
        f"partition {at.partition} of {at.topic} {why}" + (", and has grown since" if begin <= offset <= end else ""),
        found=offset,
        expected=f"{begin} to {end}",
        hint="what was built from this position must be discarded and loaded again",
    )


def beyond_the_end(at: TopicPartition, offset: int, end: int) -> Refused:
    """What was never written cannot be forgotten."""
    return Refused(
        "offset_out_of_range",
        f"partition {at.partition} of {at.topic} cannot be truncated beyond its end",
        found=offset,
        expected=f"at most {end}",
    )
