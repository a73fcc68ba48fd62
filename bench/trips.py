"""Trips: a table of twelve columns of the kinds that such tables have, and clusters that hold it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anew.api.rebuilds import TableRebuildView, view_as
from anew.api.tables.requests import CreateTable, PlanRefresh, UpdateTable
from anew.api.tables.segments import SegmentState
from anew.core.tables.config import SegmentConfig
from anew.core.tables.table import Table
from anew.runtime.connect import Cluster
from anew.runtime.sparkchoice import SparkChoice
from anew.spark.session import SparkSession
from bench.serving import wait_until
from bench.synthetic import SEED

TABLE = "trips"
COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "bigint", "nullable": False},
    {"name": "left_at", "type": "timestamp", "role": "time"},
    {"name": "carrier", "type": "varchar"},
    {"name": "flight", "type": "integer"},
    {"name": "tail", "type": "varchar"},
    {"name": "origin", "type": "varchar"},
    {"name": "dest", "type": "varchar"},
    {"name": "dep_delay", "type": "double", "role": "metric"},
    {"name": "arr_delay", "type": "double", "role": "metric"},
    {"name": "air_time", "type": "double", "role": "metric"},
    {"name": "distance", "type": "integer", "role": "metric"},
    {"name": "hour", "type": "integer"},
]
SORTS = ("dest", "tail", "flight", "arr_delay", "origin")
"""What a table is sorted by in turn: nobody gets back to a configuration that a build still has. An odd number, so that
two sides that take turns come to each: some columns take twice as long as others."""
_DAY_US = 86_400_000_000
_FIRST_US = 1_356_998_400_000_000
"""2013-01-01."""
_PATIENCE_SECONDS = 600.0
_PAUSE_SECONDS = 0.05


def trips(rows: int, first: int = 0, days: int = 365) -> pa.Table:
    """So many trips of so many days from the beginning of a year, in the order of nothing but their ids."""
    random = np.random.default_rng(SEED + first)

    def names(prefix: str, count: int) -> pa.Array[Any]:
        dictionary = pa.array([f"{prefix}{number:04d}" for number in range(count)])
        places: Any = pa.array(random.integers(0, count, rows))
        return dictionary.take(places)

    def late(mask_share: float) -> pa.Array[Any]:
        minutes = np.rint(random.gamma(1.2, 18.0, rows) - 12.0)
        return pa.array(minutes, mask=random.random(rows) < mask_share)

    left_us = _FIRST_US + (random.random(rows) * days * _DAY_US).astype(np.int64) // 60_000_000 * 60_000_000
    distances = random.integers(80, 5_000, rows).astype(np.int32)
    columns: dict[str, Any] = {
        "id": pa.array(np.arange(first, first + rows, dtype=np.int64)),
        "left_at": pa.array(left_us).cast(pa.timestamp("us")),
        "carrier": names("C", 16),
        "flight": pa.array(random.integers(1, 6_000, rows).astype(np.int32)),
        "tail": names("N", 4_000),
        "origin": names("O", 3),
        "dest": names("D", 105),
        "dep_delay": late(0.025),
        "arr_delay": late(0.028),
        "air_time": pa.array(np.rint(distances / 7.5 + random.normal(20, 6, rows))),
        "distance": pa.array(distances),
        "hour": pa.array(random.integers(0, 24, rows).astype(np.int32)),
    }
    return pa.table(columns)


def write_files(folder: Path, rows: int, files: int) -> list[Path]:
    """So many rows in so many files, each of days of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    share, days = rows // files, max(1, 365 // files)
    found = []
    for number in range(files):
        table = trips(share, number * share, days)
        at = table.schema.get_field_index("left_at")
        later = pa.scalar(number * days * _DAY_US, pa.duration("us"))
        table = table.set_column(at, "left_at", pc.add(table.column(at), later))
        found.append(folder / f"trips-{number:04d}.parquet")
        pq.write_table(table, found[-1])
    return found


@dataclass(slots=True)
class TripsTable:
    """A table of trips on a cluster; every change sorts it by another column."""

    cluster: Cluster
    name: str
    sorts: Iterator[str] = field(default_factory=lambda: itertools.cycle(SORTS))

    @classmethod
    def create(cls, cluster: Cluster, files: list[Path], **settings: Any) -> TripsTable:
        """Make it of files, and wait for its nodes."""
        request = CreateTable(name=TABLE, columns={"columns": COLUMNS}, settings={"time_column": "left_at", **settings})
        cluster.controller.create_table(request)
        cluster.import_segments(TABLE, files)
        table = cls(cluster, TABLE)
        table.await_served()
        return table

    @property
    def table(self) -> Table:
        """Its record."""
        return self.cluster.controller.table_snapshot(self.name).table

    @property
    def config(self) -> SegmentConfig:
        """The wanted configuration."""
        return self.table.config

    def resort(self) -> str:
        """Let it be sorted by the next column; returns which."""
        column = next(self.sorts)
        self.cluster.controller.update_table(self.name, UpdateTable(settings={"sort": [column]}))
        return column

    def refresh(self, spark: SparkSession) -> None:
        """Refresh every segment."""
        plan = self.cluster.plan_refresh(self.name, PlanRefresh(max_segments=0))
        view = self.cluster.run_plan(plan, SparkChoice(session=spark), None, None)
        refreshed, wanted = view_as(view, TableRebuildView).refresh.refreshed, len(plan.segments)
        if view.status != "succeeded" or len(refreshed) != wanted or not wanted:
            raise AssertionError(f"{len(refreshed)} of {wanted} segments were refreshed: {view.error}")

    def await_served(self, config_hash: str | None = None) -> None:
        """Until each replica serves the newest build, with a configuration if one is named."""

        def served() -> bool:
            return all(
                bool(segment.replicas)
                and all(
                    copy.state == SegmentState.SERVING
                    and copy.build == segment.build
                    and (config_hash is None or copy.config_hash == config_hash)
                    for copy in segment.replicas
                )
                for segment in self.cluster.controller.segments(self.name)
            )

        wait_until(served, _PATIENCE_SECONDS, _PAUSE_SECONDS)

    def paths(self) -> list[Path]:
        """Its files in the deep store."""
        snapshot = self.cluster.controller.table_snapshot(self.name, segments=True)
        return [Path(snapshot.deep_store) / segment.build.path for segment in snapshot.segments]


def emptied(folder: Path) -> Path:
    """A folder with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
