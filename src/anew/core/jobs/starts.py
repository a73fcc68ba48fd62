"""Where a generation is to begin, as people ask for it: a value that is resolved to offsets when it is planned."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal, NoReturn

from pydantic import Field

from anew.core.errors import InvalidRequest
from anew.core.jobs.inputs import Offsets
from anew.core.moment import LAST_MS, duration_ms, duration_text, instant_ms, instant_text
from anew.core.plan import Value

_MOST_DIGITS = 18
"""No offset has more."""
_OF = "of="


class Oldest(Value):
    """At the first record that each partition holds."""

    kind: Literal["oldest"] = "oldest"

    def __str__(self) -> str:
        return self.kind


class Newest(Value):
    """Behind the last record of each partition."""

    kind: Literal["newest"] = "newest"

    def __str__(self) -> str:
        return self.kind


class AtOffsets(Value):
    """Input → partition → next offset; what it does not name begins where its history does (case A4)."""

    kind: Literal["offsets"] = "offsets"
    offsets: dict[str, Offsets]

    def __str__(self) -> str:
        return "offsets"


class AtTopicOffsets(Value):
    """Topic → partition → next offset, for whichever input reads that topic (case A3)."""

    kind: Literal["topic_offsets"] = "topic_offsets"
    topics: dict[str, Offsets]

    def __str__(self) -> str:
        return "offsets"


class AtTime(Value):
    """At the first record of each partition that was appended at or after a time, in ms since the epoch."""

    kind: Literal["time"] = "time"
    at_ms: int = Field(ge=0, le=LAST_MS)

    def __str__(self) -> str:
        return instant_text(self.at_ms)


class Ago(Value):
    """As `AtTime`, so many ms before the moment of planning."""

    kind: Literal["ago"] = "ago"
    span_ms: int = Field(ge=0, le=LAST_MS)

    def __str__(self) -> str:
        return f"{duration_text(self.span_ms)} ago"


class WhereOf(Value):
    """Where a generation of this job, or of another one, stands: behind its last recorded batch."""

    kind: Literal["of"] = "of"
    job: str
    generation: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{_OF}{self.job}@{self.generation}"


StartAt = Oldest | Newest | AtOffsets | AtTopicOffsets | AtTime | Ago | WhereOf
AnyStart = StartAt | str | Mapping[str, Offsets]
"""A start as programs may write it: also as on the command line, or as offsets."""


def start_of(asked: AnyStart) -> StartAt:
    """A start, however it is written.

    Raises:
        InvalidRequest: ``bad_start``.
    """
    if isinstance(asked, str):
        return _named(asked)
    return AtOffsets(offsets={name: dict(of) for name, of in asked.items()}) if isinstance(asked, Mapping) else asked


class Reach(Enum):
    """How much of what a time asks for a partition holds.

    ``FOUND``: all of it. ``NOTHING``: nothing was appended at or after the time (case B4). ``GONE``: retention took
    records that may have been appended at or after it (case B5).
    """

    FOUND = "found"
    NOTHING = "nothing"
    GONE = "gone"


def reach_of(asked_ms: int, offset: int, held: tuple[int, int], oldest_ms: int | None, kept_ms: int | None) -> Reach:
    """How much of what a time asks for a partition holds.

    Args:
        asked_ms: The time.
        offset: The first one whose record was appended at or after it; the end where there is none.
        held: Begin and end of the partition.
        oldest_ms: When the record at its begin was appended; None: it holds no record.
        kept_ms: Records that were appended at or after this time are kept for certain; None: nobody can say.
    """
    begin, end = held
    # An empty partition has no oldest record: what it had is gone unless its retention keeps what is asked for.
    first_ms = oldest_ms if oldest_ms is not None else kept_ms
    if begin > 0 and (first_ms is None or first_ms > asked_ms):
        return Reach.GONE
    return Reach.NOTHING if offset >= end else Reach.FOUND


def clamped(offset: int, begin: int, end: int) -> int:
    """The nearest offset that a partition holds, or its end (case A6)."""
    return min(max(offset, begin), end)


def _named(text: str) -> StartAt:
    if text == "oldest":
        return Oldest()
    if text == "newest":
        return Newest()
    if text.startswith(_OF):
        return _where_of(text)
    span_ms = duration_ms(text)
    if span_ms is not None:
        return Ago(span_ms=span_ms) if span_ms <= LAST_MS else _refuse(text)
    if "=" in text:
        return _at_offsets(text)
    at_ms = instant_ms(text)
    return _refuse(text) if at_ms is None or not 0 <= at_ms <= LAST_MS else AtTime(at_ms=at_ms)


def _where_of(text: str) -> StartAt:
    job, separator, number = text.removeprefix(_OF).partition("@")
    if not (job and separator and is_number(number)) or int(number) < 1:
        _refuse(text)
    return WhereOf(job=job, generation=int(number))


def _at_offsets(text: str) -> StartAt:
    found: dict[str, Offsets] = {}
    for part in text.split(","):
        place, _, offset = part.partition("=")
        name, _, partition = place.rpartition(":")
        if not (name and is_number(partition) and is_number(offset)) or int(partition) in found.get(name, {}):
            _refuse(part)
        found.setdefault(name, {})[int(partition)] = int(offset)
    return AtOffsets(offsets=found)


def is_number(text: str) -> bool:
    """Whether a text is a number as offsets, partitions and generations have it."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _refuse(found: str) -> NoReturn:
    raise InvalidRequest(
        "bad_start",
        "this is no start",
        found=found,
        expected="oldest, newest, a time with its zone, a duration, of=JOB@GENERATION, or INPUT:PARTITION=OFFSET,…, "
        "each partition once",
        hint="for example --from 2013-12-03T12:00Z, --from 36h, or --from flights:0=120,flights:1=98",
    )
