"""Reading Kafka on and on: who asks for the offset behind what it got last has the next records waiting.

Each partition that is read is fetched ahead by librdkafka; one connection fetches a partition at one place, so that
readers of several places (a replica that is far behind) have connections of their own. What was fetched counts only
once a broker has said, after that, that the topic is still the one that was asked for (rule R3): a topic that was
deleted and made again has other records at the same offsets.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anew.core.arrow import concat
from anew.core.errors import InvalidRequest, Unreachable
from anew.log.interface import LogRead, TopicPartition
from anew.log.kafka.connection import Connection
from anew.log.kafka.failures import DAMAGED, LOST, OUT_OF_RANGE, damaged, final, unreachable
from anew.log.kafka.native import Client, Cursor, KafkaError, Taken, waiting, words_of
from anew.log.kafka.ranges import Ranges
from anew.log.kafka.topics import Topics
from anew.log.packing import NO_RECORDS
from anew.log.refusals import out_of_range
from anew.log.wire import NO_RAW_RECORDS

_MOST_CONNECTIONS = 4
_SKIPPED_RECORDS = 10_000
"""Whoever asks for an offset so little behind a place goes on from there: to begin anew takes a fetch, up to 100 ms.
Tasks of a stream job do, which read every other batch."""
_FIRST_WAIT_MS, _WAIT_MS = 5, 100
_FRESH_SECONDS = 0.05
_PROOF_SECONDS = 2.0
"""A quiet partition is asked for its end, and its topic for its id, so often: a silent broker looks quiet too."""
_IDLE_SECONDS = 60.0
_SETTINGS: dict[str, str | int | bool] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    # Off by default: a record that a disk has damaged would be given to us.
    "check.crcs": True,
    "enable.partition.eof": True,
    "fetch.error.backoff.ms": 50,
    # One fetch at a time is under way to a broker, and it waits so long at the end of what it fetches: by default half
    # a second, in which a partition that begins to be read is not fetched. Each fetch names all partitions, so that
    # many short ones keep a broker busy with partitions that are still; what is appended ends the wait.
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 100_000,
    # By default a whole second, once enough is waiting.
    "fetch.queue.backoff.ms": 2,
    # Of each partition: a node follows hundreds, and may be behind in all of them.
    "queued.max.messages.kbytes": 8_192,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.max.bytes": 32 << 20,
}


class Reading(NamedTuple):
    """A partition, and how its records are read.

    Attributes:
        key_schema_id: What wire headers of keys must say; None: records are read raw.
    """

    at: TopicPartition
    key_schema_id: int | None


@dataclass(slots=True, eq=False)
class _Fetching:
    """A connection that fetches partitions, each at one place.

    Attributes:
        heard_at: When records last came over it, or when it was made.
        is_over: It is to be let go: records were there, and none came.
    """

    client: Client
    heard_at: float
    is_over: bool = False


@dataclass(slots=True, eq=False)
class _Place:
    """A partition as it is fetched at one place.

    Attributes:
        offset: Where whoever reads here goes on.
        fetched: What was taken from librdkafka and not yet given away, from ``offset`` on.
        fetched_at: When that was, and so before which moment the topic must not have changed.
        proved_at: When a broker last said something of the partition.
    """

    at: TopicPartition
    is_raw: bool
    fetching: _Fetching
    cursor: Cursor
    offset: int
    proved_at: float
    fetched: Taken | None = None
    fetched_at: float = 0.0
    used_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def nothing(self) -> pa.RecordBatch:
        """No records, as they are read here."""
        return NO_RAW_RECORDS if self.is_raw else NO_RECORDS

    def leads_to(self, offset: int) -> bool:
        """Whether whoever reads at an offset may go on from here."""
        return self.offset <= offset <= self.offset + _SKIPPED_RECORDS


class Reader:
    """Reads partitions. Safe to use from several threads."""

    def __init__(self, connection: Connection, topics: Topics, ranges: Ranges) -> None:
        self._connection, self._topics, self._ranges = connection, topics, ranges
        self._lock = threading.Lock()
        self._fetching: list[_Fetching] = []
        self._places: dict[TopicPartition, list[_Place]] = {}
        self._confirmed: dict[tuple[str, str], float] = {}

    def read(self, reading: Reading, offset: int, max_records: int, end: int | None) -> LogRead:
        """See `Log.read` and `Log.read_raw`."""
        if max_records < 1:
            raise InvalidRequest("bad_max_records", "a read takes at least one record", found=max_records, expected=1)
        deadline = self._connection.deadline()
        while True:
            place = self._place_of(reading, offset)
            with place.lock:
                if not (self._keeps(place) and place.leads_to(offset)):
                    continue  # another thread went on from here, or let it go
                if place.fetching.is_over:
                    self._forget(place)
                    continue
                try:
                    is_there = self._skip(place, offset)
                    read = self._read_on(place, max_records, end, deadline) if is_there else None
                except BaseException:
                    # What was taken from librdkafka may be lost with the error: nobody reads on from there.
                    self._forget(place)
                    raise
                if read is not None:
                    return read
                self._forget(place)

    def fetch_ahead(self, places: Mapping[TopicPartition, int], *, raw: bool = False) -> None:
        """Begin to fetch at places, unless they are fetched already, or soon will be.

        Whoever begins with a second partition once the first is read to its end waits for the fetch that waits there.
        """
        now = time.monotonic()
        for at, offset in places.items():
            with self._lock:
                if any(p.is_raw == raw and p.leads_to(offset) for p in self._of_name(at)):
                    continue
            self._make_room(at, now)
            with self._lock, suppress(KafkaError):
                # Not proved: nobody has said yet that the offset is one that the partition has.
                self._begin(Reading(at, None if raw else at.key_schema_id), offset, now, proved_at=-math.inf)

    def touched(self, topics: Collection[str]) -> set[str]:
        """Of which topics something was fetched that nobody has read; also those of which nothing is fetched yet."""
        with self._lock:
            # Under the lock no cursor is stopped.
            places = self._all()
            found = waiting([place.cursor for place in places])
        known = {place.at.topic for place in places}
        told = zip(places, found, strict=True)
        unread = {p.at.topic for p, waits in told if waits or p.fetched is not None or p.fetching.is_over}
        return unread | (set(topics) - known)

    def close(self) -> None:
        """Stop reading everything."""
        with self._lock:
            for place in self._all():
                place.cursor.stop()
            self._places.clear()
            for fetching in self._fetching:
                fetching.client.close()
            self._fetching.clear()

    def _skip(self, place: _Place, offset: int) -> bool:
        """Go on to an offset, over the records before it; False where they do not come, or end with an error."""
        while place.offset < offset:
            if place.fetched is None:
                self._fetch(place, place.cursor.take(offset - place.offset, _WAIT_MS))
            fetched = place.fetched
            if fetched is None or (fetched.error and fetched.next_offset < offset):
                return False
            if fetched.next_offset <= offset and not fetched.error:
                place.offset, place.fetched = fetched.next_offset, None
                continue
            offsets = fetched.records.column("offset").to_numpy()
            place.offset = offset
            place.fetched = fetched._replace(records=fetched.records.slice(int(np.searchsorted(offsets, offset))))
        return True

    def _read_on(self, place: _Place, max_records: int, end: int | None, deadline: float) -> LogRead | None:
        """The next records at a place; None when it must be begun anew there."""
        # Then an end that was fetched before is none any more, also one of which is heard only now.
        is_further = end is not None and place.offset < end
        self._top_up(place, max_records)
        wait_ms = _FIRST_WAIT_MS
        while place.fetched is None:
            if is_further:
                place.cursor.at_end = False
            self._fetch(place, place.cursor.take(max_records, 0 if place.cursor.at_end else wait_ms))
            if place.fetched is not None:
                break
            now = time.monotonic()
            if place.cursor.at_end and not is_further and now - place.proved_at < _PROOF_SECONDS:
                return LogRead(place.nothing, place.offset)
            if now > deadline:
                raise self._silent(place)
            self._prove(place)
            wait_ms = _WAIT_MS
        fetched = place.fetched
        if fetched.error and fetched.next_offset == place.offset:
            self._judge(place, fetched.error)
            if time.monotonic() > deadline:
                raise self._silent(place)
            threading.Event().wait(_WAIT_MS / 1000)
            return None
        self._confirm(place, max_records)
        return self._given(place, fetched, max_records, end)

    def _given(self, place: _Place, fetched: Taken, max_records: int, end: int | None) -> LogRead:
        """What the caller gets of what was fetched; the rest waits for the next read."""
        read = LogRead(fetched.records, fetched.next_offset)
        if end is not None:
            read = read.below(max(place.offset, end))
        records = read.records.slice(0, max_records)
        if records.num_rows < fetched.records.num_rows:
            rest = fetched.records.slice(records.num_rows)
            place.offset = rest.column("offset")[0].as_py() if records.num_rows == max_records else read.next_offset
            place.fetched = fetched._replace(records=rest)
        else:
            place.offset = fetched.next_offset
            place.fetched = Taken(place.nothing, place.offset, fetched.at_end, fetched.error) if fetched.error else None
        return LogRead(records, place.offset)

    def _fetch(self, place: _Place, taken: Taken) -> None:
        if taken.error or taken.next_offset > place.offset:
            place.fetched, place.fetched_at = taken, time.monotonic()
            place.proved_at = place.fetched_at
            if taken.next_offset > place.offset:
                place.fetching.heard_at = place.fetched_at

    def _top_up(self, place: _Place, max_records: int) -> None:
        """Add what came since to what has waited for long: who reads to the end is to come to the end of now."""
        fetched = place.fetched
        if fetched is None or fetched.error or time.monotonic() - place.fetched_at < _FRESH_SECONDS:
            return
        if fetched.records.num_rows < max_records:
            taken = place.cursor.take(max_records - fetched.records.num_rows, 0)
            place.fetched = taken._replace(records=concat([fetched.records, taken.records]))
            place.fetched_at = place.proved_at = time.monotonic()

    def _confirm(self, place: _Place, max_records: int) -> None:
        """Let a broker say that what was fetched is of the topic that was asked for.

        What waits of the topic's other partitions is taken before, so that it is confirmed by the same answer.

        Raises:
            Failed: ``topic_lost``.
        """
        topic = (place.at.topic, place.at.uid)
        if place.fetched_at < self._confirmed.get(topic, 0.0):
            return
        with self._lock:
            places = self._all()
        others = [p for p in places if p is not place and (p.at.topic, p.at.uid) == topic]
        for other in others:
            if other.fetched is None and other.lock.acquire(blocking=False):
                try:
                    if other.fetched is None and self._keeps(other):
                        self._fetch(other, other.cursor.take(max_records, 0))
                except BaseException:
                    self._forget(other)
                    raise
                finally:
                    other.lock.release()
        asked_at = time.monotonic()
        self._topics.check(place.at)
        self._confirmed[topic] = asked_at

    def _prove(self, place: _Place) -> None:
        """Ask for the end of a partition of which nothing was heard for a while.

        Raises:
            Unreachable: The brokers do not answer.
            Failed: ``topic_lost``, ``offset_out_of_range``.
        """
        if place.cursor.at_end and self._prove_still(place):
            return
        offsets = self._ranges.offsets(place.at)
        if not offsets.begin <= place.offset <= offsets.end:
            raise out_of_range(place.at, place.offset, offsets.begin, offsets.end)
        place.proved_at = time.monotonic()
        place.cursor.at_end = offsets.end == place.offset

    def _prove_still(self, place: _Place) -> bool:
        """Whether a partition ends where it is read; asks for all others of which nothing was heard for a while, too.

        A node follows hundreds, nearly all of them still: one by one they would keep it and its brokers busy.
        """
        now = time.monotonic()
        with self._lock:
            places = self._all()
        due = [p for p in places if p.cursor.at_end and p.fetched is None and now - p.proved_at >= _PROOF_SECONDS / 2]
        asked = {p: p.offset for p in (place, *due)}
        ends = self._ranges.ends({p.at for p in asked})
        for other, offset in asked.items():
            # An end below the offset, or beyond it, is for its own reader to judge.
            if ends.get(other.at) == offset:
                other.proved_at = now
        return ends.get(place.at) == place.offset

    def _judge(self, place: _Place, error: int) -> None:
        """What an error of fetching says; returns when it may pass."""
        if error in OUT_OF_RANGE:
            # Whatever the partition has by now: the leader did not have the offset when it was fetched.
            offsets = self._ranges.offsets(place.at)
            raise out_of_range(place.at, place.offset, offsets.begin, offsets.end)
        if error in DAMAGED:
            raise damaged(place.at, place.offset, words_of(error))
        if error in LOST:
            self._topics.check(place.at)
        refused = final(error, words_of(error), f"read {place.at.topic}")
        if refused is not None:
            raise refused

    def _silent(self, place: _Place) -> Unreachable:
        """What to say of records that did not come in time.

        A connection that brought none of any partition may have lost all brokers for good: see `Connection.ask`.
        """
        address, seconds = self._connection.bootstrap, self._connection.timeout_seconds
        said = place.fetching.client.last_error()
        place.fetching.is_over = time.monotonic() - place.fetching.heard_at > seconds / 2
        words = f"no record at offset {place.offset} of partition {place.at.partition} of {place.at.topic}"
        return unreachable(address, f"{words}; {said}" if said else words, seconds)

    def _place_of(self, reading: Reading, offset: int) -> _Place:
        """Where that offset comes next, or soon, or a place that begins there.

        Raises:
            Failed: ``topic_lost``, ``offset_out_of_range``.
        """
        at, is_raw, now = reading.at, reading.key_schema_id is None, time.monotonic()
        with self._lock:
            near = [p for p in self._places.get(at, ()) if p.is_raw == is_raw and p.leads_to(offset)]
            # Another reader's place a little before is left to it while it reads there.
            free = [p for p in near if p.offset == offset or not (p.lock.locked() or p.fetching.is_over)]
            found = max(free, key=lambda p: p.offset, default=None)
            if found is not None:
                found.used_at = now
                return found
        offsets = self._ranges.offsets(at)
        if not offsets.begin <= offset <= offsets.end:
            raise out_of_range(at, offset, offsets.begin, offsets.end)
        self._make_room(at, now)
        with self._lock:
            place = self._begin(reading, offset, now, proved_at=now)
            place.cursor.at_end = offset == offsets.end
        return place

    def _begin(self, reading: Reading, offset: int, now: float, proved_at: float) -> _Place:
        """A new place, under the lock.

        Raises:
            KafkaError: No topic can have this name.
        """
        at = reading.at
        taken = [place.fetching for place in self._of_name(at)]
        fetching = next((f for f in self._fetching if not f.is_over and f not in taken), None)
        if fetching is None:
            fetching = _Fetching(Client(self._connection.settings(_SETTINGS), is_producer=False), now)
            self._fetching.append(fetching)
        cursor = fetching.client.start(at.topic, at.partition, offset, reading.key_schema_id)
        place = _Place(at, reading.key_schema_id is None, fetching, cursor, offset, proved_at, used_at=now)
        self._places.setdefault(at, []).append(place)
        return place

    def _make_room(self, at: TopicPartition, now: float) -> None:
        """Let go of what nobody has read for long, and of what was read longest ago where all connections are used."""
        with self._lock:
            leaving = [place for place in self._all() if now - place.used_at > _IDLE_SECONDS]
            same = [place for place in self._of_name(at) if place not in leaving]
            same.sort(key=lambda place: place.used_at)
            leaving += same[: max(0, len(same) - _MOST_CONNECTIONS + 1)]
        for place in leaving:
            with place.lock:
                self._forget(place)

    def _forget(self, place: _Place) -> None:
        """Read no more there; the last place of a connection that is over takes it along."""
        is_left = False
        with self._lock:
            if self._keeps(place):
                places = self._places[place.at]
                places.remove(place)
                if not places:
                    del self._places[place.at]
                place.cursor.stop()
                fetching = place.fetching
                is_left = fetching.is_over and not any(p.fetching is fetching for p in self._all())
                if is_left:
                    self._fetching.remove(fetching)
        if is_left:
            fetching.client.close()

    def _all(self) -> list[_Place]:
        return list(chain.from_iterable(self._places.values()))

    def _keeps(self, place: _Place) -> bool:
        return place in self._places.get(place.at, ())

    def _of_name(self, at: TopicPartition) -> list[_Place]:
        """Where the partition of that name is read, whatever topic has or had the name."""
        return [p for p in self._all() if (p.at.topic, p.at.partition) == (at.topic, at.partition)]
