"""A topic of our own as a program sees it: write, read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

from anew.api.http import ControllerClient
from anew.api.topics import AlterTopic, TopicView
from anew.client.committed import Deciding
from anew.client.topicreads import CommittedRead, Edge, ReadStart, Scan, TopicRecord, read_start
from anew.client.topicwriter import TopicWriter, partition_of
from anew.core.errors import InvalidRequest, Refused
from anew.core.feed import PositionMap
from anew.log.interface import Log


class Topic:
    """Reads and writes of one topic. Made by ``Cluster.topic``; safe to use from several threads."""

    def __init__(self, controller: ControllerClient, name: str, open_log: Callable[[str], Log]) -> None:
        """Ask what the topic is.

        Args:
            controller: Who is asked.
            name: The topic's.
            open_log: Opens the log of a fabric.

        Raises:
            NotFound: ``unknown_topic``.
        """
        self.view: TopicView = controller.topic(name, facts=False)
        self._controller, self._open_log = controller, open_log

    def alter(self, *, partitions: int) -> TopicView:
        """Give the topic more partitions; as many as it has: nothing.

        Keys move to other partitions: what is written of a key later may lie in another one than what was written
        before. Writers that are open go on with the partitions of when they were made.

        Args:
            partitions: How many it is to have.

        Raises:
            Refused: ``fewer_partitions``, ``topic_not_ready``; ``topic_in_use``: a generation of a job writes into it.
            InvalidRequest: ``bad_partitions``.
        """
        self.view = self._controller.alter_topic(self.view.name, AlterTopic(partitions=partitions))
        return self.view

    def writer(self) -> TopicWriter:
        """Buffers records and appends them; a context manager.

        Raises:
            Refused: ``topic_not_ready``; ``topic_in_use``: it is the output of a job.
        """
        return TopicWriter(self.view, self._open_log(self.view.fabric))

    def write(self, rows: Iterable[Any], *, key: str | Callable[[Any], Any] | None = None) -> PositionMap:
        """Write values; they are on disk when it returns.

        Args:
            rows: Values, see `TopicWriter.put`.
            key: The member of each value that is its key, or a function that gives it; None: no keys, spread evenly.

        Raises:
            InvalidRequest: ``value_misfit``, ``no_key``; what came before may have been written.
            AnewError: As `TopicWriter.flush`.
        """
        with self.writer() as writer:
            for row in rows:
                writer.put(key_of(row, key) if isinstance(key, str) else None if key is None else key(row), row)
        return writer.position

    def read(
        self, start: ReadStart = Edge.OLDEST, *, partition: int | None = None, limit: int = 100
    ) -> list[TopicRecord]:
        """Records that are there now, in the order of their times, at most so many.

        Args:
            start: ``oldest``: the first ones; ``newest``: the last ones; a number: from this offset on, of one
                partition.
            partition: Of this one alone; None: of all.
            limit: At most so many, of each partition and in all.

        Raises:
            InvalidRequest: ``bad_offset``: an offset, and several partitions; ``bad_limit``.
            NotFound: ``unknown_partition``.
            Failed: ``offset_out_of_range``, ``topic_lost``.
            Refused: ``topic_not_ready``.
        """
        return self._read(read_start(start), partition, limit, None).records

    def read_committed(
        self, start: ReadStart = Edge.OLDEST, *, partition: int | None = None, limit: int = 100
    ) -> CommittedRead:
        """As `read`, without what attempts of jobs appended that do not count (case C7).

        Of a batch of a job that is not recorded yet nothing is given from its first record on. Records that no job
        wrote are given as they are.

        Args:
            start: As of `read`.
            partition: Of this one alone; None: of all.
            limit: At most so many, of each partition and in all.

        Raises:
            Refused: ``batch_forgotten``: whether a record counts is not known any more; ``topic_not_ready``.
            AnewError: As `read`.
        """
        deciding = Deciding(lambda asked: self._controller.counted_batches(self.view.name, asked))
        return self._read(read_start(start), partition, limit, deciding)

    def _read(self, start: Edge | int, partition: int | None, limit: int, deciding: Deciding | None) -> CommittedRead:
        if limit < 1:
            raise InvalidRequest("bad_limit", "a read takes at least one record", found=limit, expected="at least 1")
        if not self.view.ready:
            raise Refused("topic_not_ready", f"{self.view.name} is not made yet", found="not ready", expected="ready")
        with closing(self._open_log(self.view.fabric)) as log:
            scan = Scan(self.view, log, limit, deciding)
            # Also those that were added since the view was made.
            count = log.partition_count(self.view.name, self.view.topic_uid) if partition is None else 1
            if isinstance(start, int) and count > 1:
                raise InvalidRequest(
                    "bad_offset",
                    "an offset is of one partition",
                    found=f"offset {start} of {count} partitions",
                    expected="a partition with the offset",
                    hint="name it: --partition",
                )
            wanted = range(count) if partition is None else (partition,)
            parts = [scan.partition(partition_of(self.view, number), start) for number in wanted]
        found = sorted(
            (record for part in parts for record in part.records),
            key=lambda record: (record.timestamp_ms, record.partition, record.offset),
        )
        following = {part.partition: part.reached for part in parts}
        waiting = tuple(part.waiting for part in parts if part.waiting is not None)
        if start is Edge.NEWEST:
            return CommittedRead(found[-limit:], following, waiting)
        for record in reversed(found[limit:]):
            following[record.partition] = min(following[record.partition], record.offset)
        return CommittedRead(found[:limit], following, waiting)


def key_of(row: Any, member: str) -> Any:
    """The member of a value that is its key.

    Raises:
        InvalidRequest: ``no_key``: it has none, or it is null.
    """
    found = row.get(member) if isinstance(row, dict) else None
    if found is None:
        raise InvalidRequest(
            "no_key",
            f"the value has no member {member}, which is to be its key",
            found=sorted(row) if isinstance(row, dict) else type(row).__name__,
            expected=f"an object with {member}",
        )
    return found
