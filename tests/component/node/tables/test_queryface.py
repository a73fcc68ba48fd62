"""Queries over HTTP: answers as Arrow and as JSON, refusals with fitting statuses, and nothing is ever changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.api.gate import Gate, Tokens
from anew.api.tables.query_wire import ARROW_TYPE, HEADER_READS, json_rows
from anew.api.tables.segments import SegmentState
from anew.core.grants import Grant, Right, format_grants, token_hash
from anew.node.metrics import TableCollector
from anew.node.tables.queryface import QueryFace
from anew.sql.sandbox import read_answer
from tests.component.node.tables.asking import (
    Asker,
    Between,
    as_rows,
    asker,
    everything,
    query_processes,
    refusal,
)
from tests.component.node.tables.harness import damage, plain_answer, rig, rows, segment, table

pytestmark = pytest.mark.processes

JSON = "application/json"
ALL = "SELECT id, city, fare FROM trips ORDER BY id"


@pytest.fixture(scope="module")
def pool() -> Iterator[Between]:
    """The processes that run queries."""
    with query_processes() as made:
        yield made


@pytest.fixture
def asks(tmp_path: Path, pool: Between) -> Asker:
    """Who asks a node with a table of a segment of its own and one of another node's."""
    node = rig(tmp_path)
    here, there = segment(node.build(rows(0))), segment(node.build(rows(100)), "s1", hosted=False)
    node.settle(table(here, there))
    return asker(node, pool)


def source() -> pa.Table:
    """The rows of the table."""
    return pa.concat_tables([rows(0), rows(100)])


def test_an_answer_as_arrow(asks: Asker) -> None:
    """Unless JSON is asked for the answer is an Arrow stream with the table's types; a header tells what was read."""
    answer = asks.ask(ALL)
    headers = dict(answer.headers)
    assert (answer.status, headers["content-type"]) == (200, ARROW_TYPE)
    found = read_answer(answer.body)
    assert found.schema.types == [pa.int64(), pa.string(), pa.float64()]
    assert as_rows(found) == plain_answer(source(), ALL)
    assert json.loads(headers[HEADER_READS]) == ["trips: 2 of 2 segments read, 0 pruned, 1 not here"]


def test_metrics_tell_of_copies_and_of_queries(asks: Asker) -> None:
    """Copies by state, the rows that the node wrote again by itself, and how queries ended."""
    asks.ask(ALL)
    asks.ask(ALL, JSON)
    asks.ask("SELECT nothing FROM trips")
    found = {
        " ".join([sample.name, *(value for name, value in sample.labels.items() if name != "table_uid")]): sample.value
        for family in TableCollector(asks.node.host, asks.face).collect()
        for sample in family.samples
    }
    copies = {f"anew_segment_copies {state.value}": float(state is SegmentState.SERVING) for state in SegmentState}
    queries = {"anew_queries_total answered": 2.0, "anew_queries_total bad_query": 1.0}
    assert found == {**copies, "anew_segment_rebuilt_rows_total": 0.0, **queries}


