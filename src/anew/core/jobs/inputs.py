"""What a stream job reads: named topics, each with the form of its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from pydantic import Field

from anew.core.errors import Refused
from anew.core.plan import Value
from anew.core.topics.topic import Topic, TopicFormat


class Start(StrEnum):
    """Where a job begins to read an input unless it is told otherwise (case B1).

    ``fail``: nowhere, so that each generation has to be told.
    """

    OLDEST = "oldest"
    NEWEST = "newest"
    FAIL = "fail"


class JobInput(Value):
    """One named input.

    Attributes:
        name: The parameter of the function that takes its frame.
        topic: The topic's name.
        topic_uid: The identity of the topic: one of that name that was made again is another input (case B8).
        partitions: How many it had when this was planned. How many it has now its log says
            (`anew.log.interface.present_partitions`): more may have been added since (case B7).
        key_schema: Avro text; of format ``avro`` alone.
        key_schema_id: What the wire headers of keys say.
        schemas: Id → Avro text of the values, in the order in which the topic got them.
        columns: Of format ``json``: the members that are read, as Spark's DDL, ``carrier STRING, delay INT``.
        default_start: Where a generation begins that is not told otherwise.
    """

    name: str
    fabric: str
    topic: str
    topic_uid: str
    partitions: int
    format: TopicFormat = TopicFormat.AVRO
    key_schema: str | None = None
    key_schema_id: int = 1
    schemas: dict[int, str] = Field(default_factory=dict)
    columns: str | None = None
    default_start: Start = Start.OLDEST


class Span(Value):
    """A range of one partition of an input, [begin, end)."""

    input: str
    partition: int
    begin: int
    end: int

    @property
    def count(self) -> int:
        """How many offsets it has."""
        return self.end - self.begin


def input_of(name: str, topic: Topic, default_start: Start) -> JobInput:
    """A topic of our own as an input."""
    ids = topic.value_schema_id
    return JobInput(
        name=name,
        fabric=topic.fabric,
        topic=topic.name,
        topic_uid=topic.topic_uid,
        partitions=topic.partitions,
        format=topic.format,
        key_schema=topic.key_schema,
        key_schema_id=1 if topic.key_schema_id is None else topic.key_schema_id,
        schemas={} if ids is None or topic.value_schema is None else {ids: topic.value_schema},
        columns=topic.columns,
        default_start=default_start,
    )


Offsets = dict[int, int]
"""Partition → next offset to read."""


def next_offset(of: Mapping[int, int], partition: int) -> int:
    """Where to read on in a partition: at its beginning where it was added after a position was written (case B7).

    Its beginning is offset 0, whatever the log still holds: what retention took is never skipped (case B9).
    """
    return of.get(partition, 0)


def with_added(position: Mapping[str, Offsets], partitions: Mapping[str, Iterable[int]]) -> dict[str, Offsets]:
    """A position that names all partitions: those too that were added after it was written (case B7).

    Args:
        position: Input → partition → next offset.
        partitions: Input → the partitions that its topic has now.
    """
    known = {name: position.get(name, {}) for name in partitions}
    return {
        name: {partition: next_offset(of, partition) for partition in sorted({*of, *partitions[name]})}
        for name, of in known.items()
    }


def topics_of(inputs: Iterable[JobInput]) -> dict[str, str]:
    """Input → the identity of its topic: positions mean something in that one alone (case B8)."""
    return {of.name: of.topic_uid for of in inputs}


def check_start(name: str, start: Offsets, begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
    """Raise unless a start lists every partition and lies within what the log holds (cases A6, B7, B9).

    Args:
        name: The input's.
        start: Partition → the first offset that is read.
        begins: Partition → the oldest offset that the log holds.
        ends: Partition → the next offset to be written.

    Raises:
        Refused: ``start_out_of_range``, with the range of the first partition that is wrong; ``start_incomplete``.
    """
    unknown = sorted(start.keys() - ends.keys())
    if unknown:
        raise Refused(
            "start_out_of_range",
            f"a start of {name} names a partition that its topic does not have",
            found=f"partition {unknown[0]}",
            expected=f"partitions {sorted(ends)}",
        )
    if ends.keys() - start.keys():
        raise Refused(
            "start_incomplete",
            f"a start of {name} names each partition of its topic",
            found=f"partitions {sorted(start)}",
            expected=f"partitions {sorted(ends)}",
            hint="name the others too, or begin at oldest or newest",
        )
    for partition, offset in sorted(start.items()):
        if not begins[partition] <= offset <= ends[partition]:
            what = "retention removed what lies before" if offset < begins[partition] else "nothing is there yet"
            raise Refused(
                "start_out_of_range",
                f"partition {partition} of {name} cannot be read from there: {what}",
                found=offset,
                expected=f"an offset in [{begins[partition]}, {ends[partition]}]",
                hint="anew topic show tells what each partition holds",
            )
