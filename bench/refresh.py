"""Refreshing: against plain pyarrow over the same files, and against nodes that each make their copies again.

The refresh is the whole of it: plan, Spark, proof, fingerprints before and after, checksums, a commit per segment. The
plain side reads, sorts and writes with one process per core and the same options, and verifies nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog.testing
from pyspark.sql import SparkSession

from anew.api.tables.requests import ReloadTable
from anew.runtime.home import Home
from anew.segments.tables.write import parquet_options
from anew.spark.session import session_for_queries, spark_session
from bench.measuring import Bench, Measured, Repeats, take_turns, timed, times_as_fast
from bench.processortime import ProcessorTime
from bench.rebuilding import running_cluster
from bench.synthetic import SEED
from bench.trips import COLUMNS, TripsTable, emptied, write_files

_SEGMENT_ROWS = 1_000_000
_SEGMENTS = 4
_REPLICAS = 3


def run_refresh(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with tables of so many rows, in segments of a million or four of them."""
    with spark_session(f"local[{_cores()}]", {}) as started, structlog.testing.capture_logs():
        spark = session_for_queries(started)
        return [_refresh(folder / str(size), spark, size, repeats) for size in sizes]


def _refresh(folder: Path, spark: SparkSession, rows: int, repeats: Repeats) -> Measured:
    segments = max(2, rows // _SEGMENT_ROWS)
    with (
        running_cluster(folder, None) as cluster,
        ProcessPoolExecutor(_cores(), multiprocessing.get_context("spawn"), pa.set_cpu_count, (1,)) as pool,
    ):
        table = TripsTable.create(cluster, write_files(folder / "in", rows, segments), replicas=1)

        def ours() -> float:
            table.resort()
            took = timed(lambda: table.refresh(spark))
            table.await_served(table.config.hash)
            return took

        def theirs() -> float:
            # By the columns in turn as well: how long sorting takes depends on them.
            column, config = next(table.sorts), table.config
            options = {**parquet_options(config, _SEGMENT_ROWS), "row_group_size": config.row_group_rows}
            work = partial(_plainly, target=emptied(folder / "plain"), column=column, options=options)
            return timed(lambda: list(pool.map(work, table.paths())))

        ours()
        seconds = take_turns({"refresh": ours, "plain pyarrow": theirs}, repeats)
        size_bytes = sum(path.stat().st_size for path in table.paths())
    figures = {"segments": segments, "columns": len(COLUMNS), "cores": _cores(), "bytes": size_bytes}
    return Measured(rows, seconds, figures=figures)


def _plainly(path: Path, target: Path, column: str, options: dict[str, Any]) -> None:
    """Read, sort and write one file, with the same row groups, encodings and indexes."""
    table = pq.read_table(path, use_threads=False)
    order = pc.sort_indices(table, sort_keys=[(column, "ascending")])
    names = table.column_names
    sorting = [pq.SortingColumn(names.index(column))]
    pq.write_table(table.take(order), target / path.name, **{**options, "sorting_columns": sorting})


def run_reload(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure the processor's seconds with tables of so many rows and three replicas."""
    with spark_session(f"local[{_cores()}]", {}) as started, structlog.testing.capture_logs():
        spark = session_for_queries(started)
        return [_reload(folder / str(size), spark, size, repeats) for size in sizes]


def _reload(folder: Path, spark: SparkSession, rows: int, repeats: Repeats) -> Measured:
    with running_cluster(folder, None, nodes=_REPLICAS) as cluster:
        table = TripsTable.create(cluster, write_files(folder / "in", rows, _SEGMENTS), replicas=_REPLICAS)
        # The cluster, this process, and all below them.
        servers = [psutil.Process(pid) for pid in Home(folder / "home").running().pids.values()]
        used = ProcessorTime([*servers, psutil.Process()])

        def refresh() -> float:
            before = used.seconds()
            table.resort()
            table.refresh(spark)
            table.await_served(table.config.hash)
            return used.seconds() - before

        def reload() -> float:
            before = used.seconds()
            table.resort()
            table.cluster.controller.reload_table(table.name, ReloadTable())
            table.await_served(table.config.hash)
            return used.seconds() - before

        with used.counted():
            refresh()
            seconds = take_turns({"refresh once, download": refresh, "every node rebuilds": reload}, repeats)
    return Measured(rows, seconds, figures={"segments": _SEGMENTS, "replicas": _REPLICAS, "seconds_of": "processor"})


def _cores() -> int:
    return len(os.sched_getaffinity(0))


BENCHES = (
    Bench(
        "refresh",
        "a refresh that sorts segments by another column, and plain pyarrow: read, sort, write",
        "rows",
        (2_000_000, 4_000_000, 8_000_000),
        (2_000,),
        (times_as_fast("refresh ÷ plain pyarrow", "refresh", "plain pyarrow", 0.8),),
        run_refresh,
        SEED,
    ),
    Bench(
        "refresh-vs-reload",
        "three replicas: every node makes its copies again, and one refresh that all download; processor seconds",
        "rows",
        (1_000_000, 2_000_000, 4_000_000),
        (2_000,),
        (times_as_fast("reload ÷ refresh", "refresh once, download", "every node rebuilds", 2.0),),
        run_reload,
        SEED,
    ),
)
