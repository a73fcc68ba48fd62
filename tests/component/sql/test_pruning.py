"""Segments that are left out hold no row that a query asks for."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anew.core.tables.columns import arrow_type
from anew.core.tables.segment import ColumnStats
from anew.sql.predicates import Predicate
from anew.sql.pruning import may_match
from anew.sql.statements import check_query

WANTED = {
    "s": "smallint",
    "i": "integer",
    "n": "bigint",
    "r": "real",
    "f": "double",
    "c": "decimal(10,2)",
    "t": "varchar",
    "d": "date",
    "ts": "timestamp",
    "flag": "boolean",
}
_EPOCH = dt.date(2013, 1, 1)


def _json(value: Any) -> Any:
    """A value as the catalog keeps it."""
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, dt.date) else value


def _stats(name: str, values: pa.ChunkedArray[Any]) -> ColumnStats:
    least, greatest = _json(pc.min(values).as_py()), _json(pc.max(values).as_py())
    return ColumnStats(type=WANTED[name], nulls=values.null_count, least=least, greatest=greatest, fingerprint=0)


def _value(name: str, chance: random.Random) -> Any:
    number = chance.choice((chance.randint(-5, 5), chance.randint(-5, 5), 2**53 + 1 if name == "n" else 7))
    match name:
        case "r" | "f":
            return number / 10
        case "c":
            return Decimal(number) / 4
        case "t":
            return chance.choice("abcäß𝄞") + str(number)
        case "d":
            return _EPOCH + dt.timedelta(number)
        case "ts":
            return dt.datetime.combine(_EPOCH, dt.time()) + dt.timedelta(hours=8 * number)
        case "flag":
            return number > 0
    return number


def _rows(chance: random.Random) -> pa.Table:
    """A few rows, so that their bounds are narrow and literals fall on and around them."""
    size = chance.randint(1, 3)
    return pa.table(
        {
            name: pa.array(
                [None if chance.random() < 0.2 else _value(name, chance) for _ in range(size)], arrow_type(kind)
            )
            for name, kind in WANTED.items()
        }
    )


def _literal(name: str, chance: random.Random) -> str:
    value = _value(name, chance)
    match name:
        case "t":
            return f"'{value}'"
        case "flag":
            return str(value)
        case "d" | "ts":
            text = value.isoformat(" ") if name == "ts" else value.isoformat()
            day = text[:10]
            return chance.choice((f"'{text}'", f"DATE '{day}'", f"TIMESTAMP '{day} 08:00'", f"CAST('{day}' AS DATE)"))
    if name == "c":
        value = float(value)
    return chance.choice((str(value), f"{value}e0", f"{float(value):.3f}", str(int(value))))


def _condition(chance: random.Random) -> str:
    name = chance.choice(tuple(WANTED))
    literals = [_literal(name, chance) for _ in range(3)]
    operator = chance.choice(("=", "<", "<=", ">", ">=", "IN", "BETWEEN", "turned"))
    match operator:
        case "IN":
            return f"{name} IN ({', '.join(literals)})"
        case "BETWEEN":
            return f"{name.upper()} BETWEEN {literals[0]} AND {literals[1]}"
        case "turned":
            return f"{literals[0]} < {name}"
    return f"{name} {operator} {literals[0]}"


@pytest.mark.parametrize("seed", range(4))
def test_no_row_is_lost(seed: int) -> None:
    """Where DuckDB finds a row, the segment was not left out; and most that hold none are."""
    chance = random.Random(seed)
    connection = duckdb.connect(":memory:", config={"threads": "1"})
    left_out = empty = 0
    for _ in range(250):
        rows = _rows(chance)
        connection.register("t", rows)
        sql = "SELECT count(*) FROM t WHERE " + " AND ".join(_condition(chance) for _ in range(chance.randint(1, 2)))
        ((counted,),) = connection.execute(sql).fetchall()
        stats = {name: _stats(name, rows[name]) for name in WANTED}
        kept = may_match(stats, rows.num_rows, check_query(sql).predicates.get("t", ()), WANTED)
        assert kept or counted == 0, (sql, rows.to_pylist())
        left_out, empty = left_out + (not kept), empty + (counted == 0)
    connection.close()
    assert left_out > empty * 0.4


def _n(**told: Any) -> dict[str, ColumnStats]:
    usual = {"type": "bigint", "nulls": 0, "least": 5, "greatest": 9, "fingerprint": 0}
    return {"n": ColumnStats.model_validate(usual | told)}


@pytest.mark.parametrize(
    ("stats", "value", "verdict"),
    [
        (_n(), 5, "kept"),
        (_n(), 4, "left out"),
        (_n(), 4.9, "left out"),
        (_n(), "4", "kept"),
        (_n(), True, "kept"),
        (_n(least=None, greatest=None, nulls=10), 5, "left out"),
        (_n(type="double", least=None, greatest=None), 5, "kept"),
        (_n(type="integer"), 4, "kept"),
        (_n(type="blob", least="AA==", greatest="AQ=="), "x", "kept"),
        ({}, 5, "kept"),
    ],
)
def test_only_what_is_sure_is_left_out(stats: dict[str, ColumnStats], value: Any, verdict: str) -> None:
    """Other types, missing columns and missing bounds keep a segment; one that is all null has no row for it."""
    held = next(iter(stats.values()), None)
    wanted = {"n": "bigint" if held is None or held.type == "integer" else held.type}
    assert may_match(stats, 10, (Predicate("N", "=", (value,)),), wanted) is (verdict == "kept")


def test_bounds_that_are_cut_still_hold() -> None:
    """A text's least may be a shorter, smaller one, and its greatest a greater one."""
    stats = {"t": ColumnStats(type="varchar", nulls=0, least="ab", greatest="ac", fingerprint=0)}
    for value, kept in (("abz", True), ("aa", False), ("ad", False)):
        assert may_match(stats, 3, (Predicate("t", "=", (value,)),), {"t": "varchar"}) is kept


def test_a_file_without_rows_matches_nothing() -> None:
    """No rows, no match, whatever is asked."""
    assert not may_match({}, 0, (), {})
    assert may_match({}, 1, (), {})
