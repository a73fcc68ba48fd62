"""What a node holds: one entry per replica, with everything that the engine, the feeds and the report say of it."""

from __future__ import annotations

import json
import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from anew.api.stores.replicas import (
    DeadLetter,
    DesiredStore,
    DesiredVersion,
    ReplicaReport,
    ReplicaState,
    UnknownSchema,
)
from anew.core.errors import AnewError
from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.partition import Partitioner
from anew.core.partitioning import partitioner_of
from anew.core.stores.feedreads import feed_partitions_applied, start_of, stop_of
from anew.node.keeping import replace_file
from anew.node.stores.loadjob import Loaded
from anew.storage.replica import Replica

MAX_DEAD_LETTERS = 10_000
_MANIFEST_DIGITS = 16

_Letter: TypeAlias = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """Which replica: ``manifest`` is the start of the manifest's checksum, so that another base is another replica."""

    store_uid: str
    version: int
    partition: int
    sub_partition: int
    manifest: str

    @property
    def path(self) -> str:
        """Where it lies below the node's replica folder."""
        return f"{self.store_uid}/v{self.version}/p{self.partition}-s{self.sub_partition}/{self.manifest}"


def keys_of(store: DesiredStore, version: DesiredVersion) -> list[ReplicaKey]:
    """The replicas that a node is to hold of one version."""
    manifest = version.manifest.checksum[:_MANIFEST_DIGITS]
    return [
        ReplicaKey(store.uid, version.number, partition, sub, manifest)
        for partition in version.partitions
        for sub in range(version.config.amplification_factor)
    ]


