"""Making, changing and deleting tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from anew.api.tables.requests import CreateTable, DropSegments, UpdateTable
from anew.catalog.change import DropSegment, Put, PutConfig, PutReclaim, PutRequest, PutTable, Reclaim
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.records import rebuilds_of
from anew.controller.engine.requests import made_before
from anew.controller.tables.records import change_table, table_named
from anew.core.confighash import value_hash
from anew.core.errors import Failed, InvalidRequest, NotFound, Refused
from anew.core.suggest import did_you_mean
from anew.core.tables.casts import cast_column
from anew.core.tables.columns import Column, parse_columns
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.segment import Segment
from anew.core.tables.settings import TABLE_SETTINGS, TableSettings
from anew.core.tables.table import Table, asked_to_reload, changed, check_table_name
from anew.segments.layout import table_path
from anew.sql.expressions import check_expressions, conjuncts


def create_table(context: Context, request: CreateTable, actor: str) -> Table:
    """Make a table; idempotent by request id.

    Raises:
        InvalidRequest: ``bad_name``, ``bad_schema``, ``unknown_setting``, ``bad_setting``, ``unknown_column``,
            ``bad_expression``, ``not_deterministic``, ``request_id_reused``.
        Refused: ``table_exists``.
    """
    body_hash = value_hash(request.model_dump(mode="json", exclude={"request_id"}))
    made = _made_before(context, request.request_id, body_hash)
    if made is not None:
        return made
    check_table_name(request.name)
    columns = parse_columns(request.columns)
    settings = TableSettings(**TABLE_SETTINGS.parse(request.settings))
    config = segment_config(columns, settings)
    check_expressions(config)
    table = Table(
        uid=context.new_id(),
        name=request.name,
        fabric=next(iter(context.fabrics)),
        columns=columns,
        settings=settings,
        config=config,
        config_hash=config.hash,
        created_at_ms=context.clock(),
    )
    known = () if request.request_id is None else (PutRequest(request.request_id, body_hash, table.uid),)
    operation = context.operation("create table", request.name, actor, config=table.config_hash)
    try:
        commit(context, operation, PutTable(table, None), PutConfig(config), *known)
    except (Refused, InvalidRequest):
        # The same request may have been under way twice, and the other one was faster.
        made = _made_before(context, request.request_id, body_hash)
        if made is None:
            raise
        return made
    return table_named(context, request.name)


def update_table(context: Context, name: str, request: UpdateTable, actor: str) -> Table:
    """Change columns or settings; what decides segments' bytes makes them stale, the rest acts at once.

    Raises:
        InvalidRequest: As `create_table`; ``incompatible_change``.
        NotFound: ``unknown_table``.
    """
    columns = None if request.columns is None else parse_columns(request.columns)
    settings = TABLE_SETTINGS.parse(request.settings)
    table = table_named(context, name)
    check_expressions(changed(table, columns, settings).config)

    def change(present: Table) -> tuple[Table, tuple[Put, ...]]:
        after = changed(present, columns, settings)
        if after.config_hash != present.config_hash:
            for config in _configs_of_rows(context, present):
                check_compatible(config, after.config)
            if _filters_less(present.config, after.config):
                # No segment lacks rows, but copies may that nodes made meanwhile.
                after = asked_to_reload(after, None)
        return after, (PutConfig(after.config),) if after.config_hash != present.config_hash else ()

    said = sorted(request.settings)
    operation = context.operation("update table", name, actor, settings=said, columns=columns is not None)
    return change_table(context, table.uid, operation, change)


def check_compatible(made: SegmentConfig, wanted: SegmentConfig) -> None:
    """Raise for a change that segments made with a configuration cannot follow.

    Raises:
        InvalidRequest: ``incompatible_change``.
    """
    lost = _filters_less(made, wanted)
    if lost:
        raise _incompatible(
            "rows that the row filter took out of segments cannot come back",
            wanted.row_filter,
            f"a filter that still has: {' AND '.join(sorted(lost))}",
            "make a new table and load its rows again",
        )
    before = made.by_name
    for column in wanted.columns:
        if column.name in before:
            _check_convertible(before[column.name], column)
        elif not column.nullable and column.default is None and column.name not in wanted.derived:
            raise _incompatible(
                f"segments have no values of the new column {column.name}",
                "not nullable, without a default",
                "a default, or nullable",
                "give it a default in the schema",
            )


def reload_table(context: Context, name: str, segment: str | None, actor: str) -> Table:
    """Let nodes make their copies again with the newest configuration (case E5).

    Raises:
        NotFound: ``unknown_table``, ``unknown_segment``.
    """
    table = table_named(context, name)
    if segment is not None:
        segment_named(context, table, segment)
    operation = context.operation("reload table", name, actor, segment=segment)
    return change_table(context, table.uid, operation, lambda present: (asked_to_reload(present, segment), ()))


def segment_named(context: Context, table: Table, name: str) -> Segment:
    """The segment of that name.

    Raises:
        NotFound: ``unknown_segment``, with the nearest name.
    """
    segment = context.catalog.segment(table.uid, name)
    if segment is None:
        known = [other.name for other in context.catalog.segments(table.uid)]
        raise NotFound(
            "unknown_segment",
            f"the table {table.name} has no segment {name}",
            found=name,
            expected=f"{len(known)} segments: anew table segments {table.name}",
            hint=did_you_mean(name, known),
        )
    return segment


def drop_segments(context: Context, name: str, request: DropSegments, actor: str) -> Table:
    """Take segments out of a table: at once for everybody who reads it; their files go after the grace.

    Raises:
        NotFound: ``unknown_table``, ``unknown_segment``.
    """
    table = table_named(context, name)

    def change(present: Table) -> tuple[Table, tuple[Put, ...]]:
        puts: list[Put] = []
        for segment in (segment_named(context, present, each) for each in dict.fromkeys(request.segments)):
            puts.append(DropSegment(present.uid, segment.name, segment.revision))
            puts.append(file_to_reclaim(context, present, segment.build.path, f"{segment.name} was deleted"))
        return present, tuple(puts)

    operation = context.operation("delete segments", name, actor, segments=list(request.segments))
    return change_table(context, table.uid, operation, change)


def delete_table(context: Context, name: str, actor: str) -> Table:
    """Delete a table: at once for everybody who reads it; its files go after the grace.

    Raises:
        NotFound: ``unknown_table``.
        Refused: ``rebuild_running``.
    """
    table = table_named(context, name)

    def change(present: Table) -> tuple[Table, tuple[Put, ...]]:
        running = rebuilds_of(context, present.uid, TableRebuild, running_only=True)
        if running:
            raise Refused(
                "rebuild_running",
                f"a {running[0].kind.value} of {name} is running",
                found=running[0].id,
                hint=f"anew rebuild kill {running[0].id}",
            )
        return present.model_copy(update={"deleted_at_ms": context.clock()}), (files_to_reclaim(context, present),)

    return change_table(context, table.uid, context.operation("delete table", name, actor), change)


def files_to_reclaim(context: Context, table: Table) -> PutReclaim:
    """The note that everything of a deleted table is to go after the grace."""
    why, target = f"the table {table.name} was deleted", f"{table.uid}\n{table_path(table.uid)}"
    note = f"{table.uid}/segments@{table.fabric}"
    return PutReclaim(Reclaim(note, "table", table.fabric, target, context.reclaim_due_ms(), why))


def file_to_reclaim(context: Context, table: Table, path: str, why: str) -> PutReclaim:
    """The note that a build's file is to go after the grace, unless a segment names it by then."""
    due_ms = context.reclaim_due_ms()
    return PutReclaim(Reclaim(f"{path}@{table.fabric}", "build", table.fabric, f"{table.uid}\n{path}", due_ms, why))


