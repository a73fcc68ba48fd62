"""Who wrote a record and when: origins, stamps, and the order in which they decide.

Source of the order: rule R6 (stamps) and R20 (origins) of the project's rules.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum


class OriginKind(IntEnum):
    """The kinds of writers, in the order in which they win on equal times (R20)."""

    BATCH = 0
    JOB = 1
    FABRIC = 2


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote: a push, one generation of a stream job, or a fabric.

    ``encoded`` is an order-preserving key: comparing two encodings byte by byte compares the origins, with
    batch < job (by name, then numeric generation) < fabric (by name). It is part of the cell format. The records of a
    job's generation carry more in the log: see `anew.core.identity`.
    """

    kind: OriginKind
    name: str = ""
    generation: int = 0

    def __post_init__(self) -> None:
        if "\x00" in self.name:
            raise ValueError(f"an origin's name holds a NUL byte: {self.name!r}")
        if len(self.encoded) > 255:
            raise ValueError(f"an origin's name is longer than the cell format allows: {self.name!r}")

    @property
    def encoded(self) -> bytes:
        """The order-preserving bytes: kind, name, NUL and (for jobs) the big-endian generation."""
        if self.kind is OriginKind.BATCH:
            return b"\x00"
        if self.kind is OriginKind.FABRIC:
            return b"\x02" + self.name.encode()
        return b"\x01" + self.name.encode() + b"\x00" + struct.pack(">Q", self.generation)

    @classmethod
    def decode(cls, encoded: bytes) -> Origin:
        """The origin of its encoding.

        Raises:
            ValueError: The bytes are no origin.
        """
        if encoded == b"\x00":
            return BATCH
        if encoded[:1] == b"\x02":
            return cls(OriginKind.FABRIC, encoded[1:].decode())
        if encoded[:1] == b"\x01" and 0 < encoded.find(b"\x00") == len(encoded) - 9:
            return cls(OriginKind.JOB, encoded[1:-9].decode(), struct.unpack(">Q", encoded[-8:])[0])
        raise ValueError(f"not an origin: {encoded!r}")

    def __str__(self) -> str:
        if self.kind is OriginKind.BATCH:
            return "batch"
        return self.name if self.kind is OriginKind.FABRIC else f"{self.name}@{self.generation}"


BATCH = Origin(OriginKind.BATCH)


def fabric_origin(fabric: str) -> Origin:
    """The origin of nearline writes that a fabric accepted."""
    return Origin(OriginKind.FABRIC, fabric)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the merge decides by.

    Attributes:
        time_ms: When it was written, milliseconds since the epoch; 0 for batch records without a time.
        origin: The encoded origin (``Origin.encoded``).
        append_timed: True when the log gave the time, False when the writer did.
        incarnation: Which incarnation of the feed's topic it came through; 0 for batch records.
        partition: The feed partition, 0 for batch records. Of a job's records: the batch number.
        offset: The offset there, 0 for batch records. Of a job's records: the sequence in the batch.
    """

    time_ms: int
    origin: bytes = BATCH.encoded
    append_timed: bool = False
    incarnation: int = 0
    partition: int = 0
    offset: int = 0

    @property
    def rank(self) -> tuple[int, bytes, bool, int, int, int]:
        """The tuple by which records of different feed partitions, or with given times, compare (R6)."""
        return (self.time_ms, self.origin, self.append_timed, self.incarnation, self.partition, self.offset)

    def shares_clock_with(self, other: Stamp) -> bool:
        """Whether the same append clock timed both, so that the offset decides and not the time (R6)."""
        return (
            self.append_timed
            and other.append_timed
            and self.origin == other.origin
            and self.incarnation == other.incarnation
            and self.partition == other.partition
        )
