"""Shaping rows: the rows of an older build, or of a load, become what a configuration wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anew.core.errors import Failed
from anew.core.tables.arrays import Column, Mask, all_null, decoded, mask_of, table_of, whole
from anew.core.tables.casts import cast_column
from anew.core.tables.columns import Column as TableColumn
from anew.core.tables.config import SegmentConfig
from anew.segments.tables.order import is_sorted, sort_order, taken
from anew.sql.evaluate import derive, matching


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rows as a configuration wants them.

    Attributes:
        table: The columns of the configuration in their order, sorted; texts and bytes may be dictionaries of them.
        rows_read: How many there were.
        kept: Which of them met the row filter, shape (rows_read,); None: all.
        filled: The columns that were not there, so that every value is the default.
    """

    table: pa.Table
    rows_read: int
    kept: Mask | None
    filled: frozenset[str]

    @property
    def rows_filtered(self) -> int:
        """How many rows did not meet the row filter."""
        return 0 if self.kept is None else self.rows_read - self.table.num_rows


def shaped(table: pa.Table, config: SegmentConfig, filled: frozenset[str] = frozenset()) -> Shaped:
    """Give rows the columns, the derived values, the filter and the order of a configuration.

    Columns are found by name; what the configuration does not have goes. Changed types are cast, nulls in a column that
    has none become its default, and derived columns are computed again.

    Args:
        table: The rows as they are.
        config: What is wanted.
        filled: The columns that hold nothing but an older default: they get the one wanted.

    Raises:
        Failed: ``bad_value``, ``bad_type``, ``null_value`` (a null, and no default for it), each naming the column and
            the row, counted from 0; what the expressions raise.
    """
    count = table.num_rows
    columns: dict[str, Column] = {}
    absent: set[str] = set()
    for wanted in config.columns:
        if wanted.name in config.derived:
            continue
        if wanted.name not in table.column_names or wanted.name in filled:
            columns[wanted.name] = _default(wanted, count)
            absent.add(wanted.name)
        else:
            columns[wanted.name] = _fitted(whole(table.column(wanted.name)), wanted)
    complete = _derived(columns, config)
    kept = _kept(complete, config, count)
    rows = complete if kept is None else complete.filter(pa.array(kept))
    _check_nulls(rows, config, kept)
    if not is_sorted(rows, config.sort):
        rows = taken(rows, sort_order(rows, config.sort))
    return Shaped(rows, count, kept, frozenset(absent))


def derived_again(table: pa.Table, config: SegmentConfig) -> pa.Table:
    """The derived columns of a configuration, computed from the other columns of a table that has its types.

    Raises:
        Failed: What the expressions raise.
    """
    base = {c.name: whole(table.column(c.name)) for c in config.columns if c.name not in config.derived}
    return _derived(base, config).select(list(config.derived))


def filter_mask(table: pa.Table, condition: str) -> Mask:
    """Which rows meet a condition, shape (n,).

    Raises:
        Failed: What the condition raises.
    """
    return mask_of(matching(table, condition))


def _fitted(column: Column, wanted: TableColumn) -> Column:
    fitting = cast_column(column, wanted)
    if wanted.nullable or wanted.default is None or not fitting.null_count:
        return fitting
    return decoded(fitting).fill_null(wanted.fill)


def _default(wanted: TableColumn, count: int) -> Column:
    fill: Any = wanted.fill
    return all_null(count, wanted.arrow_type) if wanted.default is None else pa.repeat(fill, count)


def _derived(columns: dict[str, Column], config: SegmentConfig) -> pa.Table:
    """All columns of the configuration in their order."""
    table = table_of(columns)
    if not config.derived:
        return table
    computed = derive(table, config)
    by_name = config.by_name
    for name in config.derived:
        columns[name] = _fitted(whole(computed.column(name)), by_name[name])
    return table_of({column.name: columns[column.name] for column in config.columns})


def _kept(table: pa.Table, config: SegmentConfig, count: int) -> Mask | None:
    if config.row_filter is None or count == 0:
        return None
    kept = filter_mask(table, config.row_filter)
    return None if kept.all() else kept


def _check_nulls(table: pa.Table, config: SegmentConfig, kept: Mask | None) -> None:
    for column in config.columns:
        values = table.column(column.name)
        if column.nullable or not values.null_count:
            continue
        row = int(mask_of(values.is_null()).argmax())
        at = row if kept is None else int(kept.nonzero()[0][row])
        raise Failed(
            "null_value",
            f"the column {column.name} has a null and may have none, in row {at}",
            found=None,
            expected=column.type,
            hint="give the column a default",
        )
