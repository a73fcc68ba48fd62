"""Queries over segment files that were written with different columns, within limits."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.sql.query import QueryEngine
from anew.sql.views import SegmentFile, TableView
from tests.component.sql.tables import LIMITS, columns, segment

COLUMNS = columns(
    id="bigint",
    name="varchar=nobody",
    score="double=0.5",
    day="date=2013-01-01",
    raw="blob=aGk=",
    price="decimal(10,2)=1.50",
    flag="boolean=",
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[QueryEngine]:
    """A table of an old narrow file, one with a column that is hidden and other types, and a full one; an empty one."""
    old = pa.table({"id": pa.array(range(50_000), pa.int32())})
    other = pa.table({"gone": ["x"], "name": ["other"], "id": pa.array([70_000], pa.int64()), "score": ["2.5"]})
    full = pa.table({c.name: pa.array([c.fill.as_py()], c.arrow_type) for c in COLUMNS}).set_column(
        0, "id", pa.array([80_000], pa.int64())
    )
    files = [segment(tmp_path / f"{n}.parquet", table) for n, table in enumerate((old, other, full, other))]
    views = [TableView("t", COLUMNS, tuple(files)), TableView("nothing", COLUMNS, ())]
    made = QueryEngine(views)
    yield made
    made.close()


def _rows(engine: QueryEngine, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in engine.execute(sql, LIMITS).to_pylist()]


def test_files_are_adapted_while_they_are_read(engine: QueryEngine) -> None:
    """Missing columns have their defaults, others are hidden, other types are converted: the answer has the wanted."""
    answer = engine.execute("SELECT * FROM t WHERE id IN (3, 80000) ORDER BY id", LIMITS)
    assert answer.schema.names == [c.name for c in COLUMNS]
    assert answer.schema.types == [c.arrow_type for c in COLUMNS]
    first, last = answer.to_pylist()
    assert (first | {"id": 80_000}, first["raw"], first["flag"]) == (last, b"hi", None)
    assert _rows(engine, "SELECT name, score FROM t WHERE id = 70000") == [("other", 2.5)] * 2


def test_defaults_answer_in_select_filter_and_order(engine: QueryEngine) -> None:
    """A column that most files lack can be selected, filtered, grouped and ordered by."""
    assert _rows(engine, "SELECT count(*) FROM t WHERE name = 'nobody'") == [(50_001,)]
    assert _rows(engine, "SELECT name FROM t ORDER BY name DESC, id LIMIT 3") == [("other",), ("other",), ("nobody",)]
    assert _rows(engine, "SELECT score, count(*) FROM t GROUP BY score ORDER BY 1") == [(0.5, 50_001), (2.5, 2)]


def test_a_table_without_files_is_empty(engine: QueryEngine) -> None:
    """It has its columns and no rows."""
    answer = engine.execute("SELECT * FROM nothing", LIMITS)
    assert answer.num_rows == 0
    assert answer.schema.types == [c.arrow_type for c in COLUMNS]


def test_a_filter_reaches_the_scan(engine: QueryEngine) -> None:
    """A filter on a column whose type is the wanted one skips row groups, and files that hold only the default."""
    plan = engine.explain("SELECT * FROM t WHERE id = 3 AND name = 'other'", LIMITS)
    assert "Filters" in plan
    assert plan.count("READ_PARQUET") == 1
    assert plan.count("Empty Result") >= 1
    assert "Filters" in engine.execute("EXPLAIN SELECT * FROM t WHERE id > 9", LIMITS)["plan"][0].as_py()


def test_row_groups_are_skipped(tmp_path: Path) -> None:
    """Of many row groups only those are read whose bounds fit, though the view casts and another file lacks columns."""
    file = segment(tmp_path / "a.parquet", pa.table({"id": range(100_000), "name": ["x"] * 100_000}))
    lacks = segment(tmp_path / "b.parquet", pa.table({"id": [1]}))
    engine = QueryEngine([TableView("t", COLUMNS, (file, lacks))])
    told = engine._connection.execute("EXPLAIN ANALYZE SELECT sum(score) FROM t WHERE id = 55555").fetchone()
    engine.close()
    assert told is not None
    assert "Row Groups Scanned: 1 / 10" in told[1]


def test_a_value_that_does_not_convert_is_named(tmp_path: Path) -> None:
    """An old file whose values do not fit the wanted type fails the queries that read it, and says which."""
    file = segment(tmp_path / "a.parquet", pa.table({"id": ["12", "abc"], "name": ["x", "y"]}))
    engine = QueryEngine([TableView("t", COLUMNS, (file,))])
    assert _rows(engine, "SELECT name FROM t ORDER BY 1") == [("x",), ("y",)]
    with pytest.raises(InvalidRequest) as failed:
        engine.execute("SELECT sum(id) FROM t", LIMITS)
    engine.close()
    assert failed.value.code == "bad_query"
    assert "abc" in failed.value.found
    assert "id" in failed.value.found


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM nosuch", "unknown_table"),
        ("SELECT nosuch FROM t", "bad_query"),
        ("SELECT name::INT FROM t", "bad_query"),
        ("SELECT CASE WHEN id > 49000 THEN error('late') ELSE id END FROM t", "bad_query"),
        ("EXPLAIN SELECT nosuch FROM t", "bad_query"),
        ("COPY t TO 'x'", "not_a_query"),
        ("CREATE VIEW v AS SELECT 1", "not_a_query"),
        ("SELECT * FROM '/etc/passwd'", "not_a_query"),
    ],
)
def test_a_query_that_does_not_work_says_why(engine: QueryEngine, sql: str, code: str) -> None:
    """Errors in a query are the asker's, in one line; the engine goes on."""
    with pytest.raises(InvalidRequest) as failed:
        engine.execute(sql, LIMITS)
    assert failed.value.code == code
    assert "\n" not in str(failed.value)
    assert _rows(engine, "SELECT count(*) FROM t") == [(50_003,)]


