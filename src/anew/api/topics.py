"""Wire models of topics of our own."""

from __future__ import annotations

from pydantic import Field

from anew.api.wire import Request, Wire, example
from anew.core.topics.topic import TopicFormat

_MOST_SECONDS = 10 * 366 * 86_400


class CreateTopic(Request):
    """Make a topic. Schemas are Avro texts; the same ``request_id`` with the same body is the same topic.

    Attributes:
        format: None: ``avro`` where schemas are given, else ``json``.
        columns: Of ``json``: what values hold, as Spark writes columns.
        retention_seconds: How long records are kept; None: for ever.
        retention_bytes: About how large a partition's newest records are together that are kept; None: any size.
        fabric: In whose log it is made; None: the first one's.
    """

    model_config = example(
        name="clicks",
        partitions=4,
        format="json",
        columns="user STRING, page STRING, at TIMESTAMP",
        retention_seconds=604_800,
        request_id="create-clicks-1",
    )

    name: str
    partitions: int = 1
    format: TopicFormat | None = None
    key_schema: str | None = None
    value_schema: str | None = None
    columns: str | None = None
    retention_seconds: int | None = Field(default=None, ge=1, le=_MOST_SECONDS)
    retention_bytes: int | None = Field(default=None, ge=1, le=1 << 60)
    fabric: str | None = None
    request_id: str | None = None


class AlterTopic(Request):
    """Give a topic more partitions; the same number again changes nothing.

    Attributes:
        partitions: How many it is to have, not fewer than now.
    """

    model_config = example(partitions=8)

    partitions: int


class PartitionFactsView(Wire):
    """One partition: [begin, end) is readable.

    Attributes:
        oldest_ms: When the oldest record was appended; null in an empty partition.
    """

    begin: int
    end: int
    oldest_ms: int | None


class TopicFactsView(Wire):
    """What a topic's log says of it now.

    Attributes:
        retention_seconds, retention_bytes: What the log keeps; null: without a limit.
        compacted: Whether the log drops records that have a newer one with the same key.
        partitions: In their order.
    """

    retention_seconds: float | None
    retention_bytes: int | None
    compacted: bool
    partitions: tuple[PartitionFactsView, ...]


class TopicView(Wire):
    """The ``topic`` shape.

    Attributes:
        partitions: Over how many writers spread records. Another program may have added more: see ``facts``.
        growing_to: How many it is to get, until the log has added them.
        retention_seconds, retention_bytes: What it was made with; null: without a limit.
        topic_uid: The identity that the log gave it, once it is ``ready``.
        incarnation: How many topics have had this name in this fabric.
        created_at: In ms.
        written_by: ``JOB`` where a job names it as its output, ``JOB@N`` where a generation writes into it: programs
            do not.
        held_by: The generations, ``JOB@N``, until whose catching up it forgets nothing.
        facts: What the log says now; null in lists, and while it says nothing.
        log_error: Why it says nothing.
    """

    name: str
    uid: str
    fabric: str
    partitions: int
    growing_to: int | None
    format: TopicFormat
    key_schema: str | None
    key_schema_id: int | None
    value_schema: str | None
    value_schema_id: int | None
    columns: str | None
    retention_seconds: float | None
    retention_bytes: int | None
    topic_uid: str
    incarnation: int
    ready: bool
    created_at: int
    written_by: str | None = None
    held_by: tuple[str, ...] = ()
    facts: TopicFactsView | None
    log_error: str | None
