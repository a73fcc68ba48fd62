"""Lists in pages: of each only the rows of one page are read. For `anew.catalog.database`."""

from __future__ import annotations

import sqlalchemy as sa

from anew.catalog import segmentrows, storerows
from anew.catalog.change import NodeRecord, Reclaim
from anew.catalog.interface import TimedKey
from anew.catalog.tables import HISTORY, NODES, REBUILDS, RECLAIMS, SEGMENTS, STORES, TABLES
from anew.core.stores.store import Store
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table


def stores(connection: sa.Connection, after: str, limit: int) -> list[Store]:
    """Live stores by name, those behind a name."""
    row = STORES.c
    query = sa.select(row.document, row.revision).where(row.live_name > after).order_by(row.live_name).limit(limit)
    return [storerows.parsed(*each) for each in connection.execute(query)]


def tables(connection: sa.Connection, after: str, limit: int) -> list[Table]:
    """Live tables by name, those behind a name."""
    row = TABLES.c
    query = sa.select(row.document).where(row.live_name > after).order_by(row.live_name).limit(limit)
    return [segmentrows.parsed_table(document) for document in connection.execute(query).scalars()]


def segments(
    connection: sa.Connection, table_uid: str, after: str, limit: int, other_than: str | None
) -> list[Segment]:
    """A table's segments by name, those behind a name; only those with another hash than one, unless None."""
    row = SEGMENTS.c
    query = sa.select(row.document).where(row.table_uid == table_uid, row.name > after)
    if other_than is not None:
        query = query.where(row.config_hash.is_(None) | (row.config_hash != other_than))
    documents = connection.execute(query.order_by(row.name).limit(limit)).scalars()
    return [Segment.model_validate_json(document) for document in documents]


def nodes(connection: sa.Connection, after: str, limit: int) -> list[NodeRecord]:
    """Nodes that were not removed by id, those behind an id."""
    row = NODES.c
    query = sa.select(row.id, row.fabric, row.last_seen_ms, row.report, row.removed)
    query = query.where(~row.removed, row.id > after).order_by(row.id).limit(limit)
    return [NodeRecord(*each) for each in connection.execute(query)]


def reclaims(connection: sa.Connection, after: TimedKey | None, limit: int) -> list[Reclaim]:
    """Intents to reclaim by the end of their grace and id, those behind a key."""
    row = RECLAIMS.c
    query = sa.select(RECLAIMS).order_by(row.not_before_ms, row.id).limit(limit)
    if after is not None:
        later = (row.not_before_ms == after.at_ms) & (row.id > after.id)
        query = query.where((row.not_before_ms > after.at_ms) | later)
    return [Reclaim(*each) for each in connection.execute(query)]


def rebuilds_behind(after: TimedKey | None) -> tuple[sa.ColumnElement[bool], ...]:
    """Which rebuilds come behind a key, newest first."""
    if after is None:
        return ()
    row = REBUILDS.c
    beside = (row.created_at_ms == after.at_ms) & (row.id > after.id)
    # The first one says nothing more, and lets an index begin there.
    return (row.created_at_ms <= after.at_ms, (row.created_at_ms < after.at_ms) | beside)


def history_behind(after: str | None) -> tuple[sa.ColumnElement[bool], ...]:
    """Which operations are older than the one of an id; none where that is forgotten."""
    if after is None:
        return ()
    row = HISTORY.c
    return (row.sequence < sa.select(row.sequence).where(row.operation_id == after).scalar_subquery(),)
