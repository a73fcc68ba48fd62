"""The topic aggregate: a log's topic that users made with anew, its format, its schemas and its retention."""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from anew.core.errors import InvalidRequest, Refused

MOST_PARTITIONS = 10_000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OF_A_STORE = re.compile(r".*(_rt|_v[0-9]+|_dead_letters)")


class TopicFormat(StrEnum):
    """What the keys and values of a topic's records are."""

    AVRO = "avro"
    JSON = "json"
    BYTES = "bytes"


class Kept(BaseModel):
    """How much of each partition a topic keeps; None: without a limit.

    Attributes:
        time_ms: For how long after its append a record is kept.
        partition_bytes: About how large the newest records of a partition are together that are kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    time_ms: int | None = None
    partition_bytes: int | None = None


class Holder(BaseModel):
    """Whose history a topic keeps.

    Attributes:
        rebuild: The id of the rebuild that reads it.
        name: What people call that: ``JOB@N``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rebuild: str
    name: str


class Hold(BaseModel):
    """Why a topic forgets nothing for a while (case E4).

    Attributes:
        by: Who needs its history; nobody: the log is to keep again what it kept before.
        before: What the log kept before; None: it was not looked at yet.
        lifted: Whether the log was told to keep everything, for all of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: tuple[Holder, ...]
    before: Kept | None = None
    lifted: bool = False


class Topic(BaseModel):
    """A topic of our own.

    Attributes:
        uid: Of this topic alone; a later one of the same name has another (rule R16).
        fabric: In whose log it is.
        key_schema: Of format `TopicFormat.AVRO`: the Avro schema of keys, and its id in wire headers.
        value_schema: Likewise of values.
        columns: Of format `TopicFormat.JSON`: what values hold, as Spark writes it: ``carrier STRING, delay INT``.
        kept: Its retention.
        hold: Why it forgets nothing for a while; None: it keeps what ``kept`` says.
        growing_to: How many partitions it is to get; None: it has as many as it is to have.
        topic_uid: The identity of the log's topic (rule R3): chosen by us until it is `ready`, then what the log gave.
        incarnation: Greater than that of each topic that had this name in this fabric before.
        ready: Whether the log's topic was made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    uid: str
    name: str
    fabric: str
    partitions: int
    format: TopicFormat
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None
    columns: str | None = None
    kept: Kept = Kept()
    hold: Hold | None = Field(default=None, exclude_if=lambda hold: hold is None)
    topic_uid: str
    incarnation: int
    ready: bool = False
    growing_to: int | None = None
    created_at_ms: int
    deleted_at_ms: int | None = None
    revision: int = 0

    @property
    def identity(self) -> str:
        """What a generation that writes into it knows it by: its name, and that it is this one of the name."""
        return f"{self.name}#{self.uid}"


def check_topic_name(name: str) -> None:
    """Raise unless a topic may be called so: the rules of stores' names, and no name that a topic of a store has.

    Raises:
        InvalidRequest: ``bad_topic_name``.
    """
    if not _NAME.fullmatch(name) or _OF_A_STORE.fullmatch(name):
        raise InvalidRequest(
            "bad_topic_name",
            "a topic cannot have this name",
            found=name,
            expected="lower-case letters, digits and _ (at most 64, the first a letter), not ending in _rt, _v<N> or"
            " _dead_letters, as topics of stores do",
        )


def check_partitions(partitions: int) -> None:
    """Raise unless a topic may have so many partitions.

    Raises:
        InvalidRequest: ``bad_partitions``.
    """
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidRequest(
            "bad_partitions",
            "a topic cannot have so many partitions",
            found=partitions,
            expected=f"1 to {MOST_PARTITIONS}",
        )


def check_not_deleted(topic: Topic) -> None:
    """Raise unless the topic is there.

    Raises:
        Refused: ``topic_deleted``.
    """
    if topic.deleted_at_ms is not None:
        raise Refused("topic_deleted", f"the topic {topic.name} was deleted", found=topic.uid, expected="a live topic")


def held(topic: Topic, holder: Holder) -> Topic:
    """The topic as it forgets nothing that one more needs: its log is told again, whatever it was told before."""
    hold = topic.hold or Hold(by=())
    return topic.model_copy(update={"hold": hold.model_copy(update={"by": (*hold.by, holder), "lifted": False})})


def growing(topic: Topic, partitions: int) -> Topic:
    """The topic as it is to get so many partitions; itself where it has, or is to get, as many.

    Raises:
        InvalidRequest: ``bad_partitions``.
        Refused: ``fewer_partitions``, ``topic_not_ready``, ``topic_deleted``.
    """
    check_partitions(partitions)
    check_not_deleted(topic)
    if not topic.ready:
        raise Refused(
            "topic_not_ready",
            f"the log has not made the topic {topic.name} yet",
            found="not ready",
            expected="ready",
            hint="anew status",
        )
    least = topic.partitions if topic.growing_to is None else topic.growing_to
    if partitions < least:
        raise fewer_partitions(topic.name, least, partitions)
    return topic if partitions == topic.partitions else topic.model_copy(update={"growing_to": partitions})


def not_growing(topic: Topic, partitions: int) -> Topic:
    """The topic once its log has refused it so many partitions for good; another number that is wanted by now stays."""
    return topic.model_copy(update={"growing_to": None}) if topic.growing_to == partitions else topic


def grown(topic: Topic, made: int) -> Topic:
    """The topic once its log's topic has so many partitions; it may be that it is to get still more."""
    partitions = max(topic.partitions, made)
    is_done = topic.growing_to is None or topic.growing_to <= partitions
    return topic.model_copy(update={"partitions": partitions, "growing_to": None if is_done else topic.growing_to})


def fewer_partitions(name: str, found: int, wanted: int) -> Refused:
    """Partitions are never taken away: their records would go with them."""
    return Refused(
        "fewer_partitions",
        f"the topic {name} cannot lose partitions",
        found=f"{wanted} partitions",
        expected=f"at least {found}, as many as it has or is to get",
        hint="make another topic with fewer partitions",
    )