def _made_before(context: Context, request_id: str | None, body_hash: str) -> Table | None:
    uid = made_before(context, request_id, body_hash)
    return None if uid is None else context.catalog.table_by_uid(uid)


def _configs_of_rows(context: Context, table: Table) -> list[SegmentConfig]:
    """With what configurations the rows of a table were made, or are being made: each is to follow a change.

    The wanted one is among them only where a segment was made with it, or a rebuild that runs makes some: each commit
    of a segment, and each beginning, changes the table's revision. Segments without a hash follow if they can.
    """
    running = rebuilds_of(context, table.uid, TableRebuild, running_only=True)
    stale = Counter(segment.config_hash for segment in context.catalog.stale_segments(table.uid, table.config_hash))
    fresh = context.catalog.table_size(table.uid).segments - stale.total()
    known = (context.catalog.table_config(each) for each in sorted(each for each in stale if each is not None))
    made = [rebuild.plan.target.config for rebuild in running] + [each for each in known if each]
    return [table.config, *made] if fresh else made


def _filters_less(now: SegmentConfig, wanted: SegmentConfig) -> frozenset[str]:
    """The conditions of a row filter that another one does not have: it may keep rows that this one takes out."""
    return frozenset(conjuncts(now.row_filter) - conjuncts(wanted.row_filter))


def _check_convertible(now: Column, wanted: Column) -> None:
    if now.type == wanted.type:
        return
    try:
        # What a refresh does to the values: a null becomes one of every type that any value can become.
        cast_column(pa.array([None], now.arrow_type), wanted)
    except Failed:
        raise _incompatible(
            f"no value of {now.name} can become {wanted.type}", now.type, "a type that it can be converted to", None
        ) from None


def _incompatible(message: str, found: Any, expected: str, hint: str | None) -> InvalidRequest:
    return InvalidRequest("incompatible_change", message, found=found, expected=expected, hint=hint)
