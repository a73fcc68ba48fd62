"""A catalog in memory, with the same compare-and-swap and the same history as a database."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice

from anew.catalog.change import (
    Change,
    DropBatches,
    DropReclaim,
    DropSegment,
    Event,
    KnownRequest,
    NodeRecord,
    NoteReplayed,
    Operation,
    Put,
    PutBatch,
    PutConfig,
    PutDeadLetters,
    PutDone,
    PutFlag,
    PutJob,
    PutPastVersions,
    PutRebuild,
    PutReclaim,
    PutRequest,
    PutSegment,
    PutSetAside,
    PutStore,
    PutTable,
    PutTopic,
    Reclaim,
    SwapFlag,
    TableSize,
    TableSnapshot,
)
from anew.catalog.conflicts import check_swapped
from anew.catalog.forget import (
    FORGETS,
    DropJob,
    DropStore,
    DropTable,
    DropTopic,
    Forget,
    ForgetHistory,
)
from anew.catalog.interface import TimedKey
from anew.core.admission import Rejection
from anew.core.errors import InvalidRequest, Refused
from anew.core.rebuild import Rebuild
from anew.core.stores.store import Store, Version
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment, StaleSegment, stale_segment
from anew.core.tables.table import Table
from anew.core.topics.topic import Topic
from anew.segments.record import SegmentList
from anew.testing.memory import catalogjobs
from anew.testing.memory.catalogjobs import MemoryJobs
from anew.testing.memory.catalogtables import Tables
from anew.testing.memory.forgetting import drop_store, drop_table, drop_topic, keys, remove, unnamed


@dataclass(slots=True)
class Database:
    """What all handles on one catalog share.

    Attributes:
        operations: Id of each operation → the revision that the catalog had with it.
        watch: Told of each commit: the tables before it, those after it, and its line of history.
    """

    tables: Tables = field(default_factory=Tables)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    history: list[Operation] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    watch: Callable[[Tables, Tables, Operation], None] = lambda _before, _after, _operation: None
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryCatalog(MemoryJobs):
    """`anew.catalog.interface.Catalog` in memory."""

    def __init__(self, database: Database) -> None:
        """A handle on the database."""
        self._database = database
        self._tables = lambda: database.tables
        self.commit_unlogged = self._commit_unlogged

    def revision(self) -> int:
        """See `Catalog.revision`."""
        return self._database.counters["revision"]

    def commit(self, change: Change) -> bool:
        """See `Catalog.commit`."""
        database = self._database
        with database.lock:
            if change.operation.id in database.operations:
                return False
            before, after = database.tables, database.tables.copy()
            forgets = any(isinstance(put, ForgetHistory) for put in change.puts)
            history = database.history.copy() if forgets else database.history
            for put in change.puts:
                if isinstance(put, FORGETS):
                    remove(after, history, put)
                else:
                    _apply(after, put)
                    _note_time(after, put, change.operation.at_ms)
            history.append(change.operation)
            database.tables, database.history = after, history
            database.counters["revision"] += 1
            database.operations[change.operation.id] = database.counters["revision"]
            database.watch(before, after, change.operation)
        return True

    def put_rebuild(self, rebuild: Rebuild, fence: int) -> None:
        """See `Catalog.put_rebuild`."""
        self._commit_unlogged(PutRebuild(rebuild, fence))

    def _commit_unlogged(self, put: Put) -> None:
        with self._database.lock:
            after = self._database.tables.copy()
            _apply(after, put)
            self._database.tables = after

    def store(self, name: str) -> Store | None:
        """See `Catalog.store`."""
        return next((store for store in self.stores() if store.name == name), None)

    def store_by_uid(self, uid: str) -> Store | None:
        """See `Catalog.store_by_uid`."""
        return self._database.tables.stores.get(uid)

    def stores(self) -> list[Store]:
        """See `Catalog.stores`."""
        return self._sorted(deleted=False)

    def stores_page(self, after: str, limit: int) -> list[Store]:
        """See `Catalog.stores_page`."""
        return [store for store in self.stores() if store.name > after][:limit]

    def deleted_stores(self) -> list[Store]:
        """See `Catalog.deleted_stores`."""
        return self._sorted(deleted=True)

    def past_versions(
        self, store_uid: str, limit: int, *, number: int | None = None, below: int | None = None
    ) -> list[Version]:
        """See `Catalog.past_versions`."""
        found = sorted(self._database.tables.past_versions.items(), reverse=True)
        wanted = (v for (uid, of), (_, v) in found if uid == store_uid and number in (None, of))
        return list(islice((v for v in wanted if below is None or v.number < below), limit))

    def next_version(self, name: str) -> int:
        """See `Catalog.next_version`."""
        tables = self._database.tables
        of_stores = (store.next_version for store in tables.stores.values() if store.name == name)
        return max(*of_stores, tables.used_numbers.get(name, 1), 1)

    def forgettable(self, forget: Forget) -> int:
        """See `Catalog.forgettable`."""
        return len(keys(self._database.tables, self._database.history, forget))

    def unnamed_rebuilds(self, before_ms: int, named_from_ms: int = 0) -> Iterator[str]:
        """See `Catalog.unnamed_rebuilds`."""
        return unnamed(self._database.tables, before_ms, named_from_ms)

    def next_number(self, sequence: str) -> int:
        """See `Catalog.next_number`."""
        if sequence == "revision":
            raise ValueError("the catalog's revision is not a sequence to draw from")
        with self._database.lock:
            self._database.counters[sequence] += 1
            return self._database.counters[sequence]

    def rebuild(self, rebuild_id: str) -> Rebuild | None:
        """See `Catalog.rebuild`."""
        return self._database.tables.rebuilds.get(rebuild_id)

    def rebuilds(
        self, *, subject_uid: str | None, running_only: bool, limit: int | None = None, after: TimedKey | None = None
    ) -> list[Rebuild]:
        """See `Catalog.rebuilds`."""
        found = [
            rebuild
            for rebuild in self._database.tables.rebuilds.values()
            if subject_uid in (None, rebuild.subject.uid) and not (running_only and rebuild.ended)
        ]
        behind = (math.inf, "") if after is None else (after.at_ms, after.id)
        found = [r for r in found if r.created_at_ms < behind[0] or (r.created_at_ms == behind[0] and r.id > behind[1])]
        return sorted(found, key=lambda rebuild: (-rebuild.created_at_ms, rebuild.id))[:limit]

    def request(self, request_id: str) -> KnownRequest | None:
        """See `Catalog.request`."""
        return self._database.tables.requests.get(request_id)

    def put_node(self, node: NodeRecord) -> None:
        """See `Catalog.put_node`."""
        with self._database.lock:
            known = self._database.nodes.get(node.id)
            self._database.nodes[node.id] = node
            if known is None or (known.fabric, known.removed) != (node.fabric, node.removed):
                self._database.counters["revision"] += 1

    def nodes(self) -> list[NodeRecord]:
        """See `Catalog.nodes`."""
        return sorted((node for node in self._database.nodes.values() if not node.removed), key=lambda node: node.id)

    def nodes_page(self, after: str, limit: int) -> list[NodeRecord]:
        """See `Catalog.nodes_page`."""
        return [node for node in self.nodes() if node.id > after][:limit]

    def reclaims_page(self, after: TimedKey | None, limit: int) -> list[Reclaim]:
        """See `Catalog.reclaims_page`."""
        return [r for r in self.reclaims(None) if after is None or (r.not_before_ms, r.id) > after][:limit]

    def reclaims(self, due_at_ms: int | None) -> list[Reclaim]:
        """See `Catalog.reclaims`."""
        found = self._database.tables.reclaims.values()
        due = [reclaim for reclaim in found if due_at_ms is None or reclaim.not_before_ms <= due_at_ms]
        return sorted(due, key=lambda reclaim: (reclaim.not_before_ms, reclaim.id))

    def flags(self) -> dict[str, str]:
        """See `Catalog.flags`."""
        return dict(self._database.tables.flags)

    def dead_letter_counts(self, *, waiting: bool = False) -> dict[str, int]:
        """See `Catalog.dead_letter_counts`."""
        tables = self._database.tables
        waits = (at not in tables.set_aside or not waiting for at in tables.dead_letters)
        return dict(Counter(uid for (uid, _), one in zip(tables.dead_letters.values(), waits, strict=True) if one))

    def waiting_dead_letters(self, store_uid: str, limit: int) -> list[Rejection]:
        """See `Catalog.waiting_dead_letters`."""
        tables = self._database.tables
        found = (
            Rejection(*at, reason)
            for at, (uid, reason) in sorted(tables.dead_letters.items())
            if uid == store_uid and at not in tables.set_aside
        )
        of_partitions = groupby(found, lambda letter: (letter.feed, letter.partition))
        return [letter for _, some in of_partitions for letter in islice(some, limit)]

    def events(self, after: int, limit: int, subject: str | None = None) -> list[Event]:
        """See `Catalog.events`."""
        revisions = self._database.operations
        wanted = (operation for operation in self._database.history if subject in (None, operation.subject))
        found = (Event(revisions[operation.id], operation) for operation in wanted)
        return list(islice((event for event in found if event.revision > after), limit))

    def history(self, subject: str | None, limit: int, *, after: str | None = None) -> list[Operation]:
        """See `Catalog.history`."""
        newest_first = iter(reversed(self._database.history))
        if after is not None:
            # Up to the one of that id and with it: all where it is forgotten.
            next((operation for operation in newest_first if operation.id == after), None)
        return [operation for operation in newest_first if subject in (None, operation.subject)][:limit]

    def table(self, name: str) -> Table | None:
        """See `Catalog.table`."""
        return next((table for table in self.tables() if table.name == name), None)

    def table_by_uid(self, uid: str) -> Table | None:
        """See `Catalog.table_by_uid`."""
        return self._database.tables.tables.get(uid)

    def tables(self) -> list[Table]:
        """See `Catalog.tables`."""
        return self._sorted_tables(deleted=False)

    def tables_page(self, after: str, limit: int) -> list[Table]:
        """See `Catalog.tables_page`."""
        return [table for table in self.tables() if table.name > after][:limit]

    def deleted_tables(self) -> list[Table]:
        """See `Catalog.deleted_tables`."""
        return self._sorted_tables(deleted=True)

    def table_config(self, config_hash: str) -> SegmentConfig | None:
        """See `Catalog.table_config`."""
        return self._database.tables.configs.get(config_hash)

    def table_config_hashes(self) -> set[str]:
        """See `Catalog.table_config_hashes`."""
        return set(self._database.tables.configs)

    def table_snapshot(self, uid: str, known: Mapping[int, int]) -> TableSnapshot | None:
        """See `Catalog.table_snapshot`."""
        tables = self._database.tables
        if uid not in tables.tables:
            return None
        slots = {slot: revision for (of, slot), revision in tables.slots.items() if of == uid}
        segments = [segment for (of, _), segment in sorted(tables.segments.items()) if of == uid]
        changed = {
            slot: SegmentList.of(segment.model_dump_json() for segment in segments if segment.slot == slot)
            for slot, revision in slots.items()
            if known.get(slot) != revision
        }
        return TableSnapshot(tables.tables[uid], slots, changed)

    def segment(self, table_uid: str, name: str) -> Segment | None:
        """See `Catalog.segment`."""
        return self._database.tables.segments.get((table_uid, name))

    def segments(self, table_uid: str, names: Collection[str] | None = None) -> list[Segment]:
        """See `Catalog.segments`."""
        found = sorted(self._database.tables.segments.items())
        return [segment for (uid, name), segment in found if uid == table_uid and (names is None or name in names)]

    def segments_page(self, table_uid: str, after: str, limit: int, *, other_than: str | None = None) -> list[Segment]:
        """See `Catalog.segments_page`."""
        found = (s for s in self.segments(table_uid) if s.name > after)
        wanted = (s for s in found if other_than is None or s.build.config_hash != other_than)
        return list(islice(wanted, limit))

    def stale_segments(self, table_uid: str, wanted: str) -> Iterator[StaleSegment]:
        """See `Catalog.stale_segments`."""
        stale = (s for s in self.segments(table_uid) if s.build.config_hash != wanted)
        return (stale_segment(segment) for segment in stale)

    def table_size(self, table_uid: str) -> TableSize:
        """See `Catalog.table_size`."""
        found = self.segments(table_uid)
        return TableSize(len(found), sum(s.build.contents.rows for s in found), sum(s.build.bytes for s in found))

    def segments_done(self, rebuild_id: str, names: Collection[str] | None = None) -> list[Done]:
        """See `Catalog.segments_done`."""
        found = (done for (rebuild, _), done in sorted(self._database.tables.done.items()) if rebuild == rebuild_id)
        return [done for done in found if names is None or done.segment in names]

    def topic(self, name: str) -> Topic | None:
        """See `Catalog.topic`."""
        return next((topic for topic in self.topics() if topic.name == name), None)

    def topic_by_uid(self, uid: str) -> Topic | None:
        """See `Catalog.topic_by_uid`."""
        return self._database.tables.topics.get(uid)

    def topics(self) -> list[Topic]:
        """See `Catalog.topics`."""
        return self._sorted_topics(deleted=False)

    def topics_page(self, after: str, limit: int) -> list[Topic]:
        """See `Catalog.topics_page`."""
        return [topic for topic in self.topics() if topic.name > after][:limit]

    def deleted_topics(self) -> list[Topic]:
        """See `Catalog.deleted_topics`."""
        return self._sorted_topics(deleted=True)

    def close(self) -> None:
        """See `Catalog.close`."""

    def _sorted_topics(self, *, deleted: bool) -> list[Topic]:
        found = self._database.tables.topics.values()
        return sorted((t for t in found if (t.deleted_at_ms is not None) is deleted), key=lambda topic: topic.name)

    def _sorted_tables(self, *, deleted: bool) -> list[Table]:
        found = self._database.tables.tables.values()
        return sorted((t for t in found if (t.deleted_at_ms is not None) is deleted), key=lambda table: table.name)

    def _sorted(self, *, deleted: bool) -> list[Store]:
        stores = self._database.tables.stores.values()
        return sorted((s for s in stores if (s.deleted_at_ms is not None) is deleted), key=lambda store: store.name)


def _note_time(tables: Tables, put: Put, at_ms: int) -> None:
    match put:
        case PutRequest(request_id=request_id):
            tables.request_times[request_id] = at_ms
        case PutDeadLetters(rejections=rejections):
            for letter in rejections:
                tables.letter_times.setdefault((letter.feed, letter.partition, letter.offset), at_ms)


def _apply(tables: Tables, put: Put) -> None:
    match put:
        case PutStore():
            _put_store(tables, put)
        case DropStore():
            drop_store(tables, put)
        case DropTable():
            drop_table(tables, put)
        case DropTopic():
            drop_topic(tables, put)
        case PutPastVersions(store_uid=uid, versions=versions, left_at_ms=at_ms):
            for version in versions:
                tables.past_versions.setdefault((uid, version.number), (at_ms, version))
        case PutRebuild(rebuild=rebuild, fence=fence):
            present = tables.rebuilds.get(rebuild.id)
            _check_fence(None if present is None else present.revision, fence, f"the rebuild {rebuild.id}")
            plan = rebuild.plan if present is None else present.plan
            tables.rebuilds[rebuild.id] = rebuild.model_copy(update={"revision": _next(fence), "plan": plan})
        case PutRequest(request_id=request_id, body_hash=body_hash, result=result):
            if request_id in tables.requests:
                raise InvalidRequest("request_id_reused", "the request id was used before", found=request_id)
            tables.requests[request_id] = KnownRequest(body_hash, result)
        case PutReclaim(reclaim=reclaim):
            tables.reclaims.setdefault(reclaim.id, reclaim)
        case DropReclaim(id=reclaim_id):
            tables.reclaims.pop(reclaim_id, None)
        case PutDeadLetters(store_uid=uid, rejections=rejections):
            for letter in rejections:
                at = (letter.feed, letter.partition, letter.offset)
                tables.dead_letters.setdefault(at, (uid, letter.reason))
        case PutSetAside(rejections=rejections):
            for letter in rejections:
                tables.set_aside[letter.feed, letter.partition, letter.offset] = True
        case PutFlag(name=name, value=value):
            tables.flags.pop(name, None)
            if value is not None:
                tables.flags[name] = value
        case SwapFlag(name=name, expected=expected, value=value):
            check_swapped(int(tables.flags.get(name) == expected), f"the flag {name}", expected)
            tables.flags.pop(name, None)
            if value is not None:
                tables.flags[name] = value
        case PutJob() | PutBatch() | DropBatches() | NoteReplayed() | DropJob():
            catalogjobs.apply(tables, put)
        case _:
            _apply_to_tables(tables, put)


def _apply_to_tables(tables: Tables, put: Put) -> None:
    match put:
        case PutTable(table=table, fence=fence):
            present = tables.tables.get(table.uid)
            live = any(t.name == table.name and t.deleted_at_ms is None for t in tables.tables.values())
            if fence is None and live:
                raise Refused("table_exists", f"there is a table {table.name} already", found=table.name)
            _check_fence(None if present is None else present.revision, fence, f"the table {table.name}")
            tables.tables[table.uid] = table.model_copy(update={"revision": _next(fence)})
        case PutConfig(config=config):
            tables.configs.setdefault(config.hash, config)
        case PutSegment(segment=segment, fence=fence):
            at = (segment.table_uid, segment.name)
            held = tables.segments.get(at)
            _check_fence(None if held is None else held.revision, fence, f"the segment {segment.name}")
            tables.segments[at] = segment.model_copy(update={"revision": _next(fence)})
            _mark(tables, segment)
        case DropSegment(table_uid=uid, name=name, fence=fence):
            held = tables.segments.get((uid, name))
            _check_fence(None if held is None else held.revision, fence, f"the segment {name}")
            _mark(tables, tables.segments.pop((uid, name)))
        case PutTopic():
            _put_topic(tables, put)
        case PutDone(rebuild=rebuild_id, done=done):
            tables.done[rebuild_id, done.segment] = done


def _mark(tables: Tables, segment: Segment) -> None:
    at = (segment.table_uid, segment.slot)
    tables.slots[at] = tables.slots.get(at, 0) + 1


def _put_store(tables: Tables, put: PutStore) -> None:
    store = put.store
    present = tables.stores.get(store.uid)
    if put.fence is None and any(s.name == store.name and s.deleted_at_ms is None for s in tables.stores.values()):
        raise Refused("store_exists", f"there is a store {store.name} already", found=store.name)
    _check_fence(None if present is None else present.revision, put.fence, f"the store {store.name}")
    tables.stores[store.uid] = store.model_copy(update={"revision": _next(put.fence)})


def _put_topic(tables: Tables, put: PutTopic) -> None:
    topic = put.topic
    present = tables.topics.get(topic.uid)
    if put.fence is None and any(t.name == topic.name and t.deleted_at_ms is None for t in tables.topics.values()):
        raise Refused("topic_exists", f"there is a topic {topic.name} already", found=topic.name)
    _check_fence(None if present is None else present.revision, put.fence, f"the topic {topic.name}")
    tables.topics[topic.uid] = topic.model_copy(update={"revision": _next(put.fence)})


def _check_fence(found: int | None, fence: int | None, what: str) -> None:
    if found != fence:
        raise Refused(
            "revision_conflict", f"{what} was changed by somebody else meanwhile", found=found, expected=fence
        )


def _next(fence: int | None) -> int:
    return 1 if fence is None else fence + 1