@dataclass(slots=True)
class Lag:
    """How far a replica is behind one feed partition: ``end`` is the one seen last."""

    end: int
    behind_ms: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """How far a replica may apply for a while; no position: no further than where it stands."""

    position: PositionMap | None = None

    def limit(self, at: FeedPartition, offset: int) -> int:
        """Up to where a replica that stands at an offset of a feed partition may apply it."""
        return offset if self.position is None else self.position.get(at, offset)


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a replica reads, as it follows from a version and the feeds of its store; asked for in every round."""

    version: DesiredVersion
    feeds: tuple[Feed, ...]
    found: list[tuple[Feed, FeedPartition]]


@dataclass(slots=True)
class Holding:
    """One replica on this node. Changed by the node's one applier thread alone; others read single fields.

    Attributes:
        store: The store as last desired; ``version`` likewise.
        replica: Open from `ReplicaState.APPLYING` on.
        error: Why it cannot go on, or what it waits for; ``error_code`` says it for programs.
        loads_into: Where its load makes it.
        lags: Feed partition → lag.
        waiting: Feed partition → why it is not read just now.
        undecided: Feed partition → the offset that it waits at and the value schema that the record there names.
        retry_at: When to try again (monotonic seconds); ``failures`` in a row before.
        leaving_at: When it was first no longer desired (monotonic seconds).
        reload: Why it is to be discarded and loaded again.
        notice: What happened to it and is over; reported until ``notice_until`` (monotonic seconds).
        integrity_failures: How often in a row its base was not what the manifest says.
        hold: Set while somebody verifies it (`anew.node.stores.verifying`).
        arrived: Whether it has been at the ends of all that it reads since it was opened.
        apply_failures: How often in a row it could not apply what was read for it.
        broken: Feed partition → why it cannot be read further from there, and when to try again (monotonic seconds);
            empty: it fails at something else.
        damaged: What is damaged in it, as readers or a verification found, who come across it where writes are rare.
        lost: Feed partitions of which it has applied what the log has lost: never read on, also after a restart.
        reloads: How often it was loaded again within the hour; ``reloaded_at`` last (monotonic seconds).
        beside: What is to take its place, of the same key: it applies what this one has applied, and is neither served
            nor reported until then. There only while `reload` is set, when this one applies nothing.
        stuck_at: Since when it has had a reason not to get on (monotonic seconds), as reports saw it.
    """

    key: ReplicaKey
    store: DesiredStore
    version: DesiredVersion
    state: ReplicaState = ReplicaState.PENDING
    replica: Replica | None = None
    load: Future[Loaded] | None = None
    loads_into: Path | None = None
    error: str | None = None
    error_code: str | None = None
    lags: dict[FeedPartition, Lag] = field(default_factory=dict)
    waiting: dict[FeedPartition, str] = field(default_factory=dict)
    undecided: dict[FeedPartition, tuple[int, int]] = field(default_factory=dict)
    retry_at: float = 0.0
    failures: int = 0
    integrity_failures: int = 0
    leaving_at: float | None = None
    reload: str | None = None
    notice: str | None = None
    notice_until: float = 0.0
    hold: Hold | None = None
    arrived: bool = False
    applied: int = 0
    apply_failures: int = 0
    records_per_s: float = 0.0
    broken: dict[FeedPartition, tuple[AnewError, float]] = field(default_factory=dict)
    damaged: str | None = None
    lost: set[FeedPartition] = field(default_factory=set)
    reloads: int = 0
    reloaded_at: float = -math.inf
    beside: Holding | None = None
    stuck_at: float | None = None
    _reads: _Reads | None = None

    @property
    def name(self) -> str:
        """For people: ``flights_v7/3``."""
        sub = f".{self.key.sub_partition}" if self.version.config.amplification_factor > 1 else ""
        return f"{self.store.name}_v{self.version.number}/{self.key.partition}{sub}"

    @property
    def place(self) -> tuple[int, int]:
        """Its partition and sub-partition."""
        return self.key.partition, self.key.sub_partition

    @property
    def partitioner(self) -> Partitioner:
        """How the version places keys."""
        return partitioner_of(self.version.config)

    def feed_partitions(self) -> list[tuple[Feed, FeedPartition]]:
        """What the replica reads: the partitions of its version's ready feeds that can hold its keys."""
        known = self._reads
        if known is None or known.version is not self.version or known.feeds is not self.store.feeds:
            found = feed_partitions_applied(self.version, self.store.feeds, self.key.partition)
            known = self._reads = _Reads(self.version, self.store.feeds, found)
        return known.found

    def arrives(self) -> bool:
        """Whether it is for the first time at the ends of all that it reads, as they were seen last."""
        replica = self.replica
        if self.arrived or replica is None:
            return False
        self.arrived = self.is_at_ends()
        if self.arrived:
            replica.come_up()
        return self.arrived

    @property
    def is_in_doubt(self) -> bool:
        """Whether it is known to be damaged, or a read failed that nobody has repeated yet."""
        return self.damaged is not None or (self.replica is not None and self.replica.is_in_doubt)

    @property
    def answers(self) -> bool:
        """Whether it is read.

        One of a base alone is not: readers would see again what was deleted since, and miss what was written.
        """
        opened = self.state in (ReplicaState.APPLYING, ReplicaState.ERROR)
        return opened and self.replica is not None and not self.replica.is_fresh

    def is_at_ends(self) -> bool:
        """Whether it is at the ends of all that it reads, as they were seen last."""
        if self.replica is None:
            return False
        ends = [(self.replica.offset(at), self.lags.get(at)) for _, at in self.feed_partitions()]
        return all(lag is not None and offset is not None and offset >= lag.end for offset, lag in ends)

    @property
    def gets_on(self) -> bool:
        """Whether nothing keeps it from applying what it reads."""
        return self.state is ReplicaState.APPLYING and not self.waiting

    def begin(self, replica: Replica) -> None:
        """It is open, and applies from where it stands."""
        self.replica, self.state, self.arrived = replica, ReplicaState.APPLYING, False
        self.error, self.error_code, self.failures, self.integrity_failures = None, None, 0, 0
        self.damaged = None
        self.broken.clear()
        self.lost.clear()

    def breaks(self, error: AnewError, why: str, retry_at: float) -> None:
        """It goes on later (monotonic seconds), and serves what it has meanwhile."""
        self.state, self.error, self.retry_at = ReplicaState.ERROR, why, retry_at
        self.error_code = error.code

    def take_over(self, beside: Holding) -> None:
        """What lies beside it has come up to it: go on as that."""
        if beside.replica is not None and (self.replica is None or not self.replica.is_fresh):
            # It has what readers have seen.
            beside.replica.come_up()
        self.reload, self.beside, self.damaged = None, None, None
        self.lags, self.waiting, self.undecided = beside.lags, beside.waiting, beside.undecided
        self.broken, self.lost = beside.broken, beside.lost
        self.replica, self.state, self.arrived = beside.replica, beside.state, beside.arrived or self.arrived
        self.error, self.error_code, self.retry_at = beside.error, beside.error_code, beside.retry_at
        self.failures, self.apply_failures = 0, beside.apply_failures
        self.reloads, self.reloaded_at = beside.reloads, beside.reloaded_at

    def start_of(self, feed: Feed, at: FeedPartition) -> int:
        """From where the version applies a feed partition; a feed without a start there is read from its low water."""
        return start_of(self.version.start, feed, at)

    def stop_of(self, at: FeedPartition) -> int | None:
        """Up to where the version applies a feed partition (rule R10); None: without end."""
        return stop_of(self.version, at)

    def report(self, now_seconds: float) -> ReplicaReport:
        """What the node says of it at a monotonic time."""
        replica = self.replica
        wanted = {at for _, at in self.feed_partitions()}
        position = PositionMap() if replica is None else replica.position
        # It reads on in what is to take its place. Read once: the applier may change it meanwhile.
        coming = self.beside
        reader = self if coming is None else coming
        lags = reader.lags.copy()
        behind = {at: max(0, lag.end - position.get(at, 0)) for at, lag in lags.items() if at in wanted}
        notice = self.notice if now_seconds < self.notice_until else None
        waiting = [why for at, why in reader.waiting.copy().items() if at in wanted]
        beside = None if coming is None else coming.error
        notes = [note for note in (self.error, beside, notice, *waiting) if note is not None]
        # Thrown away and loaded again it is no further than before, until it is where it was.
        is_stuck = bool(waiting) or self.error is not None or (self.reloads > 0 and not self.arrived)
        stuck_ms = self._stuck_ms(now_seconds, is_stuck=is_stuck)
        reads = bool(wanted)
        return ReplicaReport(
            store_uid=self.store.uid,
            version=self.version.number,
            partition=self.key.partition,
            sub_partition=self.key.sub_partition,
            state=self.state,
            store_revision=self.store.revision,
            position=PositionMap({at: offset for at, offset in position.items() if at in wanted}),
            # What does not get on is never at the end, nor what has not seen all ends yet.
            lag_records=max(sum(behind.values()), int(reads and (stuck_ms > 0 or not wanted <= lags.keys()))),
            lag_ms=max((lag.behind_ms for at, lag in lags.items() if behind.get(at)), default=0)
            + (stuck_ms if reads else 0),
            rows=0 if replica is None else replica.base.rows,
            records_per_s=round(self.records_per_s, 1),
            error="; ".join(notes) if notes else None,
            # Another node may do better than one on which the other one fails, too.
            error_code=None if self.error is None else (self.error_code if beside is None else reader.error_code),
            stuck_ms=stuck_ms,
            arrived=self.arrived,
            fresh=replica is not None and replica.is_fresh,
        )

    def _stuck_ms(self, now_seconds: float, *, is_stuck: bool) -> int:
        """For how long it has had a reason not to get on; 0 when it has none."""
        if not is_stuck:
            self.stuck_at = None
            return 0
        self.stuck_at = now_seconds if self.stuck_at is None else self.stuck_at
        return max(1, int((now_seconds - self.stuck_at) * 1000))