def test_an_answer_as_json(asks: Asker) -> None:
    """Columns, rows and what was read; a null is null, and an answer without rows has its columns."""
    answer = asks.ask(ALL, JSON)
    assert (answer.status, dict(answer.headers)["content-type"]) == (200, JSON)
    body = json.loads(answer.body)
    assert body == {
        "columns": ["id", "city", "fare"],
        "rows": [list(row) for row in plain_answer(source(), ALL)],
        "reads": ["trips: 2 of 2 segments read, 0 pruned, 1 not here"],
    }
    assert None in [row[2] for row in body["rows"]]
    empty = json.loads(asks.ask("SELECT id FROM trips WHERE id < 0", JSON).body)
    assert (empty["columns"], empty["rows"]) == (["id"], [])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("'NaN'::DOUBLE", "nan"),
        ("TIMESTAMP '2024-02-29 01:02:03'", "2024-02-29T01:02:03+00:00"),
        ("DATE '2024-02-29'", "2024-02-29"),
        ("1.50::DECIMAL(10, 2)", "1.50"),
        ("'hi'::BLOB", "aGk="),
        ("sum(170141183460469231731687303715884105727)", 170141183460469231731687303715884105727),
        ("[DATE '2024-02-29', NULL]", ["2024-02-29", None]),
        ("{'a': 1, 'b': 'x'::BLOB}", {"a": 1, "b": "eA=="}),
    ],
)
def test_values_in_json(asks: Asker, value: str, shown: object) -> None:
    """What JSON has no type for comes as the text that the documentation names."""
    answer = asks.ask(f"SELECT {value} AS v", JSON)
    assert json.loads(answer.body)["rows"] == [[shown]]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("DATE '20000-01-01'", "+20000-01-01"),
        ("DATE '0044-03-15 (BC)'", "-0043-03-15"),
        ("'infinity'::TIMESTAMP", "infinity"),
        ("'-infinity'::DATE", "-infinity"),
        ("TIMESTAMPTZ '20000-01-01 00:00:00+00'", "+20000-01-01T00:00:00+00:00"),
        ("[TIMESTAMP '20000-01-01', NULL]", ["+20000-01-01T00:00:00+00:00", None]),
        ("{'at': DATE '20000-01-01', 'n': 1}", {"at": "+20000-01-01", "n": 1}),
        ("union_value(a := DATE '20000-01-01')", "+20000-01-01"),
        ("MAP {'a': DATE '20000-01-01'}", [["a", "+20000-01-01"]]),
    ],
)
def test_times_beyond_the_calendar_are_answered(asks: Asker, value: str, shown: object) -> None:
    """A time before the year 1, after 9999 or without an end is a text in JSON, and itself as Arrow."""
    assert json.loads(asks.ask(f"SELECT {value} AS v", JSON).body)["rows"] == [[shown]]
    assert read_answer(asks.ask(f"SELECT {value} AS v").body).num_rows == 1


