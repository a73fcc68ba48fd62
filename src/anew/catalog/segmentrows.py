"""Tables and their segments as rows, and what became of segments in rebuilds: for `anew.catalog.database`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import sqlalchemy as sa

from anew.catalog.change import (
    DropSegment,
    PutConfig,
    PutDone,
    PutRestoredTable,
    PutSegment,
    PutTable,
    TableSize,
    TableSnapshot,
)
from anew.catalog.conflicts import check_swapped
from anew.catalog.parts import rows_named
from anew.catalog.tables import SEGMENT_OUTCOMES, SEGMENT_SLOTS, SEGMENTS, TABLE_CONFIGS, TABLES
from anew.core.errors import Refused
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment, StaleSegment
from anew.core.tables.table import Table
from anew.segments.record import SegmentList

PAGE_ROWS = 20_000
_INSERTED_AT_ONCE = 1_000
_KEPT = 256


def apply(connection: sa.Connection, put: object) -> None:
    """Carry out one part of a change.

    Raises:
        Refused: ``revision_conflict``, ``table_exists``.
    """
    match put:
        case PutTable():
            _put_table(connection, put)
        case PutConfig(config=config):
            known = sa.select(TABLE_CONFIGS.c.hash).where(TABLE_CONFIGS.c.hash == config.hash)
            if connection.execute(known).first() is None:
                row = {"hash": config.hash, "document": config.model_dump_json()}
                connection.execute(sa.insert(TABLE_CONFIGS).values(**row))
        case PutSegment():
            _put_segment(connection, put)
        case DropSegment(name=name, fence=fence):
            delete = sa.delete(SEGMENTS).where(_at(put.table_uid, name, fence)).returning(SEGMENTS.c.slot)
            gone = connection.execute(delete).scalars().all()
            check_swapped(len(gone), f"the segment {name}", fence)
            _mark(connection, put.table_uid, gone[0])
        case PutRestoredTable():
            _put_restored(connection, put)
        case PutDone(rebuild=rebuild, done=done):
            at = (SEGMENT_OUTCOMES.c.rebuild == rebuild) & (SEGMENT_OUTCOMES.c.segment == done.segment)
            connection.execute(sa.delete(SEGMENT_OUTCOMES).where(at))
            row = {"rebuild": rebuild, "segment": done.segment, "document": done.model_dump_json()}
            connection.execute(sa.insert(SEGMENT_OUTCOMES).values(**row))
        case _:
            raise TypeError(f"not a change of the catalog: {put!r}")


def find_tables(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Table]:
    """Tables by name."""
    rows = connection.execute(sa.select(TABLES.c.document).where(condition))
    return sorted((parsed_table(document) for (document,) in rows), key=lambda table: table.name)


def find_config(connection: sa.Connection, config_hash: str) -> SegmentConfig | None:
    """The configuration of that hash."""
    query = sa.select(TABLE_CONFIGS.c.document).where(TABLE_CONFIGS.c.hash == config_hash)
    found = connection.execute(query).scalar()
    return None if found is None else _config(found)


def config_hashes(connection: sa.Connection) -> set[str]:
    """The hashes of all configurations."""
    return set(connection.execute(sa.select(TABLE_CONFIGS.c.hash)).scalars())


def snapshot(connection: sa.Connection, uid: str, known: Mapping[int, int]) -> TableSnapshot | None:
    """A table with its slots, and the segments of those that are not as they are known; nothing is parsed."""
    document = connection.execute(sa.select(TABLES.c.document).where(TABLES.c.uid == uid)).scalar()
    if document is None:
        return None
    query = sa.select(SEGMENT_SLOTS.c.slot, SEGMENT_SLOTS.c.revision).where(SEGMENT_SLOTS.c.table_uid == uid)
    slots = {int(slot): int(revision) for slot, revision in connection.execute(query)}
    changed = {
        slot: SegmentList.of(connection.execute(documents_of(uid, slot)).scalars())
        for slot, revision in sorted(slots.items())
        if known.get(slot) != revision
    }
    return TableSnapshot(parsed_table(document), slots, changed)


def documents_of(table_uid: str, slot: int) -> sa.Select[Any]:
    """A slot's segments as texts, by name: in the order of an index, so that no other segment is looked at."""
    row = SEGMENTS.c
    return sa.select(row.document).where(row.table_uid == table_uid, row.slot == slot).order_by(row.name)


def find_segments(connection: sa.Connection, table_uid: str, names: Collection[str] | None) -> list[Segment]:
    """A table's segments by name; only those named unless None."""
    query = sa.select(SEGMENTS.c.document).where(SEGMENTS.c.table_uid == table_uid)
    documents = _documents(connection, query, SEGMENTS.c.name, names)
    return sorted(map(Segment.model_validate_json, documents), key=lambda segment: segment.name)


def stale_page(connection: sa.Connection, table_uid: str, wanted: str, after: str) -> list[StaleSegment]:
    """Some of the segments that are stale, the next ones by name."""
    row = SEGMENTS.c
    columns = (row.name, row.build, row.bytes, row.rows, row.config_hash, row.slot, row.created_at_ms, row.failed_hash)
    stale = row.config_hash.is_(None) | (row.config_hash != wanted)
    query = sa.select(*columns).where(row.table_uid == table_uid, row.name > after, stale)
    return [StaleSegment(*found) for found in connection.execute(query.order_by(row.name).limit(PAGE_ROWS))]