def unknown_schemas(holdings: Iterable[Holding]) -> tuple[UnknownSchema, ...]:
    """What replicas wait at, once for each record."""
    found = {
        (holding.store.uid, at.feed, at.partition, *undecided)
        for holding in holdings
        for at, undecided in list(holding.undecided.items())
    }
    return tuple(
        UnknownSchema(store_uid=uid, feed=feed, partition=partition, offset=offset, schema_id=schema_id)
        for uid, feed, partition, offset, schema_id in sorted(found)
    )


class DeadLetters:
    """Records that no version applies, each told once; kept, on the disk too, until a report has carried them.

    A replica's position moves past a record that it does not apply. So the letter is on the disk before the position
    is (`keep`), or nobody would ever hear of it from a node that is killed in between. The applier adds and keeps, the
    report tells: each from a thread of its own.
    """

    def __init__(self, journal: Path | None = None) -> None:
        """Begin with what a run before has not told.

        Args:
            journal: The file, a line for each letter; None: they are kept in memory alone.

        Raises:
            OSError: The journal cannot be read or written.
        """
        self._journal = journal
        self._lock = threading.Lock()
        self._unkept: list[tuple[_Letter, str]] = []
        self._waiting: dict[_Letter, str] = dict(_kept_letters(journal))
        self._told: deque[_Letter] = deque(maxlen=MAX_DEAD_LETTERS)
        self._told_set: set[_Letter] = set()
        self._lines = 0
        self._torn = False
        self.total = 0
        # A line that a crash has cut must not swallow the one that comes after it.
        self._rewrite()

    def add(self, store_uid: str, at: FeedPartition, offset: int, reason: str) -> None:
        """Keep one to be told; nothing happens when it was told before. Beyond the limit it is only counted."""
        letter = (store_uid, at.feed, at.partition, offset)
        with self._lock:
            if letter in self._told_set or letter in self._waiting:
                return
            self.total += 1
            if len(self._waiting) < MAX_DEAD_LETTERS:
                self._waiting[letter] = reason
                self._unkept.append((letter, reason))

    def keep(self) -> None:
        """Write down those that were added since; to be called before a position moves past them.

        Raises:
            OSError: The disk does not take them.
        """
        with self._lock:
            if self._journal is None or not self._unkept:
                return
            # A line that a full disk has cut must not swallow the one that comes after it.
            lines = ("\n" if self._torn else "") + _lines(self._unkept)
            self._torn = True
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            self._torn = False
            self._lines += len(self._unkept)
            self._unkept.clear()

    def waiting(self) -> tuple[DeadLetter, ...]:
        """Those that are still to be told."""
        with self._lock:
            waiting = list(self._waiting.items())
        return tuple(
            DeadLetter(store_uid=uid, feed=feed, partition=partition, offset=offset, reason=reason)
            for (uid, feed, partition, offset), reason in waiting
        )

    def reported(self, letters: Iterable[DeadLetter]) -> None:
        """A report carried them.

        Raises:
            OSError: The journal cannot be written.
        """
        with self._lock:
            for letter in letters:
                key = (letter.store_uid, letter.feed, letter.partition, letter.offset)
                self._waiting.pop(key, None)
                if len(self._told) == self._told.maxlen:
                    self._told_set.discard(self._told[0])
                self._told.append(key)
                self._told_set.add(key)
            if not self._waiting or self._lines > 2 * MAX_DEAD_LETTERS:
                self._rewrite()

    def _rewrite(self) -> None:
        """Leave in the journal what waits, and no file where nothing does."""
        if self._journal is None:
            return
        if not self._waiting:
            self._journal.unlink(missing_ok=True)
        else:
            replace_file(self._journal, _lines(self._waiting.items()).encode())
        self._lines, self._torn = len(self._waiting), False
        self._unkept.clear()


def _lines(letters: Iterable[tuple[_Letter, str]]) -> str:
    """The lines of the journal."""
    return "".join(json.dumps([*letter, reason]) + "\n" for letter, reason in letters)


def _kept_letters(journal: Path | None) -> Iterator[tuple[_Letter, str]]:
    """What a run before wrote down; a last line that a crash has cut is none: its position did not move either."""
    if journal is None or not journal.exists():
        return
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            uid, feed, partition, offset, reason = json.loads(line)
        except ValueError:
            continue
        yield (str(uid), str(feed), int(partition), int(offset)), str(reason)
