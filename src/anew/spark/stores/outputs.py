"""Where a task puts the sub-partitions that it makes: base files, or ranges of the version topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from anew.api.location import LogLocation
from anew.codec.compression import Compressor
from anew.core.arrow import take
from anew.core.partition import units_of
from anew.core.partitioning import partitioner_of
from anew.core.stores.store import Frozen
from anew.deepstore.open import open_deep_store
from anew.log.interface import Log, TopicPartition
from anew.log.open import BUILD_TIMEOUT_SECONDS, open_log
from anew.segments.basefile import BaseFileWriter
from anew.segments.baserange import BaseRangeWriter, start_of_push
from anew.segments.layout import attempt_name, attempt_path
from anew.segments.manifest import BasePart


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """The version topic that rows are appended to.

    Attributes:
        log: Where the target's log is.
        topic: Its name; ``uid`` identifies it.
        key_schema_id: For the wire headers of keys.
        dictionary: The compression dictionary of the new version, which SOP carries.
        at_ms: The time that the embedded log gives the records; nobody looks at it.
    """

    log: LogLocation
    topic: str
    uid: str
    key_schema_id: int
    dictionary: bytes | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class BaseTarget:
    """Where the base of a new version goes.

    Attributes:
        deep_store: Root of the target's deep store.
        directory: The version's directory below it.
        topic: Where rows go through the log; None: they go to files.
    """

    deep_store: str
    directory: str
    topic: TopicTarget | None = None


class MadePart(BaseModel):
    """One sub-partition with what holds its rows, None when there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: int
    sub_partition: int
    part: BasePart | None


class _Writer(Protocol):
    """Takes the rows of one sub-partition."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows that come after all before them."""

    def close(self) -> BasePart | None:
        """Finish, read back what was written, and say what it is."""

    def abort(self) -> None:
        """Give up: nothing of it counts."""


@dataclass(slots=True)
class Outputs:
    """What one task writes, per sub-partition; a context manager that gives up what was not closed.

    Attributes:
        target: Where to.
        config: The target's frozen configuration.
        codec: What the values that are written are compressed by.
        units: The (partition, sub-partition) pairs that the task makes.
        attempt: Which attempt of the task this is.
    """

    target: BaseTarget
    config: Frozen
    codec: Compressor
    units: list[tuple[int, int]]
    attempt: str
    _log: Log | None = field(init=False, default=None)
    _writers: list[_Writer] = field(init=False, default_factory=list)

    def __enter__(self) -> Outputs:
        """Begin each of them."""
        topic = self.target.topic
        self._writers = self._files() if topic is None else self._ranges(topic)
        return self

    def __exit__(self, *error: object) -> None:
        """Give up what is not closed."""
        for writer in self._writers:
            writer.abort()
        if self._log is not None:
            self._log.close()

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows in key order, each where its key belongs."""
        if len(self._writers) == 1:
            self._writers[0].write(rows)
        elif rows.num_rows:
            keys: Any = rows.column("key")
            factor = self.config.amplification_factor
            placed = units_of(partitioner_of(self.config).of_all(keys), keys, factor)
            for (partition, sub), writer in zip(self.units, self._writers, strict=True):
                writer.write(take(rows, (placed == partition * factor + sub).nonzero()[0]))

    def close(self) -> tuple[MadePart, ...]:
        """Finish and verify all."""
        made = tuple(
            MadePart(partition=partition, sub_partition=sub, part=writer.close())
            for (partition, sub), writer in zip(self.units, self._writers, strict=True)
        )
        self._writers = []
        return made

    def _files(self) -> list[_Writer]:
        store = open_deep_store(self.target.deep_store)
        paths = [attempt_path(self.target.directory, partition, sub, self.attempt) for partition, sub in self.units]
        return [BaseFileWriter.open(store, path, self.codec) for path in paths]

    def _ranges(self, topic: TopicTarget) -> list[_Writer]:
        self._log = log = open_log(topic.log, clock=lambda: topic.at_ms, timeout_seconds=BUILD_TIMEOUT_SECONDS)
        attempt = attempt_name(self.target.directory, self.attempt)
        start = start_of_push(self.config, topic.dictionary, attempt)
        numbers = [partition * self.config.amplification_factor + sub for partition, sub in self.units]
        places = [TopicPartition(topic.topic, topic.uid, number, topic.key_schema_id) for number in numbers]
        return [BaseRangeWriter(log, at, attempt, start, self.codec) for at in places]
