"""The catalog on an SQL database: SQLite embedded, PostgreSQL with the same code."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import sqlalchemy as sa

from anew.catalog import deadletterrows, forgetrows, jobrows, pagerows, rebuildrows, segmentrows, storerows, topicrows
from anew.catalog.change import (
    Change,
    CheckEmpty,
    DropReclaim,
    Event,
    JobPut,
    KnownRequest,
    NodeRecord,
    Operation,
    PutDeadLetters,
    PutFlag,
    PutPastVersions,
    PutRebuild,
    PutReclaim,
    PutRequest,
    PutRestored,
    PutRestoredTopic,
    PutSetAside,
    PutStore,
    PutTopic,
    RaiseCounter,
    Reclaim,
    SwapFlag,
    TableSize,
    TableSnapshot,
)
from anew.catalog.conflicts import check_swapped
from anew.catalog.engine import Database
from anew.catalog.forget import FORGETS, DropStore, DropTable, DropTopic, Forget
from anew.catalog.interface import TimedKey
from anew.catalog.jobrows import DatabaseJobs
from anew.catalog.tables import (
    COUNTERS,
    DEAD_LETTERS,
    FLAGS,
    HISTORY,
    JOBS,
    NODES,
    PAST_VERSIONS,
    REBUILDS,
    RECLAIMS,
    REQUESTS,
    STORES,
    TABLES,
    TOPICS,
)
from anew.catalog.topicrows import DatabaseTopics
from anew.core.admission import Rejection
from anew.core.errors import AnewError, InvalidRequest, OutcomeUnknown, Refused, Unreachable
from anew.core.rebuild import Rebuild
from anew.core.stores.store import Store, Version
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment, StaleSegment
from anew.core.tables.table import Table

_REVISION = "revision"
_LOOK_SECONDS = 0.2
_OPERATION = (
    HISTORY.c.operation_id,
    HISTORY.c.at_ms,
    HISTORY.c.actor,
    HISTORY.c.what,
    HISTORY.c.subject,
    HISTORY.c.detail,
)


class DatabaseCatalog(DatabaseTopics, DatabaseJobs):
    """`anew.catalog.interface.Catalog` on SQLAlchemy."""

    def __init__(self, url: str, timeout_seconds: float = 10.0) -> None:
        """Open the database and bring its schema up to date.

        Raises:
            InvalidRequest: ``bad_catalog``.
            Refused: ``catalog_newer``.
            Unreachable: ``catalog_unreachable``.
        """
        super().__init__(Database(url, timeout_seconds))
        self._timeout_seconds = timeout_seconds
        self._live: Mapping[str, Store] = {}

    def revision(self) -> int:
        """See `Catalog.revision`."""
        return self._database.read(lambda connection: _counter(connection, _REVISION))

    def commit(self, change: Change) -> bool:
        """See `Catalog.commit`."""
        try:
            return self._database.write(partial(_commit, change))
        except OutcomeUnknown as error:
            return self._looked_up(change.operation.id, error)

    def _looked_up(self, operation_id: str, unknown: OutcomeUnknown) -> bool:
        """What became of a commit whose answer was lost.

        The look-up takes its turn among the writers. So the transaction in question has ended, one way or the other.
        """
        deadline, pause = time.monotonic() + self._timeout_seconds, threading.Event()
        while True:
            try:
                done = self._database.write(lambda connection: _known(connection, operation_id))
            except AnewError as error:
                if time.monotonic() < deadline:
                    pause.wait(_LOOK_SECONDS)
                    continue
                raise OutcomeUnknown(
                    "commit_unknown",
                    unknown.message,
                    found=f"operation {operation_id}: {unknown.found}; afterwards: {error.found}",
                    expected="an answer to the commit, or to the question what became of it",
                    hint=f"once the catalog answers, `anew history --json` has {operation_id} if it was committed",
                ) from error
            if done:
                return True
            raise Unreachable(
                "catalog_unreachable",
                "the connection to the catalog was lost in the commit; nothing was changed",
                found=f"operation {operation_id}: {unknown.found}",
                expected="an answer to the commit",
                hint="try again",
            ) from unknown

    def put_rebuild(self, rebuild: Rebuild, fence: int) -> None:
        """See `Catalog.put_rebuild`."""
        self._database.write(lambda connection: rebuildrows.put_rebuild(connection, PutRebuild(rebuild, fence)))

    def store(self, name: str) -> Store | None:
        """See `Catalog.store`."""
        return next(iter(self._stores(STORES.c.live_name == name)), None)

    def store_by_uid(self, uid: str) -> Store | None:
        """See `Catalog.store_by_uid`."""
        return next(iter(self._stores(STORES.c.uid == uid)), None)

    def stores(self) -> list[Store]:
        """See `Catalog.stores`; only those are read whose revision is another one than when they were read last."""
        known = self._live
        live = self._database.read(lambda connection: storerows.find_live(connection, known))
        self._live = {store.uid: store for store in live}
        return live

    def stores_page(self, after: str, limit: int) -> list[Store]:
        """See `Catalog.stores_page`."""
        return self._database.read(lambda connection: pagerows.stores(connection, after, limit))

    def deleted_stores(self) -> list[Store]:
        """See `Catalog.deleted_stores`."""
        return self._stores(STORES.c.live_name.is_(None))

    def past_versions(
        self, store_uid: str, limit: int, *, number: int | None = None, below: int | None = None
    ) -> list[Version]:
        """See `Catalog.past_versions`."""
        row = PAST_VERSIONS.c
        conditions = [row.store_uid == store_uid]
        conditions += [] if number is None else [row.number == number]
        conditions += [] if below is None else [row.number < below]
        return self._database.read(lambda connection: storerows.find_past(connection, *conditions, limit=limit))

    def next_version(self, name: str) -> int:
        """See `Catalog.next_version`."""
        return self._database.read(lambda connection: storerows.next_version(connection, name))

    def forgettable(self, forget: Forget) -> int:
        """See `Catalog.forgettable`."""
        return self._database.read(lambda connection: forgetrows.count(connection, forget))

    def unnamed_rebuilds(self, before_ms: int, named_from_ms: int = 0) -> Iterator[str]:
        """See `Catalog.unnamed_rebuilds`."""
        stores = (*self.stores(), *self.deleted_stores())
        made = {version.rebuild for store in stores for version in store.versions}
        found = forgetrows.unnamed_pages(self._database.read, before_ms, named_from_ms)
        return (rebuild_id for rebuild_id in found if rebuild_id not in made)

    def next_number(self, sequence: str) -> int:
        """See `Catalog.next_number`."""
        if sequence == _REVISION:
            raise ValueError("the catalog's revision is not a sequence to draw from")
        return self._database.write(lambda connection: _bump(connection, sequence))

    def rebuild(self, rebuild_id: str) -> Rebuild | None:
        """See `Catalog.rebuild`."""
        return next(iter(self._rebuilds(REBUILDS.c.id == rebuild_id)), None)

    def rebuilds(
        self, *, subject_uid: str | None, running_only: bool, limit: int | None = None, after: TimedKey | None = None
    ) -> list[Rebuild]:
        """See `Catalog.rebuilds`."""
        conditions = [] if subject_uid is None else [REBUILDS.c.subject_uid == subject_uid]
        running = [REBUILDS.c.running] if running_only else []
        return self._rebuilds(*conditions, *running, *pagerows.rebuilds_behind(after), limit=limit)

    def request(self, request_id: str) -> KnownRequest | None:
        """See `Catalog.request`."""
        return self._database.read(lambda connection: _request(connection, request_id))

    def put_node(self, node: NodeRecord) -> None:
        """See `Catalog.put_node`."""
        self._database.write(partial(_put_node, node))

    def nodes(self) -> list[NodeRecord]:
        """See `Catalog.nodes`."""
        columns = (NODES.c.id, NODES.c.fabric, NODES.c.last_seen_ms, NODES.c.report, NODES.c.removed)
        rows = self._rows(sa.select(*columns).where(~NODES.c.removed))
        return sorted((NodeRecord(*row) for row in rows), key=lambda node: node.id)

    def nodes_page(self, after: str, limit: int) -> list[NodeRecord]:
        """See `Catalog.nodes_page`."""
        return self._database.read(lambda connection: pagerows.nodes(connection, after, limit))

    def reclaims_page(self, after: TimedKey | None, limit: int) -> list[Reclaim]:
        """See `Catalog.reclaims_page`."""
        return self._database.read(lambda connection: pagerows.reclaims(connection, after, limit))

    def reclaims(self, due_at_ms: int | None) -> list[Reclaim]:
        """See `Catalog.reclaims`."""
        query = sa.select(RECLAIMS)
        if due_at_ms is not None:
            query = query.where(RECLAIMS.c.not_before_ms <= due_at_ms)
        return sorted((Reclaim(*row) for row in self._rows(query)), key=lambda r: (r.not_before_ms, r.id))

    def flags(self) -> dict[str, str]:
        """See `Catalog.flags`."""
        return {str(name): str(value) for name, value in self._rows(sa.select(FLAGS))}

    def dead_letter_counts(self, *, waiting: bool = False) -> dict[str, int]:
        """See `Catalog.dead_letter_counts`."""
        query = sa.select(DEAD_LETTERS.c.store_uid, sa.func.count()).group_by(DEAD_LETTERS.c.store_uid)
        if waiting:
            query = query.where(~DEAD_LETTERS.c.set_aside)
        return {str(uid): int(count) for uid, count in self._rows(query)}

    def waiting_dead_letters(self, store_uid: str, limit: int) -> list[Rejection]:
        """See `Catalog.waiting_dead_letters`."""
        row = DEAD_LETTERS.c
        place = sa.func.row_number().over(partition_by=(row.feed, row.partition), order_by=row.offset).label("place")
        waiting = sa.select(row.feed, row.partition, row.offset, row.reason, place)
        found = waiting.where(row.store_uid == store_uid, ~row.set_aside).subquery().c
        query = sa.select(found.feed, found.partition, found.offset, found.reason).where(found.place <= limit)
        query = query.order_by(found.feed, found.partition, found.offset)
        return [Rejection(*one) for one in self._rows(query)]

    def events(self, after: int, limit: int, subject: str | None = None) -> list[Event]:
        """See `Catalog.events`."""
        row = HISTORY.c
        query = sa.select(row.revision, *_OPERATION).where(row.revision > after).order_by(row.revision).limit(limit)
        if subject is not None:
            query = query.where(row.subject == subject)
        return [Event(int(revision), _operation(operation)) for revision, *operation in self._rows(query)]

    def history(self, subject: str | None, limit: int, *, after: str | None = None) -> list[Operation]:
        """See `Catalog.history`."""
        query = sa.select(*_OPERATION).where(*pagerows.history_behind(after))
        query = query.order_by(HISTORY.c.sequence.desc()).limit(limit)
        if subject is not None:
            query = query.where(HISTORY.c.subject == subject)
        return [_operation(row) for row in self._rows(query)]

    def table(self, name: str) -> Table | None:
        """See `Catalog.table`."""
        return next(iter(self._tables(TABLES.c.live_name == name)), None)

    def table_by_uid(self, uid: str) -> Table | None:
        """See `Catalog.table_by_uid`."""
        return next(iter(self._tables(TABLES.c.uid == uid)), None)

    def tables(self) -> list[Table]:
        """See `Catalog.tables`."""
        return self._tables(TABLES.c.live_name.is_not(None))

    def tables_page(self, after: str, limit: int) -> list[Table]:
        """See `Catalog.tables_page`."""
        return self._database.read(lambda connection: pagerows.tables(connection, after, limit))

    def deleted_tables(self) -> list[Table]:
        """See `Catalog.deleted_tables`."""
        return self._tables(TABLES.c.live_name.is_(None))

    def table_config(self, config_hash: str) -> SegmentConfig | None:
        """See `Catalog.table_config`."""
        return self._database.read(lambda connection: segmentrows.find_config(connection, config_hash))

    def table_config_hashes(self) -> set[str]:
        """See `Catalog.table_config_hashes`."""
        return self._database.read(segmentrows.config_hashes)

    def table_snapshot(self, uid: str, known: Mapping[int, int]) -> TableSnapshot | None:
        """See `Catalog.table_snapshot`."""
        return self._database.read(lambda connection: segmentrows.snapshot(connection, uid, known))

    def segment(self, table_uid: str, name: str) -> Segment | None:
        """See `Catalog.segment`."""
        return next(iter(self.segments(table_uid, (name,))), None)

    def segments(self, table_uid: str, names: Collection[str] | None = None) -> list[Segment]:
        """See `Catalog.segments`."""
        return self._database.read(lambda connection: segmentrows.find_segments(connection, table_uid, names))

    def segments_page(self, table_uid: str, after: str, limit: int, *, other_than: str | None = None) -> list[Segment]:
        """See `Catalog.segments_page`."""
        return self._database.read(
            lambda connection: pagerows.segments(connection, table_uid, after, limit, other_than)
        )

    def stale_segments(self, table_uid: str, wanted: str) -> Iterator[StaleSegment]:
        """See `Catalog.stale_segments`."""
        return segmentrows.pages(self._database.read, table_uid, wanted)

    def table_size(self, table_uid: str) -> TableSize:
        """See `Catalog.table_size`."""
        return self._database.read(lambda connection: segmentrows.size_of(connection, table_uid))

    def segments_done(self, rebuild_id: str, names: Collection[str] | None = None) -> list[Done]:
        """See `Catalog.segments_done`."""
        return self._database.read(lambda connection: segmentrows.find_done(connection, rebuild_id, names))

    def close(self) -> None:
        """See `Catalog.close`."""
        self._database.close()

    def _tables(self, condition: sa.ColumnElement[bool]) -> list[Table]:
        return self._database.read(lambda connection: segmentrows.find_tables(connection, condition))

    def _rows(self, query: sa.Select[Any]) -> list[Any]:
        return self._database.read(lambda connection: list(connection.execute(query)))

    def _stores(self, condition: sa.ColumnElement[bool]) -> list[Store]:
        rows = self._rows(sa.select(STORES.c.document, STORES.c.revision).where(condition))
        # Sorted here: databases differ in how they compare texts.
        return sorted((storerows.parsed(*row) for row in rows), key=lambda store: store.name)

    def _rebuilds(self, *conditions: sa.ColumnElement[bool], limit: int | None = None) -> list[Rebuild]:
        return self._database.read(lambda connection: rebuildrows.find_rebuilds(connection, *conditions, limit=limit))


def _operation(row: Any) -> Operation:
    operation_id, at_ms, actor, what, subject, detail = row
    return Operation(operation_id, at_ms, actor, what, subject, json.loads(detail))


def _commit(change: Change, connection: sa.Connection) -> bool:
    if _known(connection, change.operation.id):
        return False
    for put in change.puts:
        _apply(connection, put, change.operation.at_ms)
    _record(connection, change.operation, _bump(connection, _REVISION))
    return True


def _apply(connection: sa.Connection, put: object, at_ms: int) -> None:
    match put:
        case PutStore() | PutRestored() | PutPastVersions():
            storerows.apply(connection, put)
        case PutRebuild():
            rebuildrows.put_rebuild(connection, put)
        case PutRequest():
            _put_request(connection, put, at_ms)
        case PutReclaim(reclaim=reclaim):
            if connection.execute(sa.select(RECLAIMS.c.id).where(RECLAIMS.c.id == reclaim.id)).first() is None:
                row = {name: getattr(reclaim, name) for name in RECLAIMS.c.keys()}  # noqa: SIM118 - not a dict
                connection.execute(sa.insert(RECLAIMS).values(**row))
        case DropReclaim(id=reclaim_id):
            connection.execute(sa.delete(RECLAIMS).where(RECLAIMS.c.id == reclaim_id))
        case PutDeadLetters() | PutSetAside():
            deadletterrows.apply(connection, put, at_ms)
        case PutFlag(name=name, value=value):
            connection.execute(sa.delete(FLAGS).where(FLAGS.c.name == name))
            if value is not None:
                connection.execute(sa.insert(FLAGS).values(name=name, value=value))
        case SwapFlag():
            _swap_flag(connection, put)
        case CheckEmpty():
            _check_empty(connection)
        case RaiseCounter():
            _raise_counter(connection, put)
        case _ if isinstance(put, JobPut):
            jobrows.apply(connection, put)
        case PutTopic() | PutRestoredTopic() | DropTopic():
            topicrows.apply(connection, put)
        case DropStore() | DropTable():
            forgetrows.apply(connection, put)
        case _ if isinstance(put, FORGETS):
            forgetrows.apply(connection, put)
        case _:
            segmentrows.apply(connection, put)


def _swap_flag(connection: sa.Connection, put: SwapFlag) -> None:
    if put.expected is None:
        taken = sa.select(FLAGS.c.name).where(FLAGS.c.name == put.name)
        unchanged = int(connection.execute(taken).first() is None)
    else:
        gone = connection.execute(sa.delete(FLAGS).where(FLAGS.c.name == put.name, FLAGS.c.value == put.expected))
        unchanged = gone.rowcount
    check_swapped(unchanged, f"the flag {put.name}", put.expected)
    if put.value is not None:
        connection.execute(sa.insert(FLAGS).values(name=put.name, value=put.value))


def _check_empty(connection: sa.Connection) -> None:
    held = {
        table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()
        for table in (STORES, REBUILDS, TABLES, TOPICS, JOBS)
    }
    if any(held.values()):
        raise Refused(
            "catalog_not_empty",
            "the catalog holds something already",
            found=", ".join(f"{count} {name}" for name, count in held.items()),
            expected="a catalog without stores, tables, topics, jobs and rebuilds",
            hint="a restore is for a catalog that was lost: name an empty one in ANEW_CATALOG",
        )


def _raise_counter(connection: sa.Connection, put: RaiseCounter) -> None:
    if _counter(connection, put.sequence) < put.at_least:
        connection.execute(sa.delete(COUNTERS).where(COUNTERS.c.name == put.sequence))
        connection.execute(sa.insert(COUNTERS).values(name=put.sequence, value=put.at_least))


def _put_node(node: NodeRecord, connection: sa.Connection) -> None:
    row = {"fabric": node.fabric, "last_seen_ms": node.last_seen_ms, "removed": node.removed, "report": node.report}
    known = connection.execute(sa.select(NODES.c.fabric, NODES.c.removed).where(NODES.c.id == node.id)).first()
    if known is None:
        connection.execute(sa.insert(NODES).values(id=node.id, revision=1, **row))
    else:
        update = sa.update(NODES).where(NODES.c.id == node.id)
        connection.execute(update.values(**row, revision=NODES.c.revision + 1))
    if known is None or tuple(known) != (node.fabric, node.removed):
        _bump(connection, _REVISION)


def _put_request(connection: sa.Connection, put: PutRequest, at_ms: int) -> None:
    known = _request(connection, put.request_id)
    if known is not None:
        raise InvalidRequest(
            "request_id_reused",
            "the request id was used before",
            found=put.request_id,
            expected="a new id for a new request; the same id only with the same body",
        )
    row = {"request_id": put.request_id, "body_hash": put.body_hash, "result": put.result, "at_ms": at_ms}
    connection.execute(sa.insert(REQUESTS).values(**row))


def _request(connection: sa.Connection, request_id: str) -> KnownRequest | None:
    query = sa.select(REQUESTS.c.body_hash, REQUESTS.c.result).where(REQUESTS.c.request_id == request_id)
    row = connection.execute(query).first()
    return None if row is None else KnownRequest(*row)


def _known(connection: sa.Connection, operation_id: str) -> bool:
    query = sa.select(HISTORY.c.sequence).where(HISTORY.c.operation_id == operation_id)
    return connection.execute(query).first() is not None


def _record(connection: sa.Connection, operation: Operation, revision: int) -> None:
    connection.execute(
        sa.insert(HISTORY).values(
            operation_id=operation.id,
            at_ms=operation.at_ms,
            actor=operation.actor,
            what=operation.what,
            subject=operation.subject,
            detail=json.dumps(operation.detail),
            revision=revision,
        )
    )


def _counter(connection: sa.Connection, name: str) -> int:
    return connection.execute(sa.select(COUNTERS.c.value).where(COUNTERS.c.name == name)).scalar() or 0


def _bump(connection: sa.Connection, name: str) -> int:
    update = sa.update(COUNTERS).where(COUNTERS.c.name == name).values(value=COUNTERS.c.value + 1)
    value = connection.execute(update.returning(COUNTERS.c.value)).scalar()
    if value is None:
        value = 1
        connection.execute(sa.insert(COUNTERS).values(name=name, value=value))
    return int(value)