def test_large_answers_do_not_hold_up_the_readers(asks: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the query nor the making of JSON happens in the thread of the event loop, which all reads share."""
    threads: list[threading.Thread] = []

    def noted(found: pa.Table) -> list[list[Any]]:
        threads.append(threading.current_thread())
        return json_rows(found)

    def note() -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr("anew.node.tables.queryface.json_rows", noted)
    asks.pool.then.append(note)
    assert asks.ask(ALL, JSON).status == 200
    assert len(threads) == 2
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("accept", [None, JSON])
def test_explain_over_http(asks: Asker, accept: str | None) -> None:
    """The plan begins with what was pruned, in both forms."""
    answer = asks.ask("EXPLAIN SELECT id FROM trips WHERE id > 120", accept)
    first = json.loads(answer.body)["rows"][0] if accept else list(as_rows(read_answer(answer.body))[0])
    assert first == ["trips: 1 of 2 segments read, 1 pruned, 1 not here; 1 of their 1 row groups may match"]


@pytest.mark.parametrize(
    ("sql", "code", "status"),
    [
        ("SELECT * FROM nosuch", "unknown_table", 404),
        ("SELECT nosuch FROM trips", "bad_query", 422),
        ("", "not_a_query", 422),
        ("SELECT error('late') FROM trips", "bad_query", 422),
    ],
)
def test_a_refusal_has_its_code_and_status(asks: Asker, sql: str, code: str, status: int) -> None:
    """What the asker did wrong is told as such, in the same words for both forms."""
    for accept in (None, JSON):
        answer = asks.ask(sql, accept)
        assert (refusal(answer).code, answer.status) == (code, status)


def test_a_segment_that_is_damaged_is_the_nodes_failure(asks: Asker) -> None:
    """A checksum that is wrong, and a lost file, are failures of the service, not of the query."""
    build = asks.node.host.tables()["trips"].segments[1].build
    damage(asks.node.in_deep_store(build), b"x")
    assert (refusal(asks.ask(ALL)).code, asks.ask(ALL).status) == ("checksum_mismatch", 500)
    asks.node.deep.delete(build.path)
    assert (refusal(asks.ask(ALL)).code, asks.ask(ALL).status) == ("file_missing", 500)


def test_a_request_that_is_no_query(asks: Asker) -> None:
    """Another method, no JSON, no SQL and unknown words are refused before anything runs."""
    asks.pool.then.append(lambda: pytest.fail("it ran"))
    try:
        for body in (b"", b"SELECT 1", b"{}", b'{"sql": 1}', b'{"sql": "SELECT 1", "also": true}', b"\xff"):
            assert (refusal(asks.post(body)).code, asks.post(body).status) == ("bad_request", 422)
        assert refusal(asks.post(b'{"sql": "SELECT 1"}', method="GET")).code == "bad_method"
    finally:
        asks.pool.then.clear()


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)",
        "COPY trips TO '{folder}/new.parquet'",
        "COPY trips FROM '{path}'",
        "EXPLAIN COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)",
        "EXPLAIN ANALYZE SELECT 1",
        "explain /* x */ (analyze) COPY (SELECT 1) TO '{path}' (USE_TMP_FILE false)",
        "ATTACH '{folder}/new.db' AS x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT 1; COPY (SELECT 1) TO '{path}' (USE_TMP_FILE false)",
        "SELECT 1; SELECT 2",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW trips",
        "EXPORT DATABASE '{folder}/dump'",
        "SET temp_directory = '{folder}'",
        "PRAGMA enable_profiling",
        "SELECT * FROM read_parquet('{path}')",
        "SELECT * FROM '{path}'",
        "SELECT content FROM read_text('{folder}/**')",
        "WITH x AS (DELETE FROM trips RETURNING *) SELECT * FROM x",
    ],
)
def test_what_is_not_a_read_changes_nothing(asks: Asker, sql: str) -> None:
    """Whatever writes, attaches, installs, reads files or is two statements is refused; no byte on the disk differs."""
    node = asks.node
    asks.ask(ALL)
    before = everything(node.folder)
    assert len(before) > 3
    text = sql.format(path=node.path(node.host.tables()["trips"]), folder=node.folder)
    for accept in (None, JSON):
        answer = asks.ask(text, accept)
        assert (refusal(answer).code, answer.status) == ("not_a_query", 422)
    assert everything(node.folder) == before
    assert as_rows(read_answer(asks.ask(ALL).body)) == plain_answer(source(), ALL)


def test_a_query_that_never_ends_is_stopped(asks: Asker) -> None:
    """The limit of time ends it, also while it is recursive; nothing is left on the disk, and the next one runs."""
    limited = asks.limited(seconds=0.3, memory_bytes=200_000_000)
    limited.ask(ALL)
    before = everything(asks.node.folder)
    for sql in (
        "SELECT count(*) FROM trips a, range(100000000000) b, range(1000) c",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT (n + 1) % 7 FROM r) SELECT max(n) FROM r",
    ):
        error = refusal(limited.ask(sql, JSON))
        assert error.code == "query_timeout"
    assert limited.rows("SELECT count(*) FROM trips WHERE id < 50") == [(40,)]
    assert everything(asks.node.folder) == before


def test_a_token_opens_its_own_tables_alone(asks: Asker, tmp_path: Path) -> None:
    """With tokens asked for, a query without one, or of a table that it is not for, is refused before it runs."""
    tokens = tmp_path / "tokens.toml"
    grants = [Grant(name, Right.READ, token_hash(name), frozenset({name})) for name in ("trips", "others")]
    tokens.write_text(format_grants(grants), encoding="utf-8")
    tokens.chmod(0o600)
    face = QueryFace(asks.queries, Gate(Tokens(tokens), lambda: 0))
    asks.face = face
    assert asks.ask(ALL, authorization="Bearer trips").status == 200
    asks.pool.then.append(lambda: pytest.fail("it ran"))
    try:
        for authorization, code, status in (
            (None, "token_missing", 401),
            ("Bearer wrong", "token_unknown", 401),
            ("Bearer others", "not_allowed", 403),
        ):
            answer = asks.ask(ALL, authorization=authorization)
            assert (refusal(answer).code, answer.status) == (code, status)
    finally:
        asks.pool.then.clear()
