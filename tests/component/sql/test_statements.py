"""Which statements run as queries, which tables they read, and what they demand of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from anew.core.errors import InvalidRequest
from anew.sql.predicates import Predicate
from anew.sql.statements import check_query


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1;", set()),
        ("FROM t", {"t"}),
        ("TABLE t", {"t"}),
        ("VALUES (1), (2)", set()),
        ("SELECT * FROM main.t JOIN u USING (a) LEFT JOIN v ON true", {"t", "u", "v"}),
        (
            "SELECT a, (SELECT max(b) FROM u) FROM t WHERE a IN (SELECT a FROM v) ORDER BY (SELECT 1 FROM w)",
            set("tuvw"),
        ),
        ("SELECT 1 FROM t UNION ALL (SELECT 2 FROM u EXCEPT SELECT 3 FROM v)", set("tuv")),
        ("WITH q AS (SELECT * FROM t) SELECT * FROM q", {"t"}),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", {"t"}),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a, b", {"b"}),
        ("SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t), t", {"t"}),
        ("WITH RECURSIVE r AS (SELECT 1 a UNION ALL SELECT a + 1 FROM r) SELECT * FROM r LIMIT 3", set()),
        ("SELECT * FROM t, range(3), generate_series(1, 2), unnest([1, 2])", {"t"}),
        ("SELECT sum(a) OVER (PARTITION BY b ORDER BY c DESC) FROM t QUALIFY true ORDER BY 1 DESC NULLS LAST", {"t"}),
        ("SELECT DISTINCT ON (a) * EXCLUDE (b) FROM t GROUP BY ALL HAVING true ORDER BY ALL LIMIT 10%", {"t"}),
        ("UNPIVOT t ON a, b INTO NAME n VALUE v", {"t"}),
    ],
)
def test_a_select_names_its_tables(sql: str, tables: set[str]) -> None:
    """Every table that no WITH defines is named, wherever it stands."""
    query = check_query(sql)
    assert query.tables == tables
    assert not query.explain


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELEC 1",
        "SELECT 1; SELECT 2",
        "COPY t TO 'x'",
        "COPY t TO 'x' (FORMAT parquet, USE_TMP_FILE false)",
        "EXPLAIN COPY t TO 'x' (USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY t TO 'x' (USE_TMP_FILE false)",
        "EXPLAIN ANALYZE SELECT 1",
        "/* x */ explain -- y\n (analyze) SELECT 1",
        "EXPLAIN EXPLAIN SELECT 1",
        "ATTACH 'x'",
        "DETACH x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA version",
        "SET threads = 1",
        "RESET threads",
        "USE x",
        "CALL range(3)",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "DROP TABLE t",
        "EXPORT DATABASE 'x'",
        "CHECKPOINT",
        "PREPARE x AS SELECT 1",
        "WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x",
        "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
        "DESCRIBE t",
        "SELECT * FROM (SUMMARIZE t)",
        "SHOW TABLES",
        "PIVOT t ON a USING sum(b)",
        "SELECT ?",
        "SELECT * FROM 'x.parquet'",
        'SELECT * FROM "/etc/passwd"',
        "SELECT * FROM 's3://x/y'",
        "SELECT * FROM read_parquet('x')",
        "SELECT * FROM READ_CSV('x')",
        "SELECT * FROM parquet_scan('x')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM pragma_table_info('t')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('t')",
        "SELECT * FROM json_execute_serialized_sql('x')",
        "SELECT * FROM duckdb_views",
        "SELECT * FROM main.duckdb_tables",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_tables",
        "SELECT * FROM other.main.t",
        "SELECT (SELECT sum(a) FROM read_csv('x'))",
        "WITH q AS (FROM read_csv('x')) SELECT 1",
        "SELECT getenv('HOME')",
        "SELECT current_setting('threads')",
        "SELECT 1 ORDER BY getvariable('x')",
        "SELECT pg_get_viewdef(1)",
        "SELECT nextval('s')",
        "SELECT " + "(" * 3_000 + "1" + ")" * 3_000,
    ],
)
def test_everything_else_is_refused(sql: str) -> None:
    """What is not one SELECT over tables, or reaches outside of them, is `not_a_query`."""
    with pytest.raises(InvalidRequest) as refused:
        check_query(sql)
    assert refused.value.code == "not_a_query"


def test_explain_is_seen_and_taken_away() -> None:
    """EXPLAIN of a SELECT asks for its plan; the word elsewhere is a name."""
    query = check_query("-- why?\n EXPLAIN /* slow */ SELECT a FROM t")
    assert query.explain
    assert query.text.strip() == "/* slow */ SELECT a FROM t"
    assert query.tables == {"t"}
    assert not check_query("SELECT 1 AS explain").explain


def test_predicates_are_the_comparisons_that_every_row_meets() -> None:
    """Comparisons of columns with literals at the top of WHERE are told, whichever side the column is on."""
    query = check_query(
        "SELECT * FROM t WHERE a = 1 AND (5 > b AND c IN ('x', 'y')) AND d BETWEEN DATE '2013-01-01' AND '2014-01-01'"
        " AND e >= TIMESTAMP '2013-01-01 10:00' AND f < -1.5 AND g <> 3 AND (h = 1 OR i = 2) AND j IN (1, NULL)"
        " AND k = 1e3 AND l = true AND NOT m = 1 AND n = o AND p + 1 = 2"
    )
    assert query.predicates["t"] == (
        Predicate("a", "=", (1,)),
        Predicate("b", "<", (5,)),
        Predicate("c", "in", ("x", "y")),
        Predicate("d", ">=", (dt.date(2013, 1, 1),)),
        Predicate("d", "<=", ("2014-01-01",)),
        Predicate("e", ">=", (dt.datetime.fromisoformat("2013-01-01T10:00"),)),
        Predicate("f", "<", (Decimal("-1.5"),)),
        Predicate("k", "=", (1000.0,)),
        Predicate("l", "=", (True,)),
    )


@pytest.mark.parametrize(
    ("sql", "pruned"),
    [
        ("SELECT * FROM t AS one WHERE one.a = 1", {"t"}),
        ("SELECT * FROM t JOIN u ON t.k = u.k WHERE t.a = 1 AND u.a = 2", {"t", "u"}),
        ("SELECT * FROM t, u WHERE t.a = 1 AND a = 2", {"t"}),
        ("SELECT * FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a = 1)", {"t"}),
        ("WITH q AS (SELECT * FROM t WHERE a = 1) SELECT * FROM q one, q two", {"t"}),
        ("SELECT * FROM t JOIN u ON true WHERE a = 1", set()),
        ("SELECT * FROM u LEFT JOIN t ON true WHERE t.a = 1", set()),
        ("SELECT * FROM u ANTI JOIN t ON true WHERE u.a = 1", set()),
        ("SELECT * FROM t POSITIONAL JOIN u WHERE t.a = 1", set()),
        ("SELECT * FROM t ASOF JOIN u ON t.a >= u.a WHERE t.a = 1", set()),
        ("SELECT * FROM t one, t two WHERE one.a = 1", set()),
        ("SELECT * FROM t WHERE a = 1 UNION ALL SELECT * FROM T", set()),
        ("SELECT b AS a FROM t WHERE a = 1", set()),
        ("SELECT * FROM t AS one(a, b) WHERE a = 1", set()),
        ("SELECT * FROM t TABLESAMPLE 10% WHERE a = 1", set()),
        ("SELECT * FROM t WHERE a = 1 USING SAMPLE 3", set()),
        ("WITH t AS (SELECT 1 AS a) SELECT * FROM t WHERE a = 1", set()),
        ("SELECT a FROM t GROUP BY a HAVING a = 1", set()),
    ],
)
def test_predicates_are_told_only_where_they_are_safe(sql: str, pruned: set[str]) -> None:
    """A table that is read twice, kept by an outer join, sampled or renamed has no predicates."""
    assert check_query(sql).predicates.keys() == pruned
