"""Derived columns and row filters, computed by DuckDB over Arrow tables: row by row, in the order of the rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anew.core.errors import Failed
from anew.core.tables.columns import Column, type_name
from anew.core.tables.config import SegmentConfig
from anew.sql.expressions import derived_order, used_columns
from anew.sql.instance import Connection, Fault, first_line, quoted, select, session

_INTEGERS = ("smallint", "integer", "bigint")


def derive(table: pa.Table, config: SegmentConfig) -> pa.Table:
    """The table with all derived columns computed anew, in the place of columns of their names or at the end.

    Raises:
        InvalidRequest: The expressions are not right, see `check_expressions`.
        Failed: ``expression_failed``, with what DuckDB says; ``bad_value``: a result does not fit its column's type.
    """
    known = config.by_name
    for name in derived_order(config):
        needed = used_columns(config.derived[name], known)
        missing = next((column.name for column in needed if column.name not in table.column_names), None)
        if missing is not None:
            raise _failed(name, f"the rows have no column {missing}")
        values = _computed(table.select([c.name for c in needed]), needed, known[name], config.derived[name])
        place = table.schema.get_field_index(name)
        field = pa.field(name, known[name].arrow_type, known[name].nullable)
        table = table.append_column(field, values) if place < 0 else table.set_column(place, field, values)
    return table


def matching(table: pa.Table, condition: str) -> pa.ChunkedArray[Any]:
    """Which rows meet a condition, as booleans without nulls: where it is null, they do not.

    Raises:
        InvalidRequest: ``bad_expression``, ``unknown_column``.
        Failed: ``expression_failed``.
    """
    columns = {name: Column(name=name, type=kind) for name, kind in _types(table).items()}
    needed = used_columns(condition, columns)
    source = _source(needed)
    sql = select(f"COALESCE(({condition}\n), false) AS met", source)
    (met,) = _run(table.select([c.name for c in needed]), "the condition", sql)
    return met


def _types(table: pa.Table) -> dict[str, str]:
    found = ((field.name, type_name(field.type)) for field in table.schema)
    return {name: kind for name, kind in found if kind is not None}


def _source(needed: tuple[Column, ...]) -> str:
    """The needed columns in their own types, however Arrow holds them; casts to the same type cost nothing."""
    row = ", ".join(f"CAST({quoted(c.name)} AS {c.type}) AS {quoted(c.name)}" for c in needed)
    return "(" + select(row or "rows_only", "rows_given") + ")"


def _computed(table: pa.Table, needed: tuple[Column, ...], column: Column, expression: str) -> pa.ChunkedArray[Any]:
    # On a line of its own: an expression may end with a comment.
    source = "(" + select(f"({expression}\n) AS value", _source(needed)) + ")"
    cast = f"TRY_CAST(value AS {column.type})"
    # DuckDB rounds a fraction that becomes an integer; that loses something, so it does not convert.
    lost = f"TRY_CAST(value AS DOUBLE) IS DISTINCT FROM CAST({cast} AS DOUBLE)" if column.type in _INTEGERS else "false"
    bad = f"value IS NOT NULL AND ({cast} IS NULL OR {lost})"
    values, wrong = _run(table, column.name, select(f"{cast} AS cast_value, {bad} AS wrong", source))
    assert len(values) == table.num_rows
    row = pc.index(wrong, pa.scalar(value=True)).as_py()
    if row >= 0:
        found = _run(table, column.name, select("CAST(value AS VARCHAR)", f"{source} LIMIT 1 OFFSET {row}"))[0]
        raise Failed(
            "bad_value",
            f"the derived column {column.name} has a value that does not fit its type",
            found=f"{found[0].as_py()} in row {row}",
            expected=column.type,
            hint=f"change the expression {expression}, or the column's type",
        )
    return values if values.type == column.arrow_type else values.cast(column.arrow_type)


def _run(table: pa.Table, what: str, sql: str) -> list[pa.ChunkedArray[Any]]:
    """The columns of a statement's answer over ``rows_given``: one row for each row, in their order."""
    given = table if table.num_columns else pa.table({"rows_only": pa.nulls(table.num_rows, pa.bool_())})
    connection = session()
    try:
        answer = _answer(connection, given, sql)
    except (Fault, pa.ArrowException) as error:
        raise _failed(what, first_line(error)) from None
    finally:
        connection.close()
    return answer.columns


def _answer(connection: Connection, given: pa.Table, sql: str) -> pa.Table:
    connection.register("rows_given", given)
    answer: pa.Table = connection.sql(sql).to_arrow_table()
    return answer


def _failed(what: str, reason: str) -> Failed:
    return Failed(
        "expression_failed",
        f"an expression could not be computed: {what}",
        found=reason,
        expected="an expression that works on every row",
        hint="use TRY_CAST or CASE for rows that it does not fit",
    )
