"""The embedded log: a directory of SQLite files, for several writing and reading processes on one machine.

Acknowledged means on disk: appends commit with ``synchronous=FULL``, shared by group commit. Append times never run
backwards (rule R6). A topic's identity is its uid (rule R3): every call looks at the file's inode again, so that a
topic that was deleted, or made again, is noticed by whoever still holds it open.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from weakref import WeakSet

import pyarrow as pa

from anew.core.errors import AnewError, InvalidRequest, OutcomeUnknown, Refused, Unreachable
from anew.log.aside import copy_aside
from anew.log.group_commit import GroupCommit, Outcome
from anew.log.interface import (
    KEEP_FOR_EVER,
    Appended,
    LogRead,
    Offsets,
    PartitionFacts,
    Retention,
    SetAside,
    TopicFacts,
    TopicPartition,
    TopicSpec,
    partitions_of,
)
from anew.log.packing import NO_RECORDS, Appending, appending, raw_appending
from anew.log.partition_file import APPENDS_KEPT, Meta, Opening, PartitionFile, make_partition_file
from anew.log.refusals import beyond_the_end, closed, out_of_range
from anew.log.stillness import Stillness
from anew.log.topics import TopicDirectories
from anew.log.wire import judged, raw_of

_TIMEOUT_SECONDS = 10.0
_MOST_OPEN_PER_THREAD = 64
_MOST_KNOWN_PER_THREAD = 100_000
_SAME_TIME_SECONDS = 0.05
"""Two appends that are less apart may have touched a directory at the same time, as far as it tells."""


class _OpenFiles(threading.local):
    """A thread's connections, the most recently used last, and what it knows without one.

    Attributes:
        still: The ends that it read.
        touched: Topic → when it was touched, and when that was seen.
        older: An end, and a time than which all before it is older.
    """

    def __init__(self) -> None:
        self.files: OrderedDict[TopicPartition, PartitionFile] = OrderedDict()
        self.still: dict[TopicPartition, Stillness] = {}
        self.touched: dict[str, tuple[int, float]] = {}
        self.older: dict[TopicPartition, tuple[int, int]] = {}


class EmbeddedLog:
    """`anew.log.interface.Log` on SQLite files."""

    def __init__(
        self, directory: Path, *, clock: Callable[[], int], skew_limit_ms: int = 60_000, durable: bool = True
    ) -> None:
        """Open the log in a directory, which is made when there is none.

        Args:
            directory: On a local disk: SQLite's locks and shared memory do not work over a network.
            clock: The time in ms since the epoch.
            skew_limit_ms: How far the clock may be behind the last append, and a given time ahead of its append.
            durable: Whether an append is on disk before it is acknowledged; otherwise a power cut may take the last
                ones (never a crash of the process).
        """
        self._topics = TopicDirectories(directory, _TIMEOUT_SECONDS)
        self._clock = clock
        self._skew_limit_ms = skew_limit_ms
        self._durable = durable
        self._lock = threading.Lock()
        self._writers: dict[TopicPartition, _Writer] = {}
        self._in_doubt: dict[bytes, int] = {}
        self._open = _OpenFiles()
        self._all_open: WeakSet[PartitionFile] = WeakSet()

    def create_topic(self, spec: TopicSpec) -> TopicSpec:
        """See `Log.create_topic`."""
        self._topics.create(spec, make_partition_file)
        return spec

    def set_open(self, spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        """See `Log.set_open`. Each partition says so in its own meta row, which every append's transaction reads."""
        for at in partitions_of(spec):
            file = self._reader(at)
            with file.writing() as meta:
                if epoch > meta.open_epoch:
                    file.set_open(is_open=is_open, epoch=epoch)

    def delete_topic(self, name: str, uid: str) -> None:
        """See `Log.delete_topic`."""
        self._topics.delete(name, uid)

    def topic(self, name: str) -> TopicSpec | None:
        """See `Log.topic`."""
        return self._topics.spec(name)

    def add_partitions(self, name: str, uid: str, partitions: int) -> int:
        """See `Log.add_partitions`."""
        self._topics.grow(name, uid, partitions, make_partition_file)
        return partitions

    def partition_count(self, name: str, uid: str) -> int:
        """See `Log.partition_count`. The topic's description says it."""
        return self._topics.present(name, uid).partitions

    def facts(self, name: str, uid: str) -> TopicFacts:
        """See `Log.facts`."""
        spec = self._topics.present(name, uid)
        partitions = tuple(self._partition_facts(at) for at in partitions_of(spec))
        return TopicFacts(uid, spec.retention, compacted=False, partitions=partitions)

    def set_retention(self, name: str, uid: str, retention: Retention) -> None:
        """See `Log.set_retention`. The topic's description says it."""
        self._topics.keep(name, uid, retention)

    def apply_retention(self, at: TopicPartition, retention: Retention) -> int:
        """See `Log.apply_retention`. Appends have turns in between."""
        if retention == KEEP_FOR_EVER:
            return self.offsets(at).begin
        file = self._reader(at)
        with file.reading() as meta:
            begin = file.kept_from(retention, self._clock(), meta.begin)
            if begin <= meta.begin:
                return meta.begin
        # Found before the lock is taken that appends wait for; what was written since keeps none of it.
        with file.writing() as meta:
            if begin > meta.begin:
                file.move_begin(begin)
            return max(begin, meta.begin)

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append`. The file itself knows the ids of its last appends, also of other processes' ones."""
        return self._append(at, appending(records))

    def append_raw(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append_raw`."""
        return self._append(at, raw_appending(records))

    def _append(self, at: TopicPartition, batch: Appending) -> Appended:
        appended = self._writer(at).group.append(batch)
        if batch.append_id is not None:
            self._in_doubt.pop(batch.append_id, None)
        return appended

    def read(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read`."""
        read = self._read(at, offset, max_records, end)
        return LogRead(judged(read.records, at.key_schema_id), read.next_offset)

    def read_raw(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read_raw`."""
        read = self._read(at, offset, max_records, end)
        return LogRead(raw_of(read.records, at.key_schema_id), read.next_offset)

    def _read(self, at: TopicPartition, offset: int, max_records: int, end: int | None) -> LogRead:
        """Records as they are kept, raw ones marked."""
        if max_records < 1:
            raise InvalidRequest("bad_max_records", "a read takes at least one record", found=max_records, expected=1)
        still = self._stillness(at)
        if still.holds(offset):
            # Whoever has caught up asks many times a second.
            return LogRead(NO_RECORDS, offset)
        look = still.look()
        file = self._reader(at)
        if file.still_ends_at(offset):
            still.note(offset, look, time.monotonic())
            return LogRead(NO_RECORDS, offset)
        with file.reading() as meta:
            if not meta.begin <= offset <= meta.next_offset:
                raise out_of_range(at, offset, meta.begin, meta.next_offset)
            if end is not None and end <= offset:
                # More was appended since the caller looked where the end is.
                return LogRead(NO_RECORDS, offset)
            stop = min(meta.next_offset, offset + max_records)
            if stop == offset:
                file.note_end(stop)
                still.note(stop, look, time.monotonic())
                return LogRead(NO_RECORDS, stop)
            records = file.records(offset, stop if end is None else min(stop, end))
        return LogRead(records, offset + records.num_rows)

    def fetch_ahead(self, places: Mapping[TopicPartition, int], *, raw: bool = False) -> None:
        """See `Log.fetch_ahead`. Files need no time to begin."""

    def touched(self, topics: Collection[str]) -> Collection[str]:
        """See `Log.touched`. An append touches its topic's directory."""
        known, now = self._open.touched, time.monotonic()
        told = set()
        for topic in topics:
            touched_ns = self._topics.touched_ns(topic)
            before_ns, since_seconds = known.get(topic, (None, now))
            if touched_ns != before_ns:
                known[topic] = touched_ns, now
            if touched_ns != before_ns or now - since_seconds < _SAME_TIME_SECONDS:
                told.add(topic)
        return told

    def offsets(self, at: TopicPartition) -> Offsets:
        """See `Log.offsets`."""
        with self._reader(at).reading() as meta:
            return Offsets(meta.begin, meta.next_offset)

    def next_offset(self, at: TopicPartition) -> int:
        """See `Log.next_offset`. There are no transactions."""
        return self.offsets(at).end

    def offset_for_time(self, at: TopicPartition, appended_ms: int) -> int:
        """See `Log.offset_for_time`. Append times do not decrease, so that bisection finds it."""
        still, known = self._stillness(at), self._open.older
        end, than_ms = known.get(at, (-1, 0))
        if than_ms <= appended_ms and still.holds(end):
            return end
        look = still.look()
        file = self._reader(at)
        with file.reading() as meta:
            low, high = meta.begin, meta.next_offset
            while low < high:
                middle = (low + high) // 2
                if file.appended_ms(middle) >= appended_ms:
                    high = middle
                else:
                    low = middle + 1
        if low == meta.next_offset:
            still.note(low, look, time.monotonic())
            known[at] = low, appended_ms
        return low

    def truncate_below(self, at: TopicPartition, offset: int) -> None:
        """See `Log.truncate_below`."""
        file = self._reader(at)
        with file.writing() as meta:
            if offset > meta.next_offset:
                raise beyond_the_end(at, offset, meta.next_offset)
            if offset > meta.begin:
                file.move_begin(offset)

    def set_aside(self, at: TopicPartition, letters: Sequence[SetAside], to: TopicPartition) -> int:
        """See `Log.set_aside`."""
        return copy_aside(self, at, letters, to)

    def close(self) -> None:
        """See `Log.close`."""
        with self._lock:
            for file in list(self._all_open):
                file.close()
            self._all_open.clear()
            self._writers.clear()

    def _partition_facts(self, at: TopicPartition) -> PartitionFacts:
        file = self._reader(at)
        with file.reading() as meta:
            oldest_ms = file.appended_ms(meta.begin) if meta.begin < meta.next_offset else None
            return PartitionFacts(meta.begin, meta.next_offset, oldest_ms)

    def _writer(self, at: TopicPartition) -> _Writer:
        with self._lock:
            writer = self._writers.get(at)
            if writer is None:
                writer = self._writers[at] = _Writer(self._commit, at)
            return writer

    def _commit(self, writer: _Writer, batches: Sequence[Appending]) -> list[Outcome]:
        """Commit batches in one transaction; only the partition's leader calls this, so that the file is its own."""
        writer.file = file = self._current(writer.at, writer.file)
        outcomes: list[Outcome] = []
        began = next_offset = 0
        try:
            with file.writing() as before:
                began = next_offset = before.next_offset
                appended_ms, refusal = self._append_time(writer.at, before)
                for batch in batches:
                    outcome = self._found(file, batch)
                    if outcome is None:
                        outcome = refusal or self._inserted(file, batch, next_offset, appended_ms)
                        if isinstance(outcome, Appended):
                            next_offset = outcome.next_offset
                    outcomes.append(copy.copy(outcome))
                if next_offset != began:
                    file.move_end(next_offset, appended_ms)
        except OutcomeUnknown:
            self._in_doubt |= {batch.append_id: began for batch in batches if batch.append_id is not None}
            raise
        if next_offset != began:
            self._topics.touch(writer.at.topic)
        return outcomes

    def _found(self, file: PartitionFile, batch: Appending) -> Outcome | None:
        """What became of a batch that was appended before, also while the topic takes nothing; None: it was not."""
        if batch.append_id is None:
            return None
        found = file.append_of(batch.append_id)
        since = self._in_doubt.get(batch.append_id)
        if found is None and since is not None and not file.knows_appends_since(since):
            return OutcomeUnknown(
                "append_unknown",
                "the embedded log does not know any more whether the append was committed",
                found=f"more than {APPENDS_KEPT} appends since",
                expected="a repeat soon after the first attempt",
                hint="read the keys and write again what is missing",
            )
        return found

    def _inserted(self, file: PartitionFile, batch: Appending, offset: int, appended_ms: int) -> Outcome:
        """Insert a batch, unless its times are wrong; part of a transaction."""
        try:
            batch.times.check(appended_ms, self._skew_limit_ms)
        except AnewError as error:
            return error
        appended = Appended(offset, offset + batch.count, appended_ms)
        file.insert(offset, appended_ms, batch.packed)
        if batch.append_id is not None and batch.count:
            file.note_append(batch.append_id, appended)
        return appended

    def _append_time(self, at: TopicPartition, meta: Meta) -> tuple[int, AnewError | None]:
        """The time of an append now, and why nothing new may be appended; None where it may."""
        now_ms = self._clock()
        refusal: AnewError | None = None if meta.is_open else closed(at.topic)
        if refusal is None and meta.last_ms > now_ms + self._skew_limit_ms:
            refusal = Refused(
                "clock_behind",
                f"the clock is behind the last append to partition {at.partition} of {at.topic}",
                found=f"clock at {now_ms} ms, last append at {meta.last_ms} ms",
                expected=f"at most {self._skew_limit_ms} ms behind",
                hint="set the machine's clock right",
            )
        return max(now_ms, meta.last_ms), refusal

    def _stillness(self, at: TopicPartition) -> Stillness:
        known = self._open.still
        found = known.get(at)
        if found is None:
            if len(known) >= _MOST_KNOWN_PER_THREAD:
                known.clear()
                self._open.older.clear()
            found = known[at] = Stillness(self._topics.path_of(at))
        return found

    def _reader(self, at: TopicPartition) -> PartitionFile:
        files = self._open.files
        file = files[at] = self._current(at, files.pop(at, None))
        if len(files) > _MOST_OPEN_PER_THREAD:
            files.popitem(last=False)[1].close()
        return file

    def _current(self, at: TopicPartition, file: PartitionFile | None) -> PartitionFile:
        """The open file while it is the one that the topic has now, else a fresh one.

        Raises:
            Failed: ``topic_lost``.
        """
        if file is not None:
            if file.is_current():
                return file
            file.close()
        path = self._topics.path_of(at)
        try:
            opened = PartitionFile(Opening(path, at.uid, at.partition, _TIMEOUT_SECONDS, self._durable))
        except (FileNotFoundError, NotADirectoryError, Unreachable) as error:
            if isinstance(error, Unreachable) and path.exists():
                raise
            raise self._topics.lost(at) from error
        with self._lock:
            self._all_open.add(opened)
        return opened


class _Writer:
    """The appending side of one partition: its queue, and the leader's connection."""

    def __init__(self, commit: Callable[[_Writer, Sequence[Appending]], list[Outcome]], at: TopicPartition) -> None:
        self.at = at
        self.file: PartitionFile | None = None
        self.group = GroupCommit(lambda batches: commit(self, batches), _TIMEOUT_SECONDS)