def test_too_many_rows_are_an_error(engine: QueryEngine) -> None:
    """An answer may have exactly as many rows as the limit says, and an endless one ends at once."""
    assert engine.execute("SELECT * FROM range(5)", dataclasses.replace(LIMITS, rows=5)).num_rows == 5
    for sql in ("SELECT * FROM range(6)", "SELECT range AS a, range AS a FROM range(100000000000)"):
        with pytest.raises(InvalidRequest) as stopped:
            engine.execute(sql, dataclasses.replace(LIMITS, rows=5))
        assert stopped.value.code == "too_many_rows"


def test_an_endless_query_is_interrupted(engine: QueryEngine) -> None:
    """After its time a query is stopped, and the next one runs."""
    started = time.monotonic()
    with pytest.raises(InvalidRequest) as stopped:
        engine.execute(
            "SELECT count(*) FROM range(100000000000) a, range(1000) b", dataclasses.replace(LIMITS, seconds=0.3)
        )
    assert stopped.value.code == "query_timeout"
    assert time.monotonic() - started < 3
    assert _rows(engine, "SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    "sql", ["SELECT list(i) FROM range(100000000) r(i)", "SELECT repeat('x', 1000) FROM range(90000)"]
)
def test_a_greedy_query_is_stopped(engine: QueryEngine, sql: str) -> None:
    """More memory than the limit is an error, in the work as in the answer."""
    with pytest.raises(InvalidRequest) as stopped:
        engine.execute(sql, dataclasses.replace(LIMITS, memory_bytes=50_000_000))
    assert stopped.value.code == "query_out_of_memory"
    assert _rows(engine, "SELECT 1") == [(1,)]


def test_more_than_the_memory_goes_where_it_may(tmp_path: Path) -> None:
    """With a folder for it a large sort ends well, and nothing stays in the folder."""
    sql = (
        "SELECT count(*) FROM (SELECT i::VARCHAR || repeat('x', 100) AS s FROM range(900000) r(i) ORDER BY s OFFSET 1)"
    )
    limits = dataclasses.replace(LIMITS, memory_bytes=60_000_000)
    (tmp_path / "spill").mkdir()
    engine = QueryEngine([], spill_directory=str(tmp_path / "spill"))
    assert _rows(engine, "SELECT 1") == [(1,)]
    assert engine.execute(sql, limits)[0][0].as_py() == 899_999
    engine.close()


def test_the_instance_is_locked(engine: QueryEngine, tmp_path: Path) -> None:
    """Even past the check of statements other files cannot be read, nor settings changed."""
    (tmp_path / "secret.txt").write_text("x")
    for sql in (
        f"SELECT * FROM read_text('{tmp_path}/secret.txt')",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "INSTALL httpfs",
        f"COPY (SELECT 1) TO '{tmp_path}/new.parquet'",
    ):
        with pytest.raises(duckdb.Error):
            engine._connection.execute(sql)


def test_a_file_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    """An engine is not made over files that cannot be read, or whose paths would be patterns."""
    for path, code in ((tmp_path / "no.parquet", "unreadable_segment"), (tmp_path / "a*b", "bad_segment_path")):
        with pytest.raises(AnewError) as failed:
            QueryEngine([TableView("t", COLUMNS, (SegmentFile(str(path), {"id": "bigint"}),))])
        assert isinstance(failed.value, Failed)
        assert failed.value.code == code
