"""Ten queries over a table of trips: asked of a node, and of DuckDB directly over the same Parquet files.

The node's answer is the whole of it: HTTP, the check of the statement, pruning by the catalog's statistics, the sandbox
process, an Arrow stream back. The selective ones name a few days of the year, so that most segments are pruned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import structlog.testing

from anew.spark.session import session_for_queries, spark_session
from bench.measuring import Bench, Measured, Repeats, take_turns, timed, times_as_fast
from bench.rebuilding import running_cluster
from bench.synthetic import SEED
from bench.trips import COLUMNS, TABLE, TripsTable, write_files

_SEGMENTS, _SEGMENT_ROWS = 120, 4_000
_THREADS = 2
_ALL = (
    "SELECT count(*) FROM {t}",
    "SELECT carrier, count(*) AS n, avg(dep_delay) AS d FROM {t} GROUP BY carrier ORDER BY carrier",
    "SELECT origin, hour, avg(arr_delay) AS d FROM {t} GROUP BY origin, hour ORDER BY origin, hour",
    "SELECT dest, sum(distance)::BIGINT AS s FROM {t} WHERE air_time > 300"
    " GROUP BY dest ORDER BY s DESC, dest LIMIT 10",
    "SELECT date_trunc('month', left_at) AS m, count(*) AS n FROM {t} WHERE dep_delay > 60 GROUP BY m ORDER BY m",
    "SELECT tail, count(*) AS n, max(arr_delay) AS w FROM {t} GROUP BY tail ORDER BY n DESC, tail LIMIT 20",
    "SELECT quantile_disc(arr_delay, 0.9) AS q FROM {t} WHERE origin = 'O0001'",
)
_SELECTIVE = (
    "SELECT carrier, count(*) AS n FROM {t} WHERE left_at >= '2013-03-03' AND left_at < '2013-03-05'"
    " GROUP BY carrier ORDER BY carrier",
    "SELECT dest, avg(dep_delay) AS d FROM {t} WHERE left_at BETWEEN '2013-07-10' AND '2013-07-12'"
    " GROUP BY dest ORDER BY dest",
    "SELECT count(*), min(id), max(id) FROM {t} WHERE id BETWEEN 1000 AND 1999",
)
_AT_LEAST_SECONDS = 0.5
"""A side asks all its questions again until so much time is over: the short ones want more than one look."""


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with tables of so many rows, in a segment for every three days."""
    with spark_session(f"local[{_THREADS}]", {}) as started, structlog.testing.capture_logs():
        spark = session_for_queries(started)
        found = []
        for size in sizes:
            with running_cluster(folder / str(size), None) as cluster:
                files = write_files(folder / str(size) / "in", size, _segments(size))
                table = TripsTable.create(cluster, files, replicas=1, row_group_rows=100_000)
                table.resort()
                table.refresh(spark)
                table.await_served(table.config.hash)
                found.append(_measure(table, size, repeats))
        return found


def _measure(table: TripsTable, rows: int, repeats: Repeats) -> Measured:
    files = ", ".join(f"'{path}'" for path in table.paths())
    connection = duckdb.connect(config={"threads": _THREADS})
    connection.execute(f"CREATE VIEW {TABLE} AS SELECT * FROM read_parquet([{files}])")

    def ours(sql: str) -> pa.Table:
        found: pa.Table = table.cluster.query(sql).table
        return found

    def theirs(sql: str) -> pa.Table:
        answer: Any = connection.sql(sql)
        found: pa.Table = answer.to_arrow_table()
        return found

    def asks(questions: Sequence[str], ask: Callable[[str], pa.Table]) -> Callable[[], float]:
        return lambda: _asked(questions, ask)

    for question in (*_ALL, *_SELECTIVE):
        sql = question.format(t=TABLE)
        if _rounded(ours(sql)) != _rounded(theirs(sql)):
            raise AssertionError(f"{sql}: {_rounded(ours(sql))} for {_rounded(theirs(sql))}")
    sides = {
        "ten on a node": asks((*_ALL, *_SELECTIVE), ours),
        "ten in DuckDB": asks((*_ALL, *_SELECTIVE), theirs),
        "selective on a node": asks(_SELECTIVE, ours),
        "selective in DuckDB": asks(_SELECTIVE, theirs),
    }
    seconds = take_turns(sides, repeats)
    connection.close()
    return Measured(rows, seconds, figures={"segments": _segments(rows), "columns": len(COLUMNS), "threads": _THREADS})


def _segments(rows: int) -> int:
    return min(_SEGMENTS, rows // _SEGMENT_ROWS)


def _asked(questions: Sequence[str], ask: Callable[[str], pa.Table]) -> float:
    """The seconds of one round of the questions, over as many rounds as take long enough."""

    def each() -> None:
        for question in questions:
            ask(question.format(t=TABLE))

    rounds, began = 0, time.perf_counter()
    while time.perf_counter() - began < _AT_LEAST_SECONDS or not rounds:
        timed(each)
        rounds += 1
    return (time.perf_counter() - began) / rounds


def _rounded(table: pa.Table) -> list[list[object]]:
    """The columns of an answer; an average is the sum of its parts in any order."""
    columns: list[list[object]] = [column.to_pylist() for column in table.columns]
    return [[round(value, 6) if isinstance(value, float) else value for value in column] for column in columns]


BENCHES = (
    Bench(
        "query",
        "ten queries over 120 segments: a node, and DuckDB directly over the same files",
        "rows",
        (1_000_000, 4_000_000, 12_000_000),
        (12_000,),
        (
            times_as_fast("ten queries: a node ÷ DuckDB", "ten on a node", "ten in DuckDB", 0.8),
            times_as_fast("selective ones, with pruning", "selective on a node", "selective in DuckDB", 1.0),
        ),
        run,
        SEED,
    ),
)
