"""Small values of tables for tests: whole and valid, with just what a test is about as arguments."""

from __future__ import annotations

from typing import Any

from anew.core.plan import Estimate
from anew.core.rebuild import RebuildStatus, Stage
from anew.core.tables.columns import Column, parse_columns
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.plan import PlannedSegment, TableFence, TablePlan, TableRebuildKind, TableTarget
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.segment import Build, ColumnStats, Contents, Segment
from anew.core.tables.settings import TABLE_SETTINGS, TableSettings
from anew.core.tables.table import Table
from anew.testing.builders import FABRIC
from anew.testing.clock import NOON_MS

COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "id", "type": "bigint", "nullable": False},
    {"name": "city", "type": "varchar"},
    {"name": "fare", "type": "double", "role": "metric"},
    {"name": "left_at", "type": "timestamp", "role": "time"},
    {"name": "came_at", "type": "timestamp", "role": "time"},
)
"""The columns of trips, as a schema file holds them."""


def a_schema(*more: dict[str, Any], without: str | None = None, **changes: dict[str, Any]) -> dict[str, Any]:
    """A schema file: `COLUMNS` with ``changes`` (column → fields), one left out, and more of them."""
    kept = [{**column, **changes.get(column["name"], {})} for column in COLUMNS if column["name"] != without]
    return {"columns": [*kept, *more]}


def some_columns(*more: dict[str, Any], without: str | None = None, **changes: dict[str, Any]) -> tuple[Column, ...]:
    """The columns of `a_schema`."""
    return parse_columns(a_schema(*more, without=without, **changes))


def a_segment_config(schema: dict[str, Any] | None = None, **settings: Any) -> SegmentConfig:
    """A configuration: all defaults but the given settings."""
    columns = parse_columns(a_schema() if schema is None else schema)
    return segment_config(columns, TableSettings(**TABLE_SETTINGS.parse(settings)))


def a_table(name: str = "trips", schema: dict[str, Any] | None = None, **settings: Any) -> Table:
    """A table without segments and nodes: all defaults but the given settings."""
    columns = parse_columns(a_schema() if schema is None else schema)
    parsed = TableSettings(**TABLE_SETTINGS.parse(settings))
    config = segment_config(columns, parsed)
    return Table(
        uid=f"uid-{name}",
        name=name,
        fabric=FABRIC,
        columns=columns,
        settings=parsed,
        config=config,
        config_hash=config.hash,
        created_at_ms=NOON_MS,
    )


def a_build(build_id: str = "build-1", config_hash: str | None = None, rows: int = 10, **changes: Any) -> Build:
    """A build of ``rows`` rows and a hundred bytes each, whose content is its own."""
    stats = ColumnStats(type="bigint", nulls=0, least=1, greatest=rows, fingerprint=sum(build_id.encode()))
    build = Build(
        id=build_id,
        path=f"tables/uid-trips/{build_id}.parquet",
        bytes=rows * 100,
        sha256=build_id,
        config_hash=config_hash,
        contents=Contents(rows=rows, columns={"id": stats}, row_fingerprint=stats.fingerprint),
        built_at_ms=NOON_MS,
    )
    return build.model_copy(update=changes)


def a_segment(name: str = "trips_0", config_hash: str | None = None, **changes: Any) -> Segment:
    """A segment of the table `a_table` with one build."""
    segment = Segment(
        table_uid="uid-trips",
        name=name,
        slot=0,
        created_at_ms=NOON_MS,
        pushed_at_ms=NOON_MS,
        build=a_build(f"build-of-{name}", config_hash),
    )
    return segment.model_copy(update=changes)


def a_table_plan(table: Table, *segments: Segment, **changes: Any) -> TablePlan:
    """A sealed plan of a refresh of these segments."""
    plan = TablePlan(
        kind=TableRebuildKind.REFRESH,
        table=table.name,
        target=TableTarget(config=table.config, config_hash=table.config_hash, fabric=table.fabric),
        estimate=Estimate(records=0, bytes=0),
        segments=tuple(
            PlannedSegment(
                segment=segment.name,
                build=segment.build.id,
                config_hash=segment.build.config_hash,
                reasons=(),
                bytes=segment.build.bytes,
                rows=segment.build.contents.rows,
            )
            for segment in segments
        ),
        fence=TableFence(table_uid=table.uid, config_hash=table.config_hash),
        planned_at_ms=NOON_MS,
    )
    return plan.model_copy(update=changes).sealed()


def a_table_rebuild(table: Table, rebuild_id: str = "rebuild-1", *segments: Segment, **changes: Any) -> TableRebuild:
    """A refresh that has just begun."""
    rebuild = TableRebuild(
        id=rebuild_id,
        kind=TableRebuildKind.REFRESH,
        table=table.name,
        table_uid=table.uid,
        status=RebuildStatus.RUNNING,
        stage=Stage.BEGIN,
        plan=a_table_plan(table, *segments),
        epoch=1,
        lease_until_ms=NOON_MS + 20_000,
        created_at_ms=NOON_MS,
        stage_since_ms=NOON_MS,
    )
    return rebuild.model_copy(update=changes)
