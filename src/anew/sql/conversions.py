"""Conversions of stored columns inside of a query, by the one cast that a refresh uses too (`core.tables.casts`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from duckdb.func import ARROW, SPECIAL

from anew.core.errors import Failed
from anew.core.tables.arrays import all_null, whole
from anew.core.tables.casts import cast_column
from anew.core.tables.columns import Column
from anew.sql.instance import Connection

_WIDER = frozenset(
    {("smallint", "integer"), ("smallint", "bigint"), ("integer", "bigint"), ("real", "double")},
)
"""From → to: where DuckDB's own cast gives the same value for every value, and lets filters reach the scan."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A column of a table, and the canonical type in which some of its files hold it."""

    table: str
    column: Column
    held: str


class Conversions:
    """The conversions that the views of one instance need, as functions of it; for one thread at a time.

    A function that meets a value that does not fit keeps what the cast said: of an error inside of a function DuckDB
    passes on nothing but the text.
    """

    def __init__(self, connection: Connection) -> None:
        """Nothing is needed yet."""
        self._connection = connection
        self._names: dict[Conversion, str] = {}
        self._misfits: list[tuple[Conversion, Failed]] = []

    def expression(self, stored: str, conversion: Conversion) -> str:
        """What gives the wanted values of a stored column; ``stored`` is an expression of the type that is held."""
        column = conversion.column
        if conversion.held == column.type or (conversion.held, column.type) in _WIDER:
            return f"CAST({stored} AS {column.type})"
        return f"{self._function(conversion, cast_column)}({stored})"

    def without_nulls(self, value: str, conversion: Conversion) -> str:
        """What gives the values of a column that may have no null and has no default: a null ends the query."""
        wanted = Conversion(conversion.table, conversion.column, conversion.column.type)
        return f"{self._function(wanted, _refuse_nulls)}({value})"

    def forget(self) -> None:
        """Forget what an earlier query met."""
        self._misfits.clear()

    def met(self) -> tuple[Conversion, Failed] | None:
        """What does not fit, if that is what ended a query."""
        return self._misfits[0] if self._misfits else None

    def _function(self, conversion: Conversion, convert: Callable[[Any, Column], Any]) -> str:
        known = self._names.get(conversion)
        if known is not None:
            return known
        name, column, misfits = f"anew_as_wanted_{len(self._names)}", conversion.column, self._misfits

        def function(values: Any) -> Any:
            # The first row of a result set may have no rows: a cast of nothing says nothing about types.
            if len(values) == 0:
                return all_null(0, column.arrow_type)
            try:
                return convert(whole(values), column)
            except Failed as error:
                misfits.append((conversion, error))
                raise

        self._connection.create_function(
            name, function, [conversion.held], column.type, type=ARROW, null_handling=SPECIAL
        )
        self._names[conversion] = name
        return name


def _refuse_nulls(values: Any, column: Column) -> Any:
    if not values.null_count:
        return values
    raise Failed(
        "null_value",
        f"the column {column.name} has a null and may have none",
        expected=column.type,
        hint="give the column a default",
    )
