"""Feeds onto replicas: one round reads what there is and applies it (`The merge` in docs/architecture.md).

Replicas that stand at the same offset of a feed partition share one read; one that is behind reads on its own until it
has caught up, a bounded batch per round, so that it never holds up the others (rule R25). It reads no further than
those ahead of it have come: so it meets them, however fast records are written. A replica applies what was read of all
its feed partitions together (`anew.node.stores.gathering`). One thread runs the rounds: there is one applier per
replica (rule R18).
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from anew.api.stores.replicas import ReplicaState
from anew.core.admission import Admitted, admit
from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Failed, Unreachable
from anew.core.feed import Feed, FeedPartition
from anew.log.interface import Log, LogRead, TailLost, TopicPartition, topic_partition
from anew.node.faults import fault_of
from anew.node.stores.directories import Verdict, keep_verdict
from anew.node.stores.gathering import Gathered, SharedRows
from anew.node.stores.holding import DeadLetters, Holding, Lag, ReplicaKey
from anew.node.stores.replacing import Replacements
from anew.storage.portions import Portion
from anew.storage.replica import Replica

READ_RECORDS = 4_000
MEETS_NOTHING = "older than the version's tombstone floor, and its key has no cell"
_BACKOFF_SECONDS = (0.1, 5.0)
_DAMAGED = frozenset({"storage_broken", "corrupt_value"})
"""What a replica loaded again is free of; another failure would come again with the same record."""
_APPLY_ATTEMPTS = 2
"""A replica that fails to apply so often in a row, for reasons of its own, is discarded and loaded again."""
_LAGGARD_ENDS_SECONDS = 0.25
_QUIET_SECONDS = (0.02, 0.1)
"""A feed partition that has nothing new is looked at half as often each time, but at least ten times a second."""
_TOLD_SECONDS, _TOGETHER_SECONDS = 1.0, 0.25
"""Once a second is enough where the log tells of appends."""

_WELL = (None, -math.inf)
_log = structlog.get_logger("anew.node.stores.feeds")


@dataclass(slots=True)
class _Source:
    """One feed partition as this node reads it."""

    feed: Feed
    at: FeedPartition
    end: int = 0
    end_read_at: float = 0.0
    retry_at: float = 0.0
    failures: int = 0
    quiet_seconds: float = 0.0
    look_at: float = 0.0
    is_fetched: bool = False

    @property
    def topic(self) -> TopicPartition:
        return topic_partition(self.feed, self.at.partition)


@dataclass(slots=True)
class _Group:
    """The replicas at one offset of a feed partition."""

    source: _Source
    offset: int
    holdings: list[Holding] = field(default_factory=list)


def _due_at(group: _Group) -> float:
    """When to read for a group (monotonic seconds): at once, unless it is at the end, or the log did not answer."""
    source = group.source
    return max(source.retry_at, source.look_at if group.offset >= source.end else 0.0)


class FeedApplier:
    """Reads feeds and applies them. One thread calls `round`; nobody else changes replicas meanwhile.

    Attributes:
        applied: How many records were applied so far, over all replicas.
        behind: Whether the last round left records that are known of.
        replacements: Decides which replicas are loaded again.
    """

    def __init__(
        self,
        log: Log,
        dead_letters: DeadLetters,
        clock: Callable[[], int],
        clock_seconds: Callable[[], float] = time.monotonic,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        """Apply what a log has.

        Args:
            log: Where the feeds are.
            dead_letters: Takes what no version applies.
            clock: The time in ms since the epoch.
            clock_seconds: A monotonic clock.
            progressed: Called between the reads of a round, which may be long.
        """
        self.applied = 0
        self.behind = False
        self._now = clock_seconds
        self._log = log
        self._dead_letters = dead_letters
        self._clock = clock
        self._progressed = progressed
        self.replacements = Replacements(log, clock_seconds)
        self._sources: dict[FeedPartition, _Source] = {}
        self._topics: frozenset[str] = frozenset()
        self._tells = False
        self._before: Sequence[tuple[object, ...]] = ()
        self._due_at = 0.0

    def round(self, holdings: list[Holding]) -> bool:
        """Read one bounded batch for each offset at which a replica stands; whether there was any record."""
        self._listen()
        for holding in holdings:
            if holding.lost and holding.reload is None and holding.retry_at <= self._now():
                self._replace_lost(holding)
        applying = [h for h in holdings if self._applies(h)]
        # Nothing of a still feed changes between two looks: most rounds of a node that serves many are over here.
        seen = [(h.replica, h.reload, h.hold, h.version, h.store) for h in applying]
        self.behind = False
        if self._due_at > self._now() and seen == self._before:
            return False
        groups = self._groups(applying)
        busy = self._serve_all(groups)
        for holding in applying:
            retried = holding.state is ReplicaState.ERROR and not holding.broken and self._applies(holding)
            if retried and holding.is_at_ends():
                # What it failed with is no longer there to be applied.
                self._mend(holding)
        held = any(h.hold is not None for h in applying)
        retries = (at for h in applying for key, (_, at) in h.broken.items() if key not in h.lost)
        due_at = min((*map(_due_at, groups), *retries), default=math.inf)
        self._before, self._due_at = seen, 0.0 if busy or held else due_at
        return busy

    def _applies(self, holding: Holding) -> bool:
        """Whether it takes part in this round: one that failed tries again after its pause.

        One that cannot be read further from one feed partition goes on with the others; that one has its own pause.
        """
        if holding.state is ReplicaState.APPLYING or (holding.broken and holding.replica is not None):
            return True
        return holding.state is ReplicaState.ERROR and holding.replica is not None and holding.retry_at <= self._now()

    def _listen(self) -> None:
        """Look at once at what the log tells of."""
        touched = self._log.touched(self._topics)
        self._tells = touched is not None
        if not touched:
            return
        for source in self._sources.values():
            if source.feed.topic in touched:
                source.quiet_seconds = source.look_at = self._due_at = 0.0

    def _serve_all(self, groups: list[_Group]) -> bool:
        due = [group for group in groups if _due_at(group) <= self._now()]
        to_come = Counter(holding.key for group in due for holding in group.holdings)
        busy, gathered = False, Gathered()
        front: dict[FeedPartition, int] = {}
        self._fetch_ahead(due)
        for group in due:
            self._progressed()
            # Not any more where the log has just not answered those ahead.
            if _due_at(group) <= self._now():
                busy |= self._serve_patiently(group, front, gathered)
            to_come.subtract(holding.key for holding in group.holdings)
            # A replica for which nothing more comes does not wait for the others': who wrote wants to read.
            complete = [holding.key for holding in group.holdings if not to_come[holding.key]]
            self._apply(gathered.take_all() if gathered.is_much else gathered.take(complete))
        return busy

    def _fetch_ahead(self, groups: Iterable[_Group]) -> None:
        """Let the log begin with all feed partitions at once that are read for the first time."""
        places: dict[TopicPartition, int] = {}
        for group in groups:
            if not group.source.is_fetched:
                group.source.is_fetched = True
                places[group.source.topic] = group.offset
        if places:
            self._log.fetch_ahead(places)

    def _serve_patiently(self, group: _Group, front: dict[FeedPartition, int], gathered: Gathered) -> bool:
        """Serve a group, whose feed partition waits when it cannot be read; whether its offset moves."""
        source = group.source
        try:
            reached = self._serve(group, front.get(source.at), gathered)
        except Failed as error:
            self._fail(group, error)
            return False
        except Exception as error:  # noqa: BLE001 - of this feed partition alone: the others are read all the same
            self._wait(group, fault_of(error))
            return False
        source.failures, source.retry_at = 0, 0.0
        front.setdefault(source.at, reached)
        return reached != group.offset

    def _groups(self, holdings: list[Holding]) -> list[_Group]:
        """Who reads what from where; what is of the same replicas together, and of it those first that keep up."""
        groups: dict[tuple[FeedPartition, int], _Group] = {}
        first: dict[FeedPartition, ReplicaKey] = {}
        used: set[FeedPartition] = set()
        for holding in holdings:
            replica = holding.replica
            if replica is None or holding.reload is not None:
                continue
            for feed, at in holding.feed_partitions():
                used.add(at)
                if at in holding.lost or holding.broken.get(at, _WELL)[1] > self._now():
                    # Of it alone: others of this feed partition stand elsewhere, and are read on.
                    continue
                source = self._sources.setdefault(at, _Source(feed, at))
                source.feed = feed
                offset = replica.offset(at)
                if offset is None:
                    offset = holding.start_of(feed, at)
                    replica.advance(at, offset)
                stop = holding.stop_of(at)
                if stop is not None and offset >= stop:
                    holding.lags[at] = Lag(offset)
                    # Whatever it waited for lies behind what it is to apply.
                    holding.waiting.pop(at, None)
                    holding.undecided.pop(at, None)
                    continue
                if holding.hold is not None and offset >= holding.hold.limit(at, offset):
                    continue
                groups.setdefault((at, offset), _Group(source, offset)).holdings.append(holding)
                first[at] = min(first.get(at, holding.key), holding.key)
        for at in self._sources.keys() - used:
            del self._sources[at]
        self._topics = frozenset(source.feed.topic for source in self._sources.values())
        return sorted(groups.values(), key=lambda group: (first[group.source.at], group.source.at, -group.offset))

    def _serve(self, group: _Group, front: int | None, gathered: Gathered) -> int:
        """Read once for the group, up to where others are, for each of its replicas; how far the first of them comes.

        Raises:
            Unreachable: The log does not answer.
            Failed: ``topic_lost``, ``offset_out_of_range``.
        """
        source = group.source
        most = READ_RECORDS if front is None else min(READ_RECORDS, max(1, front - group.offset))
        read = self._log.read(source.topic, group.offset, most, front)
        self._note_end(source, read, group.offset)
        appended = read.records.column("appended_ms")
        last_ms = appended[len(appended) - 1].as_py() if len(appended) else None
        behind_ms = 0 if last_ms is None or read.next_offset >= source.end else max(0, self._clock() - last_ms)
        reached = self._gather(group, read, gathered) if read.next_offset > group.offset else group.offset
        for holding in group.holdings:
            holding.lags[source.at] = Lag(source.end, behind_ms)
            if holding.broken.pop(source.at, None) is not None:
                self._mend(holding)
            if read.next_offset == group.offset:
                holding.waiting.pop(source.at, None)
                holding.undecided.pop(source.at, None)
        moved = reached != group.offset
        self.behind |= moved and (front is not None or read.next_offset < source.end or len(appended) == most)
        return reached

    def _note_end(self, source: _Source, read: LogRead, offset: int) -> None:
        now = self._now()
        if read.next_offset == offset:
            first, longest = _QUIET_SECONDS
            source.end, source.end_read_at = offset, now
            source.look_at = now + source.quiet_seconds
            if self._tells:
                longest = _TOLD_SECONDS
                # Many that are still together are looked at together: the rounds between have nothing to do.
                source.look_at = math.ceil(source.look_at / _TOGETHER_SECONDS) * _TOGETHER_SECONDS
            source.quiet_seconds = min(longest, max(first, 2 * source.quiet_seconds))
            return
        source.quiet_seconds = source.look_at = 0.0
        if now - source.end_read_at >= _LAGGARD_ENDS_SECONDS:
            source.end, source.end_read_at = self._log.offsets(source.topic).end, now
        source.end = max(source.end, read.next_offset)

    def _gather(self, group: _Group, read: LogRead, gathered: Gathered) -> int:
        """What each replica of the group is to apply of a read; how far the first of them comes."""
        source, reached = group.source, group.offset
        gathered.note(read)
        by_start: dict[int, list[Holding]] = defaultdict(list)
        for holding in group.holdings:
            # A start at or below what was read lets everything in: such replicas share one admission.
            by_start[max(holding.start_of(source.feed, source.at), group.offset)].append(holding)
        all_admitted = list[tuple[Admitted, list[Holding]]]()
        for start, holdings in by_start.items():
            schemas = holdings[0].store.schemas
            admitted = admit(source.feed, source.at.partition, start, read.records, schemas)
            all_admitted.append((admitted, holdings))
            for rejection in admitted.rejected:
                for uid in {holding.store.uid for holding in holdings}:
                    self._dead_letters.add(uid, source.at, rejection.offset, rejection.reason)
        # Before any replica can move past them.
        self._dead_letters.keep()
        for admitted, holdings in all_admitted:
            rows = SharedRows(admitted)
            for holding in holdings:
                try:
                    portion = self._portion(holding, source.at, rows, read.next_offset)
                except Exception as error:  # noqa: BLE001 - of this version alone: its partitioner is somebody's own
                    self._set_aside(holding, fault_of(error))
                    continue
                gathered.add(holding, portion)
                reached = max(reached, portion.next_offset)
        return reached

    def _portion(self, holding: Holding, at: FeedPartition, rows: SharedRows, next_offset: int) -> Portion:
        """What a replica is to apply of what was read of a feed partition up to an offset."""
        undecided = rows.first_undecided(holding)
        unknown = None if undecided is None else undecided[0]
        stop = holding.stop_of(at)
        held = None if holding.hold is None else holding.hold.limit(at, next_offset)
        reached = min(limit for limit in (next_offset, stop, held, unknown) if limit is not None)
        if undecided is not None and reached == unknown:
            self._say_waiting(holding, at, f"waits for a value schema that record {at}@{unknown} names")
            holding.undecided[at] = undecided
        else:
            holding.waiting.pop(at, None)
            holding.undecided.pop(at, None)
        kept = rows.of(holding, reached if reached < next_offset else None)
        return Portion(at, kept.rows, kept.offsets, reached)

    def _apply(self, gathered: Iterable[tuple[Holding, list[Portion]]]) -> None:
        """Let each replica apply what was read for it."""
        for holding, portions in gathered:
            replica = holding.replica
            if replica is None or not self._applies(holding):
                # What failed to apply a part of the round's is not well because it applies another one.
                continue
            try:
                replica.apply(portions, partial(self._reject, holding))
            except Exception as error:  # noqa: BLE001 - of this replica alone: the others apply all the same
                self._set_aside(holding, fault_of(error))
                continue
            holding.apply_failures = 0
            self._mend(holding)
            records = sum(portion.rows.num_rows for portion in portions)
            holding.applied += records
            self.applied += records

    def _reject(self, holding: Holding, places: list[tuple[FeedPartition, int]]) -> None:
        """Keep what a replica turns away, before its position moves past it."""
        for at, offset in places:
            self._dead_letters.add(holding.store.uid, at, offset, MEETS_NOTHING)
        self._dead_letters.keep()

    def _set_aside(self, holding: Holding, error: AnewError) -> None:
        """A replica that cannot apply serves what it has; what its disk has damaged is loaded again."""
        holding.apply_failures += 1
        holding.broken.clear()
        if error.code == "corrupt_value" and not holding.reloads:
            # Of this disk, as far as is known; what is loaded again and has it too has it from the base.
            error = Failed("storage_broken", "a replica has a value that cannot be decoded", found=str(error))
        holding.breaks(error, str(error), self._now() + _BACKOFF_SECONDS[1])
        if holding.apply_failures == 1:
            _log.error("apply_failed", replica=holding.name, code=error.code, error=str(error))  # it says it all
        if error.code in _DAMAGED and holding.apply_failures >= _APPLY_ATTEMPTS:
            self.replacements.replace(holding, str(error))

    def look_again(self, holding: Holding, replica: Replica) -> None:
        """See `anew.node.stores.replacing.Replacements.look_again`; what can be read by now goes on."""
        if not self.replacements.look_again(holding, replica, self._now() + _BACKOFF_SECONDS[1]):
            self._mend(holding)

    def _mend(self, holding: Holding) -> None:
        """What it failed with is over: it got on; what it still cannot be read further from is told."""
        if holding.state is not ReplicaState.ERROR or holding.reload is not None or holding.is_in_doubt:
            return
        if holding.broken:
            at, (error, _) = next(iter(holding.broken.items()))
            holding.error, holding.error_code = _lost(at, holding, error), error.code
            return
        _log.info("replica_goes_on", replica=holding.name, after=holding.error)
        holding.state, holding.error, holding.error_code = ReplicaState.APPLYING, None, None

    def _wait(self, group: _Group, error: AnewError) -> None:
        """Go on serving, and ask the log again a little later each time."""
        source = group.source
        first, longest = _BACKOFF_SECONDS
        source.failures += 1
        source.retry_at = self._now() + backoff_seconds(source.failures, first, longest)
        for holding in group.holdings:
            why = "the log does not answer" if isinstance(error, Unreachable) else "it cannot be read"
            self._say_waiting(holding, source.at, f"{why}: {error}")

    def _fail(self, group: _Group, error: AnewError) -> None:
        """A replica that cannot read on from where it stands: it says so, and tries again; others are read elsewhere.

        A position that the log does not have: it is loaded again from the base where the log has what follows it (rule
        R3). Where it has not, nothing could be read again: what was applied stays, and may be the last copy of it. Of a
        position behind the end what follows is never read: the log has lost what was applied there, and what is
        written in its place has the same offsets.
        """
        source = group.source
        for holding in group.holdings:
            retry_at, why = self._now() + _BACKOFF_SECONDS[1], _lost(source.at, holding, error)
            if isinstance(error, TailLost):
                holding.lost.add(source.at)
                # Before anybody hears of it: a moment later the log may have grown, and then nothing tells of it.
                self._keep_verdict(holding, why)
            holding.breaks(error, why, retry_at)
            holding.broken[source.at] = error, retry_at
            _log.error("feed_lost", replica=holding.name, feed=str(source.at), offset=group.offset, error=str(error))
            if isinstance(error, TailLost):
                self._replace_lost(holding)

    def _keep_verdict(self, holding: Holding, why: str) -> None:
        """A restart does not forgive it either."""
        if holding.replica is None:
            return
        try:
            keep_verdict(holding.replica.directory, Verdict(why, tuple(sorted(holding.lost))))
        except OSError as error:
            _log.warning("verdict_not_kept", replica=holding.name, error=str(error))

    def _replace_lost(self, holding: Holding) -> None:
        """Have a replica loaded again whose position the log has lost, if that is possible now."""
        holding.retry_at = self._now() + _BACKOFF_SECONDS[1]
        self.replacements.replace(holding, str(holding.error))

    def _say_waiting(self, holding: Holding, at: FeedPartition, why: str) -> None:
        if holding.waiting.get(at) != why:
            holding.waiting[at] = why
            _log.warning("feed_waits", replica=holding.name, feed=str(at), why=why)


def _lost(at: FeedPartition, holding: Holding, error: AnewError) -> str:
    """What keeps a replica from reading on, with where it stands."""
    offset = None if holding.replica is None else holding.replica.offset(at)
    return f"{at}@{offset}: {error}"
