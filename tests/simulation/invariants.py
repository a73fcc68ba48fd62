"""What must hold at every moment, and at the end of every history: most are rules of docs/rules.md.

Each breach is kept with the name of its invariant; the names are what planted bugs are found by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from anew.api.stores.replicas import ReplicaState
from anew.catalog.change import Operation
from anew.client.store import Found
from anew.core.feed import Feed, FeedKind, FeedPartition
from anew.core.rebuild import RebuildStatus
from anew.core.stores import lifecycle
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import IN_THE_MAKING, SERVABLE, Store, Version, VersionStatus, VersionTopic
from anew.log.interface import Appended, TopicPartition
from anew.log.open import no_clock
from anew.segments.base import BaseReader
from anew.segments.dictionary import codec_of
from anew.segments.layout import version_path
from anew.segments.manifest import parse_manifest
from anew.testing.builders import FABRIC
from anew.testing.memory.catalogtables import Tables
from anew.testing.memory.log import MemoryLog
from tests.simulation.comparing import by_sub_partition, difference, same_text, text_of
from tests.simulation.oracle import Account, Oracle
from tests.simulation.parts import SKEW_LIMIT_MS, Machines, NodePart

_MOST_BREACHES = 3
_FORGOTTEN_MS = 6_000
_GONE = frozenset({VersionStatus.RETIRED, VersionStatus.RECLAIMED, VersionStatus.FAILED, VersionStatus.KILLED})


@dataclass
class Invariants:
    """Watches a world.

    Attributes:
        breaches: (invariant, what was seen), in the order in which they were seen.
    """

    machines: Machines
    lost_tail: bool = False
    account: Account = field(default_factory=Account)
    breaches: list[tuple[str, str]] = field(default_factory=list)
    _checked_bases: set[tuple[str, int]] = field(default_factory=set)
    _rebuilds: list[StoreRebuild] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.account, self.machines.topics, SKEW_LIMIT_MS)
        self.machines.database.watch = self._on_commit
        self.machines.log_watch.truncates = self._on_truncate
        self.machines.log_watch.acknowledged = self._on_acknowledged
        self.machines.on_delete = self._on_delete

    def breach(self, invariant: str, seen: str) -> None:
        """Keep a breach; of each invariant a few are enough."""
        if sum(name == invariant for name, _ in self.breaches) < _MOST_BREACHES:
            self.breaches.append((invariant, seen))

    # -- as it happens -------------------------------------------------------------------------------------------------

    def _on_commit(self, before: Tables, after: Tables, operation: Operation) -> None:
        self._rebuilds = [rebuild for rebuild in after.rebuilds.values() if isinstance(rebuild, StoreRebuild)]
        for uid, store in after.stores.items():
            old = before.stores.get(uid)
            if old is store:
                continue
            self.account.note(store)
            for rebuild in self._rebuilds:
                source = rebuild.plan.source.input
                if source is not None and rebuild.store_uid == uid:
                    self.account.inputs[uid, rebuild.version] = source.paths[0] if source.paths else None
            self._check_store(store)
            if old is not None:
                self._check_change(old, store, operation)
        self._check_names(after)

    def _check_store(self, store: Store) -> None:
        current = store.current.get(FABRIC, 0)
        holders = [v.number for v in store.versions if v.statuses.get(FABRIC) is VersionStatus.CURRENT]
        if store.deleted_at_ms is None and holders != ([current] if current else []):
            self.breach("one current version", f"{store.name}: current {current}, status current: {holders}")
        for version in store.versions:
            if version.statuses.get(FABRIC) in _GONE or not version.config.hybrid or version.stop is not None:
                continue
            lacking = {feed.id for feed in store.feeds} - set(version.feeds)
            if lacking:
                self.breach("every version has every feed", f"{version.name_in(store.name)} lacks {lacking} (R9)")
            for feed in store.feeds_of(version):
                for at, mark in zip(feed.feed_partitions(), feed.low_water, strict=True):
                    if mark > version.fabrics[FABRIC].start.get(at, mark):
                        self.breach("low water", f"{at} at {mark}, above the start of {version.number} (R2)")

    def _check_change(self, old: Store, store: Store, operation: Operation) -> None:
        if store.revision != old.revision + 1:
            self.breach("revisions", f"{store.name} went from {old.revision} to {store.revision}")
        known = {version.number for version in old.versions}
        for version in (version for version in store.versions if version.number not in known):
            self._check_begun(store, version)
            if version.number < old.next_version:
                self.breach("version numbers", f"{version.number} came again, after {sorted(known)} (R16)")
        past = self.machines.database.tables.past_versions
        for gone in (version for version in old.versions if store.version(version.number) is None):
            if not (gone.reclaimed and store.has_left(gone.number) and (store.uid, gone.number) in past):
                self.breach("history is kept", f"version {gone.number} is not in the catalog any more")
        before, now = old.current.get(FABRIC, 0), store.current.get(FABRIC, 0)
        if before and before != now:
            self._check_given_up(old, before, now)
        if before != now and operation.actor == "controller":
            self._check_swap(store, lifecycle.existing(store, now), before)
        for version in old.versions:
            after = store.version(version.number)
            if after is not None:
                self._check_reassigned(version, after)
                if version.manifest is None and after.manifest is not None:
                    self._check_sealed(store, after)
            if after is not None and version.statuses.get(FABRIC) in SERVABLE:
                frozen = ("ttl_floor_ms", "tombstone_floor_ms", "config")
                moved = [name for name in frozen if getattr(version, name) != getattr(after, name)]
                was, there = version.fabrics[FABRIC], after.fabrics[FABRIC]
                moved += [name for name in ("start", "manifest") if getattr(was, name) != getattr(there, name)]
                if moved and after.statuses.get(FABRIC) in SERVABLE:
                    self.breach("frozen", f"{moved} of version {version.number} changed")

    def _check_given_up(self, old: Store, before: int, now: int) -> None:
        """What comes into service applies all that what goes out of it applied, and no less far."""
        past, present = lifecycle.existing(old, before), lifecycle.existing(old, now)
        kept_closed = present.closing and present.statuses.get(FABRIC) is VersionStatus.READY
        ends_early = present.stop is not None and past.stop is None and not kept_closed
        given_up = set(past.feeds) if ends_early else set(past.feeds) - set(present.feeds)
        if given_up:
            self.breach("a swap gives nothing up", f"{before} → {now} of {old.name}: {given_up} (R9)")

    def _check_swap(self, store: Store, version: Version, before: int) -> None:
        planned = version.fabrics[FABRIC].swap_from
        if planned != before:
            self.breach("swap fence", f"{before} → {version.number}, planned from {planned} (R14)")
        elif version.feeds and not version.config.hybrid and version.stop is None:
            self.breach("closed before the swap", f"{version.name_in(store.name)} has no stop (R10)")
        else:
            self._check_ready(store, version)

    def _check_sealed(self, store: Store, version: Version) -> None:
        """The driver that seals is the newest one (rule R22)."""
        rebuild = next(r for r in self._rebuilds if r.id == version.rebuild)
        directory = version_path(store.uid, version.number, rebuild.id, rebuild.epoch)
        if version.manifest is None or not version.manifest.path.startswith(f"{directory}/"):
            self.breach("the newest driver seals", f"{version.name_in(store.name)}: {version.manifest} (R22)")

    def _check_begun(self, store: Store, version: Version) -> None:
        """A new version's floors and start (rules R11, R12, R13)."""
        source = None if version.source_version is None else store.version(version.source_version)
        if source is not None:
            for name in ("ttl_floor_ms", "tombstone_floor_ms"):
                if getattr(version, name) < getattr(source, name):
                    self.breach("floors are inherited", f"{name} of {version.name_in(store.name)} (R11, R12)")
            before = source.fabrics[FABRIC].start
            if not version.fabrics[FABRIC].start.reaches(
                {at: o for at, o in before.items() if at.feed in version.feeds}
            ):
                self.breach("starts do not go back", f"{version.name_in(store.name)}")
            return
        plan = next(r.plan for r in self._rebuilds if r.id == version.rebuild)
        if plan.source.input is None or not any(store.current.values()):
            return
        for feed in store.feeds_of(version):
            for at in feed.feed_partitions():
                rows = self.oracle.records(feed, at)
                begin = feed.low_water[at.partition]
                since = [i for i, row in enumerate(rows) if row[0] >= plan.source.input.as_of_ms and i >= begin]
                if since and version.fabrics[FABRIC].start.get(at, 0) > since[0]:
                    self.breach(
                        "a push keeps what came after its input", f"{version.name_in(store.name)} at {at} (R13)"
                    )

    def _check_ready(self, store: Store, version: Version) -> None:
        """Every replica that is alive has what its version must have before the swap (rule R17)."""
        target = version.fabrics[FABRIC].ready_target
        if target is None:
            self.breach("ready before the swap", f"{store.name}_v{version.number} has no target (R17)")
            return
        for part in self._running_nodes():
            for holding in part.engine.holdings():
                if (holding.key.store_uid, holding.key.version) != (store.uid, version.number):
                    continue
                replica, assigned = holding.replica, version.fabrics[FABRIC].assignment.get(holding.key.partition, ())
                if replica is None or part.name not in assigned:
                    # It may have been lost since it was reported; another one serves then.
                    continue
                behind = [at for _, at in holding.feed_partitions() if replica.position.get(at, -1) < target.get(at, 0)]
                young = self.machines.world.now_ms - part.process.born_ms < 10_000
                if behind and not young:
                    self.breach("ready before the swap", f"{holding.name} on {part.name} lacks {behind} (R17)")

    def _check_reassigned(self, before: Version, after: Version) -> None:
        """No node that has a replica is let go before a successor has one (rule R25)."""
        nodes = {part.name: part for part in self._running_nodes()}
        if after.statuses.get(FABRIC) is not VersionStatus.CURRENT:
            return
        for partition, holders in before.fabrics[FABRIC].assignment.items():
            stay = after.fabrics[FABRIC].assignment.get(partition, ())
            ready = {n for n in holders if n in nodes and self._serves(nodes[n], after, partition)}
            if ready and not any(n in nodes and self._serves(nodes[n], after, partition) for n in stay):
                # A node that was silent for long counts as lost, though it may be there; and a successor that was
                # ready may have died since it said so.
                heard = {n for n in ready if self._heard_of(n)}
                if heard and all(n in nodes and self._is_old(nodes[n]) for n in stay):
                    self.breach("successors come first", f"v{after.number}/{partition}: {holders} → {stay} (R25)")

    def _is_old(self, part: NodePart) -> bool:
        return self.machines.world.now_ms - part.process.born_ms > _FORGOTTEN_MS

    def _heard_of(self, node: str) -> bool:
        record = self.machines.database.nodes.get(node)
        return record is not None and self.machines.world.now_ms - record.last_seen_ms < _FORGOTTEN_MS

    def _serves(self, part: NodePart, version: Version, partition: int) -> bool:
        found = [h for h in part.engine.holdings() if (h.key.version, h.key.partition) == (version.number, partition)]
        return bool(found) and all(holding.replica is not None for holding in found)

    def _check_names(self, tables: Tables) -> None:
        numbers: dict[tuple[str, int], str] = {}
        for uid, store in tables.stores.items():
            for version in store.versions:
                owner = numbers.setdefault((store.name, version.number), uid)
                if owner != uid:
                    self.breach("version numbers", f"{store.name}_v{version.number} is of two stores (R16)")

    def _on_truncate(self, at: TopicPartition, offset: int) -> None:
        for store in self.machines.database.tables.stores.values():
            if store.deleted_at_ms is not None:
                continue
            for feed in store.feeds:
                if feed.topic_uid != at.uid:
                    continue
                for version in store.versions:
                    start = version.fabrics[FABRIC].start.get(FeedPartition(feed.id, at.partition))
                    needed = version.statuses.get(FABRIC) not in _GONE and feed.id in version.feeds
                    if needed and start is not None and start < offset:
                        self.breach("truncation", f"{at} below {offset}, needed from {start} by {version.number} (R2)")

    def _on_acknowledged(self, at: TopicPartition, appended: Appended, records: pa.RecordBatch) -> None:
        for index, row in enumerate(records.select(["key", "value"]).to_pylist()):
            place = (at.uid, at.partition, appended.first_offset + index)
            self.account.acknowledged[place] = (row["key"], row["value"])

    def _on_delete(self, path: str) -> None:
        for store in self.machines.database.tables.stores.values():
            for version in store.versions:
                kept = version.statuses.get(FABRIC) in SERVABLE | {VersionStatus.BUILDING}
                if store.deleted_at_ms is None and kept and path in self._files(version):
                    self.breach("nothing live is deleted", f"{path} of {version.name_in(store.name)} (R15)")

    def _files(self, version: Version) -> set[str]:
        if version.manifest is None:
            return set()
        real = self.machines.real_deep_store
        if real.stat(version.manifest.path) is None:
            return {version.manifest.path}
        manifest = parse_manifest(real.get(version.manifest.path), version.manifest)
        return set(manifest.owned) | {version.manifest.path}

    # -- now and then --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """All that must hold at any moment."""
        for store in self.machines.database.tables.stores.values():
            if store.deleted_at_ms is None:
                self._check_files(store)
        for part in self._running_nodes():
            self._check_replicas(part)
        self._check_acknowledged()

    def _check_files(self, store: Store) -> None:
        for version in store.versions:
            if version.statuses.get(FABRIC) not in SERVABLE or version.manifest is None:
                continue
            missing = [path for path in self._files(version) if self.machines.real_deep_store.stat(path) is None]
            present = {topic.spec.uid for topic in self.machines.topics.present.values()}
            missing += [topic.name for topic in _topics_of(version) if topic.uid not in present]
            if missing:
                self.breach("files are there", f"{version.name_in(store.name)} lacks {missing} (R15)")
            elif (store.uid, version.number) not in self._checked_bases:
                self._checked_bases.add((store.uid, version.number))
                self._check_base(store, version)

    def _check_base(self, store: Store, version: Version) -> None:
        """The sealed base holds just what it must, time by time (2.2, R6, R11, R12, R19, R23)."""
        assert version.manifest is not None
        real = self.machines.real_deep_store
        manifest = parse_manifest(real.get(version.manifest.path), version.manifest)
        found: dict[bytes, tuple[int, bytes | None]] = {}
        codec = codec_of(real, manifest)
        base = BaseReader(real, lambda: MemoryLog(self.machines.topics, clock=no_clock))
        for rows in chain.from_iterable(base.rows(part) for part in manifest.parts):
            for row in rows.select(["key", "time", "value"]).to_pylist():
                if row["key"] in found:
                    self.breach("base", f"{row['key']!r} twice in {version.name_in(store.name)}")
                value = row["value"]
                found[row["key"]] = (row["time"], None if value is None else text_of(codec.decompress(value)))
        cells = self.oracle.base(store.uid, version.number)
        expected = {k: (c.stamp.time_ms, None if c.value is None else text_of(c.value)) for k, c in cells.items()}
        if found != expected:
            self.breach("base", f"{version.name_in(store.name)}: {difference(found, expected)}")

    def _running_nodes(self) -> list[NodePart]:
        return [part for part in self.machines.nodes.values() if not part.process.dead]

    def _check_replicas(self, part: NodePart) -> None:
        for holding in part.engine.holdings():
            replica, key = holding.replica, holding.key
            version = self.account.versions.get((key.store_uid, key.version))
            if replica is None or str(replica.directory) in self.machines.rocks.writing:
                continue
            if version is None or version.statuses.get(FABRIC) not in SERVABLE:
                continue
            if version.manifest is None or not version.manifest.checksum.startswith(key.manifest):
                self.breach("replicas are of the manifest", f"{holding.name} on {part.name}")
                continue
            position = dict(replica.position.items())
            early = [at for at, offset in position.items() if offset < version.fabrics[FABRIC].start.get(at, 0)]
            if early:
                self.breach("nothing below the start", f"{holding.name} on {part.name} at {position} (R1)")
            if self._beyond(key.store_uid, position):
                continue
            expected = self.oracle.served(key.store_uid, key.version, position)
            place = holding.partitioner
            mine = {k: v for k, v in expected.items() if place.of(k) == key.partition}
            if version.config.amplification_factor > 1:
                subs = by_sub_partition(list(mine), version.config.amplification_factor)
                mine = {k: v for k, v in mine.items() if subs[k] == key.sub_partition}
            found = {k: text_of(live.body) for k, live in replica.scan(None, 10_000, 1 << 30).items}
            mine = {k: text_of(body) for k, body in mine.items()}
            if found != mine:
                self.breach("replicas", f"{holding.name} on {part.name} at {position}: {difference(found, mine)}")

    def _beyond(self, uid: str, position: Mapping[FeedPartition, int]) -> bool:
        """Whether a replica has records that its log lost; it has yet to find that out (rule R3)."""
        for feed in self.account.stores[uid].feeds:
            for at in feed.feed_partitions():
                if position.get(at, 0) > len(self.oracle.records(feed, at)):
                    return True
        return False

    def _check_acknowledged(self) -> None:
        for (uid, partition, offset), (key, value) in self.account.acknowledged.items():
            rows = self.machines.topics.ever[uid].partitions[partition].rows
            if offset >= len(rows) or (rows[offset][3], rows[offset][5]) != (key, value):
                self.breach("acknowledged writes are in the log", f"{uid}/{partition}@{offset}")

    def check_read(self, found: Mapping[bytes, Found | None]) -> None:
        """An answer is of one version, and each value is one that its key had (7.1).

        A reader may hold on for some seconds to a store that was deleted.
        """
        versions = {one.version for one in found.values() if one is not None}
        if len(versions) > 1:
            self.breach("a read is of one version", f"{versions}")
        if self.lost_tail:
            return
        for key, one in found.items():
            values = {body for uid in self.account.stores for body in self.oracle.history(uid, key)}
            if not any(same_text(one, body) for body in values):
                self.breach("reads see what was", f"{key!r}: {one}")

    # -- at the end ----------------------------------------------------------------------------------------------------

    def settled(self) -> str | None:
        """Why the world is still on its way, once nothing fails any more; None when it has arrived."""
        tables = self.machines.database.tables
        running = [r.id for r in tables.rebuilds.values() if r.status is RebuildStatus.RUNNING]
        if running:
            return f"rebuilds run: {running}"
        if tables.reclaims:
            return f"reclaims wait: {sorted(tables.reclaims)[:3]}"
        for store in tables.stores.values():
            if store.deleted_at_ms is None:
                why = self._unsettled(store)
                if why is not None:
                    return f"{store.name}: {why}"
        return None

    def _unsettled(self, store: Store) -> str | None:
        if any(not feed.ready or feed.moving or feed.open != _is_open(store, feed) for feed in store.feeds):
            return "topics are not as they should be"
        nodes = {part.name: part for part in self._running_nodes()}
        for version in store.versions:
            status = version.statuses.get(FABRIC)
            if status in IN_THE_MAKING:
                return f"version {version.number} is {status}"
            if status not in SERVABLE:
                continue
            for partition, holders in version.fabrics[FABRIC].assignment.items():
                for holder in holders:
                    why = self._behind(nodes.get(holder), store, version, partition)
                    if why is not None:
                        return f"v{version.number}/{partition} on {holder}: {why}"
        for part in nodes.values():
            for holding in part.engine.holdings():
                if holding.leaving_at is not None:
                    return f"{holding.name} leaves {part.name}"
        return None

    def _behind(self, part: NodePart | None, store: Store, version: Version, partition: int) -> str | None:
        if part is None:
            return "the node is gone"
        wanted = version.config.amplification_factor
        place = (store.uid, version.number, partition)
        found = [h for h in part.engine.holdings() if (h.key.store_uid, h.key.version, h.key.partition) == place]
        if len(found) != wanted:
            return f"{len(found)} of {wanted} there"
        for holding in found:
            if holding.state is not ReplicaState.APPLYING or holding.replica is None:
                return f"{holding.state}: {holding.error}"
            for feed, at in holding.feed_partitions():
                end = len(self.oracle.records(feed, at))
                stop = holding.stop_of(at)
                wanted_offset = end if stop is None else min(stop, end)
                if (holding.replica.offset(at) or 0) != wanted_offset:
                    return f"{at} is at {holding.replica.offset(at)}, not at {wanted_offset}"
        return None

    def final(self) -> None:
        """All that must hold once the world has settled."""
        self.look()
        for store in self.machines.database.tables.stores.values():
            if store.deleted_at_ms is not None:
                continue
            current = store.version(store.current.get(FABRIC, 0))
            if current is not None:
                self._check_newest(store, current)
        self._check_leftovers()

    def _check_newest(self, store: Store, version: Version) -> None:
        """The last write of each key is what is served, whatever was rebuilt in between (7.2)."""
        if version.stop is not None or version.ttl_floor_ms or not self.machines.monotone:
            return
        ends = {at: len(self.oracle.records(feed, at)) for feed in store.feeds for at in feed.feed_partitions()}
        served = self.oracle.served(store.uid, version.number, ends)
        for key, value in self.oracle.newest(store.uid, version.number).items():
            seen = served.get(key)
            if (seen and text_of(seen)) != (value and text_of(value)) and not self._late(store, version, key):
                self.breach("the last write is served", f"{key!r}: {served.get(key)!r}, written {value!r}")

    def _late(self, store: Store, version: Version, key: bytes) -> bool:
        """A push with times may hold a later time than the log's."""
        return any(cells[key].stamp.time_ms for cells in self.account.pushed.values() if key in cells)

    def _check_leftovers(self) -> None:
        """Nothing is left behind that nobody owns."""
        tables = self.machines.database.tables
        owned: set[str] = set()
        for store in tables.stores.values():
            for version in store.versions:
                if store.deleted_at_ms is None and version.statuses.get(FABRIC) in SERVABLE:
                    owned |= self._files(version)
        left = [stored.path for stored in self.machines.real_deep_store.list("stores") if stored.path not in owned]
        if left:
            self.breach("nothing is left behind", f"{left[:4]}")
        stores = [store for store in tables.stores.values() if store.deleted_at_ms is None]
        live = {feed.topic_uid for store in stores for feed in store.feeds}
        made = {f"dead_letter_topic/{store.uid}/{FABRIC}" for store in stores}
        live |= {uid for flag, uid in tables.flags.items() if flag in made}
        kept = [v for store in stores for v in store.versions if v.statuses.get(FABRIC) in SERVABLE]
        live |= {topic.uid for version in kept for topic in _topics_of(version)}
        lost = [topic.spec.name for topic in self.machines.topics.present.values() if topic.spec.uid not in live]
        if lost:
            self.breach("nothing is left behind", f"topics {lost}")


def _is_open(store: Store, feed: Feed) -> bool:
    """Whether a feed's topic is to take records: that of a job's generation always does."""
    return feed.kind is FeedKind.GENERATION or store.writable(feed)


def _topics_of(version: Version) -> list[VersionTopic]:
    return [there.topic for there in version.fabrics.values() if there.topic is not None]
