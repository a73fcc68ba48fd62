"""Fit columns, of text or typed, to a schema: all rows at once, and row by row only where something did not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anew.codec.arrow_types import arrow_value, column_nodes
from anew.codec.avro import native_schema, write_checked
from anew.codec.carried import carried_schema, columns_schema, takes_null
from anew.codec.converting import Convert, converter, shown_value
from anew.codec.datum import default_compiler
from anew.codec.kernels import Column, pc
from anew.codec.misfit import nearest_name
from anew.codec.nodes import kind, resolve, type_name
from anew.codec.schema import AvroSchema
from anew.core.errors import InvalidRequest


@dataclass(frozen=True)
class Misfit:
    """One value that does not fit its field.

    Attributes:
        row: Index in the batch that was given, counted from 0.
        column: The column's name.
        found: The value in words.
        expected: The field's type in words.
    """

    row: int
    column: str
    found: str
    expected: str


@dataclass(frozen=True)
class Cast:
    """What became of a batch.

    Attributes:
        batch: The rows that fit, with the columns of ``arrow_schema`` in the schema's order.
        misfits: All values that do not fit, by row and then by column.
        kept: Boolean array over the rows given: true where the row is in ``batch``.
    """

    batch: pa.RecordBatch
    misfits: list[Misfit]
    kept: Column


def cast_columns(schema: AvroSchema, batch: pa.RecordBatch) -> Cast:
    """Cast each column of a record schema to its field's Arrow type; rows that do not fit are left out and told.

    Text is read as: numbers; ``true``/``false``; ISO-8601 instants with ``Z``, an offset, or neither (UTC), with
    ``T`` or a space; ISO dates and times; base64 for bytes and fixed; JSON for arrays, maps and records. What
    stands for a null (an empty field, ``NA``) is null already. Typed values are cast where nothing is lost, and to
    text as JSON shows them. Other columns than the schema's are left out. A column without an Arrow type is carried as
    Avro bodies (`anew.codec.carried`). Text that is not UTF-8, and times outside of the years 1 to 9999, do not fit.

    Raises:
        InvalidRequest: ``missing_column``, unless the field has a default; ``column_type``, where no value of
            the column could fit.
    """
    target = columns_schema(schema)
    row_count = batch.num_rows
    kept = np.ones(row_count, dtype=np.bool_)
    columns: list[Column] = []
    misfits: list[tuple[int, int, Misfit]] = []
    for place, (name, node) in enumerate(column_nodes(schema).items()):
        arrow_field = target.field(name)
        if name not in batch.schema.names:
            columns.append(_default_column(schema, batch, arrow_field))
            continue
        column = batch.column(batch.schema.names.index(name))
        fitted, bad_rows = _fit(
            column, converter(batch.schema.field(name), node, schema.named, arrow_field), arrow_field
        )
        columns.append(fitted)
        if not takes_null(node, schema.named) and column.null_count:
            bad_rows = np.union1d(bad_rows, np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False)))
        kept[bad_rows] = False
        expected = type_name(node, schema.named)
        for row in bad_rows.tolist():
            misfits.append(
                (row, place, Misfit(row, name, shown_value(column, batch.schema.field(name), row), expected))
            )
    misfits.sort(key=lambda entry: entry[:2])
    mask = pa.array(kept)
    if misfits:
        columns = [column.filter(mask) for column in columns]
    fitting = pa.RecordBatch.from_arrays(columns, schema=target)
    return Cast(fitting, [misfit for _, _, misfit in misfits], mask)


def _fit(column: Column, convert: Convert, target: pa.Field[Any]) -> tuple[Column, Any]:
    """The converted column, and the rows that do not fit (null there).

    The whole column at once; where that fails, halves of it, down to the single values that do not fit.
    """
    pieces: list[Column] = []
    bad_rows: list[int] = []
    stack = [(0, len(column))]
    while stack:
        start, count = stack.pop()
        part = column.slice(start, count)
        try:
            pieces.append(convert(part))
        except (ValueError, OverflowError):
            if count == 1:
                bad_rows.append(start)
                pieces.append(pa.nulls(1, target.type))
            else:
                half = count // 2
                # The first half is looked at first: the pieces stay in order.
                stack.append((start + half, count - half))
                stack.append((start, half))
    fitted = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    return fitted, np.array(bad_rows, dtype=np.int64)


def _default_column(schema: AvroSchema, batch: pa.RecordBatch, arrow_field: pa.Field[Any]) -> Column:
    root = resolve(schema.root, schema.named)
    if kind(root) == "record":
        column = next(column for column in root["fields"] if column["name"] == arrow_field.name)
        if "default" in column:
            datum = default_compiler(schema.named).compile(column["type"])(column["default"])
            own = carried_schema(arrow_field)
            if own is not None:
                value: Any = write_checked(native_schema(own), datum)
            else:
                value = arrow_value(datum, column["type"], schema.named)
            return pa.array([value] * batch.num_rows, arrow_field.type)
    available = batch.schema.names
    raise InvalidRequest(
        "missing_column",
        f"the column {arrow_field.name} is missing and its field has no default",
        found=f"columns {', '.join(available)}",
        expected=f"a column {arrow_field.name}",
        hint=nearest_name(arrow_field.name, available),
    )