def size_of(connection: sa.Connection, table_uid: str) -> TableSize:
    """How much a table's segments hold together."""
    sums = (sa.func.count(), sa.func.sum(SEGMENTS.c.rows), sa.func.sum(SEGMENTS.c.bytes))
    count, rows, size = connection.execute(sa.select(*sums).where(SEGMENTS.c.table_uid == table_uid)).one()
    return TableSize(int(count), int(rows or 0), int(size or 0))


def find_done(connection: sa.Connection, rebuild_id: str, names: Collection[str] | None) -> list[Done]:
    """What became of the segments of a rebuild, by name; only those named unless None."""
    query = sa.select(SEGMENT_OUTCOMES.c.document).where(SEGMENT_OUTCOMES.c.rebuild == rebuild_id)
    documents = _documents(connection, query, SEGMENT_OUTCOMES.c.segment, names)
    return sorted(map(Done.model_validate_json, documents), key=lambda done: done.segment)


def pages(read: Any, table_uid: str, wanted: str) -> Iterator[StaleSegment]:
    """All stale segments, page by page; ``read`` runs a query in a transaction of its own."""
    after = ""
    while page := read(lambda connection, after=after: stale_page(connection, table_uid, wanted, after)):
        yield from page
        after = page[-1].name


def _documents(
    connection: sa.Connection, query: sa.Select[Any], name: sa.Column[Any], names: Collection[str] | None
) -> Iterator[str]:
    """The documents that a query finds; only those of some names unless None."""
    if names is None:
        yield from connection.execute(query).scalars()
    else:
        yield from (document for (document,) in rows_named(connection, query, name, names))


def _put_table(connection: sa.Connection, put: PutTable) -> None:
    table = put.table
    if put.fence is None:
        taken = sa.select(TABLES.c.uid).where(TABLES.c.live_name == table.name)
        if connection.execute(taken).first() is not None:
            raise Refused("table_exists", f"there is a table {table.name} already", found=table.name)
        row = _table_row(table.model_copy(update={"revision": 1}))
        connection.execute(sa.insert(TABLES).values(uid=table.uid, **row))
        return
    row = _table_row(table.model_copy(update={"revision": put.fence + 1}))
    update = sa.update(TABLES).where(TABLES.c.uid == table.uid, TABLES.c.revision == put.fence)
    check_swapped(connection.execute(update.values(**row)).rowcount, f"the table {table.name}", put.fence)


def _table_row(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "live_name": None if table.deleted_at_ms is not None else table.name,
        "revision": table.revision,
        "document": table.model_dump_json(),
    }


def _put_segment(connection: sa.Connection, put: PutSegment) -> None:
    revision = 1 if put.fence is None else put.fence + 1
    segment = put.segment.model_copy(update={"revision": revision})
    row = _segment_row(segment)
    if put.fence is None:
        at = (SEGMENTS.c.table_uid == segment.table_uid) & (SEGMENTS.c.name == segment.name)
        if connection.execute(sa.select(SEGMENTS.c.name).where(at)).first() is not None:
            check_swapped(0, f"the segment {segment.name}", 0)
        connection.execute(sa.insert(SEGMENTS).values(**row))
    else:
        update = sa.update(SEGMENTS).where(_at(segment.table_uid, segment.name, put.fence))
        check_swapped(connection.execute(update.values(**row)).rowcount, f"the segment {segment.name}", put.fence)
    _mark(connection, segment.table_uid, segment.slot)


def _segment_row(segment: Segment) -> dict[str, Any]:
    return {
        "table_uid": segment.table_uid,
        "name": segment.name,
        "revision": segment.revision,
        "build": segment.build.id,
        "bytes": segment.build.bytes,
        "rows": segment.build.contents.rows,
        "config_hash": segment.build.config_hash,
        "slot": segment.slot,
        "created_at_ms": segment.created_at_ms,
        "failed_hash": None if segment.failure is None else segment.failure.config_hash,
        "document": segment.model_dump_json(),
        "made_by": segment.made_by,
    }


def _mark(connection: sa.Connection, table_uid: str, slot: int) -> None:
    """Note that a slot's segments changed."""
    row = SEGMENT_SLOTS.c
    update = sa.update(SEGMENT_SLOTS).where(row.table_uid == table_uid, row.slot == slot)
    if connection.execute(update.values(revision=row.revision + 1)).rowcount == 0:
        connection.execute(sa.insert(SEGMENT_SLOTS).values(table_uid=table_uid, slot=slot, revision=1))


def _put_restored(connection: sa.Connection, put: PutRestoredTable) -> None:
    table = put.table
    connection.execute(sa.insert(TABLES).values(uid=table.uid, **_table_row(table)))
    for slot, listed in sorted(put.slots.items()):
        mark = {"table_uid": table.uid, "slot": slot, "revision": table.revision}
        connection.execute(sa.insert(SEGMENT_SLOTS).values(**mark))
        segments = (segment.model_copy(update={"revision": table.revision}) for segment in listed.segments())
        while rows := [_segment_row(segment) for segment in islice(segments, _INSERTED_AT_ONCE)]:
            connection.execute(sa.insert(SEGMENTS), rows)


def _at(table_uid: str, name: str, fence: int) -> sa.ColumnElement[bool]:
    row = SEGMENTS.c
    return (row.table_uid == table_uid) & (row.name == name) & (row.revision == fence)


@lru_cache(_KEPT)
def parsed_table(document: str) -> Table:
    """A table's document; nobody changes what was read."""
    return Table.model_validate_json(document)


@lru_cache(_KEPT)
def _config(document: str) -> SegmentConfig:
    return SegmentConfig.model_validate_json(document)
