"""What must hold of jobs, of what they write, and of the stores that they feed.

Each breach is kept with the name of its invariant; the names are what planted bugs are found by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from anew.catalog.change import Operation
from anew.client.store import Found
from anew.core.errors import Refused
from anew.core.feed import Feed, FeedKind
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job
from anew.core.jobs.rebuild import JobRebuild
from anew.core.rebuild import RebuildStatus
from anew.core.stores.jobfeeds import job_of
from anew.core.stores.store import SERVABLE, RebuildKind, Store, Version, VersionStatus
from anew.log.interface import Appended, TopicPartition
from anew.testing.builders import FABRIC
from anew.testing.memory.catalogtables import Tables
from tests.simulation.invariants import _GONE, Invariants
from tests.simulation.jobs.functions import Event
from tests.simulation.jobs.inplace import INPUT, check_place, check_taken_back, code_of, given_up
from tests.simulation.jobs.oracle import (
    Batch,
    Input,
    Record,
    VersionModel,
    newest,
    record_of,
    strange,
    text_of,
    wrong_batch,
)
from tests.simulation.parts import NodePart

EVENTS = "flight_events"
_LIVES = SERVABLE | {VersionStatus.BUILDING, VersionStatus.PENDING}


@dataclass
class JobChecks(Invariants):
    """Watches a world with a job.

    Attributes:
        began: Rebuild and epoch → the batches for which its driver proved its lease.
    """

    began: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    _feeds: dict[str, Feed] = field(default_factory=dict)
    generations: dict[tuple[str, int], Generation] = field(default_factory=dict)
    _owners: dict[tuple[str, int], str] = field(default_factory=dict)
    _rows: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    _batches_seen: set[tuple[str, int, int, int]] = field(default_factory=set)

    # -- as it happens -------------------------------------------------------------------------------------------------

    def proved(self, rebuild: str, epoch: int, batch: int) -> None:
        """A driver was answered that it holds its lease, before a batch."""
        record = self.machines.database.tables.rebuilds.get(rebuild)
        if record is not None and record.epoch == epoch:
            self.began.setdefault((rebuild, epoch), set()).add(batch)

    def _on_commit(self, before: Tables, after: Tables, operation: Operation) -> None:
        moved = [(before.stores.get(uid), store) for uid, store in after.stores.items()]
        moved = [(old, store) for old, store in moved if old is not store]
        for _, store in moved:
            self.account.note(store)
            self._feeds.update({feed.id: feed for feed in store.feeds})
        for uid, job in after.jobs.items():
            known = before.jobs.get(uid)
            if known is not job:
                self._check_job(known, job)
        for old, store in moved:
            for rebuild in after.rebuilds.values():
                source = getattr(rebuild.plan.source, "input", None) if hasattr(rebuild.plan, "source") else None
                if source is not None:
                    self.account.inputs[store.uid, getattr(rebuild, "version", 0)] = source.paths[0]
            self._check_marks(store)
            if old is not None:
                self._check_moved(old, store, operation)
        if before.jobs is not after.jobs or before.stores is not after.stores:
            self._check_serving(after)

    def _check_marks(self, store: Store) -> None:
        current = store.current.get(FABRIC, 0)
        holders = [v.number for v in store.versions if v.status_in(FABRIC) is VersionStatus.CURRENT]
        if store.deleted_at_ms is None and holders != ([current] if current else []):
            self.breach("one current version", f"{store.name}: current {current}, status current: {holders}")
        own = {g.writes_to for g in self.generations.values() if self._has_own_version(store, g)}
        own |= given_up(store.version(current), self.generations.values())
        for version in store.versions:
            if version.status_in(FABRIC) not in _LIVES:
                continue
            # What replaces a job's feed replaces all that this one had replaced.
            again = {job_of(self._feeds[feed]) for feed in version.replaces}
            needed = {feed.id for feed in store.feeds if job_of(feed) is None or job_of(feed) not in again}
            lacking = needed - own - set(version.feeds) - set(version.replaces)
            if lacking and version.stop is None:
                self.breach("every version has every feed", f"{version.name_in(store.name)} lacks {lacking} (R9)")
            for feed in store.feeds_of(version):
                for at, mark in zip(feed.feed_partitions(), feed.low_water, strict=True):
                    if mark > version.fabrics[FABRIC].start.get(at, mark):
                        self.breach("low water", f"{at} at {mark}, above the start of {version.number} (R2)")

    def _has_own_version(self, store: Store, generation: Generation) -> bool:
        """Whether a version followed a generation alone, and was not given up for what serves."""
        version = None if generation.version is None else store.version(generation.version)
        if version is None or version.status_in(FABRIC) is not VersionStatus.KILLED:
            return generation.version is not None
        return generation.over

    def _check_moved(self, old: Store, store: Store, operation: Operation) -> None:
        for version in store.versions:
            before = old.version(version.number)
            if before is None:
                self._check_new(store, version)
                continue
            was, now = before.status_in(FABRIC), version.status_in(FABRIC)
            gone = was is VersionStatus.FOLLOWING and now in _GONE and operation.what.startswith("begin")
            if gone or (was is not now and operation.what == "begin rewind"):
                self.breach("what follows is in nobody's way", f"{version.number} by {operation.what}")
            if was in SERVABLE and now in SERVABLE:
                frozen = ("ttl_floor_ms", "tombstone_floor_ms", "config")
                moved = [name for name in frozen if getattr(before, name) != getattr(version, name)]
                if moved:
                    self.breach("frozen", f"{moved} of version {version.number} changed")
        for gone_by in (v for v in old.versions if store.version(v.number) is None and not v.reclaimed):
            self.breach("history is kept", f"version {gone_by.number} is not in the catalog any more")
        self._check_given_up_by(old, store, operation)

    def _check_given_up_by(self, old: Store, store: Store, operation: Operation) -> None:
        """What comes into service applies, or replaces, all that what goes out of it applied (rule R9)."""
        was, now = old.current.get(FABRIC, 0), store.current.get(FABRIC, 0)
        past, present = old.version(was), store.version(now)
        if was == now or past is None or present is None or operation.what in ("cut over", "undo rewind"):
            return
        given_up = set(past.feeds) - set(present.feeds) - set(present.replaces)
        if given_up:
            self.breach("a swap gives nothing up", f"{was} → {now}: {given_up} (R9)")

    def _check_new(self, store: Store, version: Version) -> None:
        source = None if version.source_version is None else store.version(version.source_version)
        if source is None:
            return
        if set(source.feeds) - set(version.feeds):
            self.breach("a repush keeps its feeds", f"{version.name_in(store.name)}: {version.feeds} (R9)")
        # No job of a history declares how late its records may be.
        undeclared = [f for f in store.feeds_of(version) if f.kind is FeedKind.GENERATION]
        if undeclared and version.tombstone_floor_ms > source.tombstone_floor_ms:
            self.breach("no floor over records that may be late", f"{version.name_in(store.name)} (R12)")

    def _check_job(self, before: Job | None, job: Job) -> None:
        for generation in job.generations:
            known = before.find(generation.number) if before is not None else None
            self.generations[job.uid, generation.number] = generation
            owner = self._owners.setdefault((job.name, generation.number), job.uid)
            if owner != job.uid:
                self.breach("generation numbers", f"{job.name}@{generation.number} is of two jobs (R20)")
            if before is not None and known is None and generation.number < before.next_generation:
                self.breach("generation numbers", f"{job.name}@{generation.number} came again")
            if known is None:
                self._check_output(job, generation)
                check_place(self, job, generation)
            is_there = self.account.stores[job.output.uid].deleted_at_ms is None
            if generation.status is GenerationStatus.FAILED and is_there:
                self.breach("a generation goes on", f"{job.name}@{generation.number}: {generation.error}")

    def _check_output(self, job: Job, generation: Generation) -> None:
        """A generation writes into what its job was made for, and into nothing else of that name (rule R16)."""
        feed = self._feeds.get(generation.writes_to)
        owners = {store.uid for store in self.account.stores.values() if feed in store.feeds}
        if feed is not None and owners != {job.output.uid}:
            self.breach("a job keeps to its store", f"{job.name}@{generation.number} writes into {owners} (R16)")

    def _check_serving(self, tables: Tables) -> None:
        """Readers ask a version that applies the feed of the live generation."""
        for job in tables.jobs.values():
            store = tables.stores.get(job.output.uid)
            if job.live is None or store is None or store.deleted_at_ms is not None:
                continue
            current = store.version(store.current.get(FABRIC, 0))
            feed = job.generation(job.live).writes_to
            if current is None or feed not in current.feeds:
                self.breach(
                    "the live generation serves", f"{job.name}@{job.live}, version {current and current.number}"
                )

    def _on_acknowledged(self, at: TopicPartition, appended: Appended, records: pa.RecordBatch) -> None:
        super()._on_acknowledged(at, appended, records)
        generation = next((g for g in self.generations.values() if self._is_output(g, at.uid)), None)
        if generation is None:
            return
        for record in self._records(at.uid, at.partition)[appended.first_offset : appended.next_offset]:
            if record.batch not in self.began.get((generation.rebuild, record.epoch), set()):
                self.breach(
                    "a batch is begun under a lease",
                    f"generation {generation.number}, batch {record.batch}, epoch {record.epoch} (N8)",
                )

    def _is_output(self, generation: Generation, topic_uid: str) -> bool:
        feed = self._feeds.get(generation.writes_to)
        return feed is not None and feed.topic_uid == topic_uid

    def refused(self, error: Refused) -> None:
        """A push or a repush is not kept from its begin by a version that follows."""
        for store in self.machines.database.tables.stores.values():
            for version in store.versions:
                named = str(error.found).startswith(f"{version.name_in(store.name)},")
                if error.code == "rebuild_running" and named and version.has({VersionStatus.FOLLOWING}):
                    self.breach("what follows is in nobody's way", str(error))

    # -- now and then --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """All that must hold at any moment."""
        super().look()
        for at, record in sorted(self.machines.database.tables.batches.items()):
            self._check_batch(at, record)
        present = {topic.spec.uid for topic in self.machines.topics.present.values()}
        for store in self.machines.database.tables.stores.values():
            for version in store.versions:
                lost = [f.id for f in store.feeds_of(version) if f.ready and f.topic_uid not in present]
                if store.deleted_at_ms is None and version.status_in(FABRIC) in SERVABLE and lost:
                    self.breach("files are there", f"{version.name_in(store.name)} lacks {lost} (R9)")

    def _check_base(self, store: Store, version: Version) -> None:
        """Replicas are compared whole, base and feeds."""

    def _check_batch(self, at: tuple[str, int, int], record: BatchRecord) -> None:
        """A recorded batch is in the output once, whole, and begins where the one before ended (C7, B2)."""
        uid, number, batch = at
        if (*at, record.epoch) in self._batches_seen:
            return
        self._batches_seen.add((*at, record.epoch))
        generation = self.generations[uid, number]
        feed = self._feeds.get(generation.writes_to)
        tables = self.machines.database.tables
        if feed is None or feed.topic_uid not in self.machines.topics.ever:
            return
        before = tables.batches.get((uid, number, batch - 1))
        if before is None and batch:
            return
        written = [self._records(feed.topic_uid, partition) for partition in range(feed.partitions)]
        wrong = wrong_batch(
            self.input(), code_of(generation), _batch(record), written, None if before is None else _batch(before)
        )
        if wrong is not None:
            self.breach("each output is there once", f"generation {number}: {wrong} (C7)")

    def _check_replicas(self, part: NodePart) -> None:
        for holding in part.engine.holdings():
            replica, key = holding.replica, holding.key
            version = self.account.versions.get((key.store_uid, key.version))
            if replica is None or str(replica.directory) in self.machines.rocks.writing:
                continue
            if version is None or version.status_in(FABRIC) not in SERVABLE:
                continue
            upto = {(at.feed, at.partition): offset for at, offset in replica.position.items()}
            served = self.model(key.store_uid, key.version).served(upto)
            mine = {
                k: (e.text, e.time_ms)
                for k, e in served.items()
                if holding.partitioner.of(_encoded(k)) == key.partition
            }
            found = {
                str(text_of(k)): (text_of(live.body), live.time_ms)
                for k, live in replica.scan(None, 10_000, 1 << 30).items
            }
            if found != mine:
                wrong = {k: (found.get(k), mine.get(k)) for k in found.keys() | mine.keys()}
                shown = {k: pair for k, pair in wrong.items() if pair[0] != pair[1]}
                self.breach("replicas", f"{holding.name} on {part.name} at {upto}: (found, expected) {shown}")

    def model(self, uid: str, number: int) -> VersionModel:
        """What a version is made of, for the oracle."""
        version = self.account.versions[uid, number]
        path = self.account.inputs.get((uid, number)) if version.kind is RebuildKind.FULL_PUSH else None
        pushed = {} if path is None else self.account.pushed[path]
        feeds = [self._feeds[feed] for feed in version.feeds]
        return VersionModel(
            pushed={str(text_of(key)): str(text_of(cell.value)) for key, cell in pushed.items()},
            source=None if version.source_version is None else self.model(uid, version.source_version),
            start={(at.feed, at.partition): offset for at, offset in version.fabrics[FABRIC].start.items()},
            floor_ms=version.tombstone_floor_ms,
            expired_ms=version.ttl_floor_ms,
            feeds={f.id: [self._records(f.topic_uid, partition) for partition in range(f.partitions)] for f in feeds},
        )

    def _records(self, topic_uid: str, partition: int) -> list[Record]:
        """The records of a partition, taken apart, as far as it has come."""
        known = self._rows.setdefault((topic_uid, partition), [])
        topic = self.machines.topics.ever.get(topic_uid)
        rows = [] if topic is None else topic.partitions[partition].rows
        known.extend(record_of(rows[offset], partition, offset) for offset in range(len(known), len(rows)))
        return known

    def input(self) -> Input:
        """The topic that the job reads."""
        topic = self.machines.topics.present[EVENTS]
        return Input([[_event(row) for row in partition.rows] for partition in topic.partitions])

    def check_read(self, found: Mapping[bytes, Found | None]) -> None:
        """An answer is of one version, and each value is one that a feed of that version brought its key."""
        versions = {one.version for one in found.values() if one is not None}
        if len(versions) > 1:
            self.breach("a read is of one version", f"{versions}")
        for number in versions:
            uid = next(uid for uid, n in self.account.versions if n == number)
            model = self.model(uid, number)
            values = set(self._ever(model))
            for key, one in found.items():
                if one is None:
                    continue
                seen = Event(str(text_of(key)), one.value["text"], one.written_at)
                if seen not in values:
                    self.breach("reads see what was", f"{seen} of version {number}")

    def _ever(self, model: VersionModel) -> Iterator[Event]:
        if model.source is not None:
            yield from self._ever(model.source)
        yield from (Event(key, text, 0) for key, text in model.pushed.items())
        for partitions in model.feeds.values():
            yield from (record.event for records in partitions for record in records)

    # -- at the end ----------------------------------------------------------------------------------------------------

    def settled(self) -> str | None:
        """See `Invariants.settled`; generations that are to run have come to the ends of the input."""
        tables = self.machines.database.tables
        running = [
            r.id
            for r in tables.rebuilds.values()
            if r.status is RebuildStatus.RUNNING and not isinstance(r, JobRebuild)
        ]
        if running:
            return f"rebuilds run: {running}"
        if tables.reclaims:
            return f"reclaims wait: {sorted(tables.reclaims)[:3]}"
        for job in tables.jobs.values():
            why = self._job_unsettled(job)
            if why is not None:
                return f"{job.name}: {why}"
        for store in tables.stores.values():
            why = self._unsettled(store) if store.deleted_at_ms is None else None
            if why is not None:
                return f"{store.name}: {why}"
        return None

    def _job_unsettled(self, job: Job) -> str | None:
        store = self.machines.database.tables.stores.get(job.output.uid)
        if store is None or store.deleted_at_ms is not None:
            return None
        ends = {p: len(events) for p, events in enumerate(self.input().partitions)}
        going = [each for each in job.generations if not each.over]
        for generation in job.generations:
            if generation.status is GenerationStatus.PLANNED:
                return f"{generation.number} is planned"
            if generation.status is GenerationStatus.RETIRED and not self._is_needed(generation):
                return f"{generation.number} is retired, and not reclaimed"
            if generation.status is not GenerationStatus.RUNNING:
                continue
            last = self.batches(job.uid, generation.number)
            position = last[-1].end if last else generation.start[INPUT]
            if dict(position) != ends:
                return f"{generation.number} is at {position}, not at {ends}: {generation.error}"
        if job.deleted_at_ms is None and job.live is None and going:
            return "no generation serves"
        return None

    def _is_needed(self, generation: Generation) -> bool:
        stores = self.machines.database.tables.stores.values()
        return any(generation.writes_to in v.feeds and not v.reclaimed for store in stores for v in store.versions)

    def batches(self, uid: str, number: int) -> list[Batch]:
        """The recorded batches of a generation, in their order."""
        found = self.machines.database.tables.batches.items()
        return [_batch(record) for at, record in sorted(found) if at[:2] == (uid, number)]

    def counts(self) -> dict[str, int]:
        """How much jobs did, to see that histories do something."""
        records = [
            record
            for feed in self._feeds.values()
            if feed.kind is FeedKind.GENERATION
            for partition in range(feed.partitions)
            for record in self._records(feed.topic_uid, partition)
        ]
        batches = {(r.generation, r.batch) for r in records}
        epochs = {(r.generation, r.batch, r.epoch) for r in records}
        attempts = {(r.generation, r.batch, r.epoch, r.attempt) for r in records}
        named = self.machines.database.tables.batches.values()
        return {
            "generations": len(self.generations),
            "batches appended": len(batches),
            "batches that ran again": len(epochs) - len(batches),
            "attempts that do not count": len(attempts) - sum(len(r.outputs) for r in named),
        }

    def final(self) -> None:
        """All that must hold once the world has settled."""
        self._batches_seen.clear()
        super().final()
        read = self.input()
        for generation in self.generations.values():
            foreign = strange(read, code_of(generation), self._written(generation))
            if foreign:
                self.breach("each output is there once", f"generation {generation.number}: {foreign[:3]} (C7)")

    def expected(self, uid: str, version: Version) -> dict[str, set[str | None]] | None:
        """Key → the texts that may be served in the end, by the input alone; None where others write there too."""
        feeds = {g.writes_to: at for at, g in self.generations.items()}
        if any(feed not in feeds for feed in version.feeds) or not version.unpushed or version.ttl_floor_ms:
            return None
        made, loose = {}, list[Record]()
        names = {uid: job.name for uid, job in self.machines.database.tables.jobs.items()}
        for at in (feeds[feed] for feed in version.feeds):
            generation, batches = self.generations[at], self.batches(*at)
            made[names[at[0]], at[1]] = code_of(generation), batches
            if generation.status is not GenerationStatus.RUNNING:
                last = batches[-1].number if batches else -1
                loose += [record for record in self._written(generation) if record.batch > last]
        return newest(self.input(), made, loose)

    def _written(self, generation: Generation) -> Iterator[Record]:
        """All records of a generation's output."""
        feed = self._feeds.get(generation.writes_to)
        for partition in range(0 if feed is None else feed.partitions):
            yield from self._records("" if feed is None else feed.topic_uid, partition)

    def _check_newest(self, store: Store, version: Version) -> None:
        """The last output of each key is what is served, worked out from the input."""
        expected = self.expected(store.uid, version)
        if expected is None:
            return
        ends = {
            (at.feed, at.partition): len(self._records(feed.topic_uid, at.partition))
            for feed in store.feeds_of(version)
            for at in feed.feed_partitions()
        }
        model = self.model(store.uid, version.number)
        served = model.served(ends)
        check_taken_back(self, version, model.cells(ends).values())
        for key in expected.keys() | served.keys():
            event = served.get(key)
            if (event and event.text) not in expected.get(key, {None}):
                self.breach("the last output is served", f"{key}: {event}, expected of {expected.get(key)}")

    def _check_leftovers(self) -> None:
        """Nothing is left behind that nobody owns."""
        tables = self.machines.database.tables
        owned: set[str] = set()
        stores = [store for store in tables.stores.values() if store.deleted_at_ms is None]
        for store in stores:
            for version in store.versions:
                if version.status_in(FABRIC) in SERVABLE:
                    owned |= self._files(version)
        left = [stored.path for stored in self.machines.real_deep_store.list("stores") if stored.path not in owned]
        if left:
            self.breach("nothing is left behind", f"{left[:4]}")
        live = {feed.topic_uid for store in stores for feed in store.feeds}
        live |= {uid for flag, uid in tables.flags.items() if flag.startswith("dead_letter_topic/")}
        live |= {topic.topic_uid for topic in tables.topics.values() if topic.deleted_at_ms is None}
        live |= {there.topic.uid for s in stores for v in s.versions for there in v.fabrics.values() if there.topic}
        lost = [topic.spec.name for topic in self.machines.topics.present.values() if topic.spec.uid not in live]
        if lost:
            self.breach("nothing is left behind", f"topics {lost}")


def _batch(record: BatchRecord) -> Batch:
    attempts = {
        output.attempt: [(each.partition, each.begin, each.end) for each in output.ranges] for output in record.outputs
    }
    return Batch(record.batch, record.epoch, record.start[INPUT], record.end[INPUT], attempts)


def _event(row: tuple[int, int | None, bytes, bytes, int, bytes | None]) -> Event:
    appended_ms, written_ms, _, key, _, value = row
    return Event(str(text_of(key)), text_of(value), appended_ms if written_ms is None else written_ms)


def _encoded(key: str) -> bytes:
    body = key.encode()
    return bytes([len(body) << 1]) + body
