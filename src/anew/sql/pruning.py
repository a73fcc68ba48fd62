"""Which segments may hold rows that a query asks for, told from what the catalog knows of their columns."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from anew.core.tables.segment import ColumnStats
from anew.sql.predicates import DATE, Operator, Predicate, Value, moment

_Bounds = tuple[Any, Any, Any]
"""A literal, the least and the greatest value, as values that compare with one another."""

_MEETS: dict[Operator, Callable[[Any, Any, Any], bool]] = {
    "=": lambda value, least, greatest: least <= value <= greatest,
    "<": lambda value, least, _greatest: least < value,
    "<=": lambda value, least, _greatest: least <= value,
    ">": lambda value, _least, greatest: greatest > value,
    ">=": lambda value, _least, greatest: greatest >= value,
    "in": lambda value, least, greatest: least <= value <= greatest,
}


def may_match(
    columns: Mapping[str, ColumnStats], rows: int, predicates: tuple[Predicate, ...], wanted: Mapping[str, str]
) -> bool:
    """Whether a file may hold a row that meets all predicates; True whenever that is not sure.

    Args:
        columns: What the file holds, by column.
        rows: How many rows the file has.
        predicates: Of the table, see `anew.sql.statements.check_query`.
        wanted: Column → the canonical type in which queries see it. A column that the file holds in another type
            proves nothing: it is cast when it is read, and casts may round.
    """
    if rows == 0:
        return False
    if not predicates:
        return True
    asked = {predicate.column.lower() for predicate in predicates}
    known = {
        lower: stats
        for name, stats in columns.items()
        if (lower := name.lower()) in asked and wanted.get(name) == stats.type
    }
    return all(_may_meet(known.get(p.column.lower()), rows, p) for p in predicates)


def _may_meet(stats: ColumnStats | None, rows: int, predicate: Predicate) -> bool:
    if stats is None:
        return True
    if stats.nulls >= rows:
        return False
    if stats.least is None or stats.greatest is None:
        return True
    meets = _MEETS[predicate.operator]
    return any(_value_may_meet(stats, value, meets) for value in predicate.values)


def _value_may_meet(stats: ColumnStats, value: Value, meets: Callable[[Any, Any, Any], bool]) -> bool:
    views = list(_views(stats, value))
    return not views or any(meets(*view) for view in views)


def _views(stats: ColumnStats, value: Value) -> Iterator[_Bounds]:
    """All ways in which DuckDB may compare the literal with the column; none when it is not known."""
    least, greatest = stats.least, stats.greatest
    match stats.type:
        case "boolean":
            if isinstance(value, bool):
                yield value, least, greatest
        case "varchar":
            if isinstance(value, str):
                # By UTF-8 bytes, as DuckDB does; the order is that of code points.
                yield value, least, greatest
        case "date" | "timestamp":
            if (at := _instant(value, stats.type)) is not None:
                yield at, dt.datetime.fromisoformat(least), dt.datetime.fromisoformat(greatest)
        case "blob":
            return
        case _:
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
                yield from _numbers(stats.type, value, (least, greatest))


def _instant(value: Value, kind: str) -> dt.datetime | None:
    """A literal as a moment; a text is read in the column's own type."""
    if isinstance(value, str):
        if kind == "date" and not DATE.fullmatch(value):
            return None
        found = moment(value, kind)
        return None if found is None else _instant(found, kind)
    if isinstance(value, dt.datetime):
        return value
    return dt.datetime.combine(value, dt.time()) if isinstance(value, dt.date) else None


def _numbers(kind: str, value: int | float | Decimal, bounds: tuple[Any, Any]) -> Iterator[_Bounds]:
    exact = tuple(Decimal(str(bound)) if isinstance(bound, str) else Decimal(bound) for bound in bounds)
    yield Decimal(value), exact[0], exact[1]
    # A comparison that mixes types may be done in doubles, or in floats: rounded, values can become equal.
    try:
        yield float(value), float(exact[0]), float(exact[1])
        if kind == "real":
            yield _single(float(value)), _single(float(exact[0])), _single(float(exact[1]))
    except OverflowError:
        return


def _single(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found
