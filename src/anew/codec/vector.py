"""Arrow columns to Avro bodies and back, without a Python value per row where the types allow it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anew.codec.arrow_types import arrow_schema, arrow_type, arrow_value, column_nodes, is_plain_kind
from anew.codec.avro import checked_datum, native_schema, read_body, write_checked
from anew.codec.carried import carried_schema
from anew.codec.casting import Cast, Misfit, cast_columns
from anew.codec.kernels import (
    Column,
    Slots,
    branch_slots,
    fixed_slots,
    join,
    numbers,
    pack,
    pc,
    valid_rows,
    varint_slots,
)
from anew.codec.misfit import ValueMisfit, describe, nearest_name
from anew.codec.nodes import Node, kind, nullable_of, plain_node, resolve, type_name
from anew.codec.schema import AvroSchema, parse_schema, schema_of_node
from anew.core.errors import InvalidRequest

__all__ = ["Cast", "Misfit", "arrow_schema", "cast_columns", "decode_table", "encode_table"]

# Rows per step: what numpy makes for them stays in the processor's cache.
_STEP_ROWS = 8192
_STEP_BYTES = 256 * 1024 * 1024
_MAX_OFFSET_32 = 2**31 - 1
_VARINT_BITS = {
    "int": pa.int32(),
    "int-date": pa.int32(),
    "int-time-millis": pa.int32(),
    "long": pa.int64(),
    "long-time-micros": pa.int64(),
    "long-timestamp-millis": pa.int64(),
    "long-timestamp-micros": pa.int64(),
    "long-local-timestamp-millis": pa.int64(),
    "long-local-timestamp-micros": pa.int64(),
}
_VECTORISED = {*_VARINT_BITS, "null", "boolean", "float", "double", "string", "bytes", "enum"}


def encode_table(schema: AvroSchema, table: pa.RecordBatch | pa.Table) -> pa.Array[Any]:
    """The Avro body of each row, byte for byte what fastavro writes for it.

    Args:
        schema: A record schema, whose fields are found by name among the columns; or any other schema, for which
            the table has exactly one column.
        table: Typed columns; a type is converted only where nothing can be lost (int32 to long, a dictionary of
            strings to string). Columns that the schema does not have are left out.

    Returns:
        A binary array; large_binary from 2 GiB on.

    Raises:
        InvalidRequest: ``missing_column``, ``column_count``, ``column_type``, ``null_value`` or ``value_misfit``,
            naming the column and the row (counted from 0).
    """
    columns = _columns_of(schema, table)
    encoder = _Encoder(schema)
    parts: list[Column] = []
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    step_rows = max(1, min(_STEP_ROWS, _STEP_BYTES // row_bytes))
    start_row = 0
    for batch in _steps(table.select(columns), step_rows):
        parts.append(encoder.encode(batch, start_row))
        start_row += batch.num_rows
    if not parts:
        return pa.array([], pa.binary())
    if sum(part.nbytes for part in parts) > _MAX_OFFSET_32:
        parts = [part.cast(pa.large_binary()) for part in parts]
    return pa.concat_arrays(parts)


def decode_table(schema: AvroSchema, bodies: pa.Array[Any]) -> pa.RecordBatch:
    """The typed columns (``arrow_schema``) of Avro bodies.

    Raises:
        InvalidRequest: ``null_value``: a body is null.
        Failed: ``corrupt_value``.
    """
    if bodies.null_count:
        row = pc.index(pc.is_null(bodies), True).as_py()
        raise InvalidRequest("null_value", "a body to decode is null", found=f"null at row {row}", expected="bytes")
    target = arrow_schema(schema)
    native = native_schema(parse_schema(plain_node(schema.root)))
    stored: list[Any] = bodies.to_pylist()
    datums = [read_body(native, body) for body in stored]
    columns = []
    single = kind(resolve(schema.root, schema.named)) != "record"
    for name, node in column_nodes(schema).items():
        values = datums if single else [datum[name] for datum in datums]
        if not is_plain_kind(kind(nullable_of(node, schema.named)[0])):
            values = [arrow_value(value, node, schema.named) for value in values]
        columns.append(pa.array(values, target.field(name).type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _columns_of(schema: AvroSchema, table: pa.RecordBatch | pa.Table) -> list[str]:
    """The names of the columns to encode, in the schema's order."""
    names = list(table.schema.names)
    if kind(resolve(schema.root, schema.named)) != "record":
        if len(names) != 1:
            raise InvalidRequest(
                "column_count",
                f"a value of type {schema.name} is made of one column",
                found=f"{len(names)} columns: {', '.join(names)}",
                expected="exactly one column",
                hint="name the one column, or use a record schema",
            )
        return names
    wanted = list(column_nodes(schema))
    for name in wanted:
        if name not in names:
            raise InvalidRequest(
                "missing_column",
                f"the column {name} is missing",
                found=f"columns {', '.join(names)}",
                expected=f"columns {', '.join(wanted)}",
                hint=nearest_name(name, names),
            )
    return wanted


def _steps(table: pa.RecordBatch | pa.Table, step_rows: int) -> Iterator[pa.RecordBatch]:
    whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    if whole.num_columns == 0:
        # A record without fields: Arrow gives no batches for no columns.
        yield from ([pa.RecordBatch.from_pylist([{}] * whole.num_rows)] if whole.num_rows else [])
        return
    yield from whole.to_batches(max_chunksize=step_rows)


@dataclass
class _Row:
    """The encoding of a step's rows as it grows: finished pieces, and the slots since the last of them."""

    count: int
    pieces: list[Column] = field(default_factory=list)
    slots: list[Slots] = field(default_factory=list)

    def add_piece(self, piece: Column) -> None:
        if self.slots:
            self.pieces.append(pack(self.slots, self.count))
            self.slots = []
        self.pieces.append(piece)

    def finish(self) -> Column:
        if self.slots or not self.pieces:
            self.pieces.append(pack(self.slots, self.count))
        return join(self.pieces)


class _Encoder:
    """Encodes steps of rows under one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._named = schema.named
        self._nodes = list(column_nodes(schema).values())
        self._fallbacks: dict[int, AvroSchema] = {}

    def encode(self, batch: pa.RecordBatch, start_row: int) -> Column:
        """The bodies of a step; ``start_row`` is for errors."""
        row = _Row(batch.num_rows)
        for index, name in enumerate(batch.schema.names):
            column = batch.column(index)
            own = carried_schema(batch.schema.field(index))
            if own is not None and own == self._fallback(index):
                row.add_piece(column)
                continue
            node, null_branch = nullable_of(self._nodes[index], self._named)
            if kind(node) not in _VECTORISED:
                row.add_piece(self._by_row(index, name, column, start_row))
                continue
            if null_branch is None and kind(node) != "null":
                _refuse_null(name, column, start_row, type_name(node, self._named))
            column = _converted(name, column, arrow_type(node, self._named, (name,)))
            valid = None
            if null_branch is not None:
                valid = valid_rows(column)
                everywhere = np.ones(batch.num_rows, dtype=np.bool_)
                row.slots.append(branch_slots(everywhere if valid is None else valid, null_branch))
            self._add(row, column, node, _Place(name, start_row, valid))
        return row.finish()

    def _add(self, row: _Row, column: Column, node: Node, place: _Place) -> None:
        of_kind = kind(node)
        if of_kind in _VARINT_BITS:
            values = numbers(column, _VARINT_BITS[of_kind]).astype(np.int64, copy=False)
            row.slots.append(varint_slots(values).masked(place.valid))
        elif of_kind in ("string", "bytes"):
            lengths = numbers(pc.binary_length(column), pa.int32()).astype(np.int64)
            row.slots.append(varint_slots(lengths).masked(place.valid))
            row.add_piece(column.cast(pa.binary()))
        elif of_kind == "enum":
            row.slots.append(varint_slots(_symbol_indexes(column, node, place)).masked(place.valid))
        elif of_kind == "boolean":
            row.slots.append(fixed_slots(numbers(column.cast(pa.uint8()), pa.uint8())).masked(place.valid))
        elif of_kind != "null":
            row.slots.append(fixed_slots(numbers(column, column.type)).masked(place.valid))

    def _by_row(self, index: int, name: str, column: Column, start_row: int) -> Column:
        """A column whose type has no kernel, one value after the other through fastavro."""
        schema = self._fallback(index)
        native = native_schema(schema)
        bodies = []
        for row, value in enumerate(column.to_pylist(maps_as_pydicts="strict"), start=start_row):
            try:
                bodies.append(write_checked(native, checked_datum(schema, value)))
            except ValueMisfit as misfit:
                inner = f".{misfit.where()}" if misfit.path else ""
                code = "null_value" if value is None else "value_misfit"
                raise InvalidRequest(
                    code,
                    f"column {name}{inner} does not fit the schema",
                    found=f"{misfit.found} at row {row}",
                    expected=misfit.expected,
                    hint=misfit.hint,
                ) from None
        return pa.array(bodies, pa.binary())

    def _fallback(self, index: int) -> AvroSchema:
        if index not in self._fallbacks:
            self._fallbacks[index] = schema_of_node(self._nodes[index], self._named)
        return self._fallbacks[index]


@dataclass(frozen=True)
class _Place:
    """Where a column's step stands: its name, its first row, and which of its rows are not null."""

    name: str
    start_row: int
    valid: Any


def _refuse_null(name: str, column: Column, start_row: int, expected: str) -> None:
    if column.null_count:
        row = start_row + pc.index(pc.is_null(column), True).as_py()
        raise InvalidRequest(
            "null_value",
            f"column {name} has a null, which its field does not allow",
            found=f"null at column {name}, row {row}",
            expected=expected,
            hint='make the field a union with "null", or put such rows aside',
        )


def _converted(name: str, column: Column, target: Any) -> Column:
    """The column in the field's own Arrow type, where that loses nothing."""
    if column.type == target:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _widens(column.type, target):
        try:
            return column.cast(target)
        except pa.ArrowInvalid as error:
            raise _column_type(name, f"{column.type} ({error})", target) from None
    raise _column_type(name, str(column.type), target)


def _column_type(name: str, found: str, target: Any) -> InvalidRequest:
    return InvalidRequest(
        "column_type",
        f"column {name} has another type than its field",
        found=found,
        expected=str(target),
        hint="cast the columns first; rows that do not fit are told apart there",
    )


def _widens(source: Any, target: Any) -> bool:
    is_a = pa.types
    if is_a.is_null(source) or source == target:
        return True
    if is_a.is_integer(target):
        return is_a.is_integer(source)
    if is_a.is_floating(target):
        return is_a.is_integer(source) or (is_a.is_floating(source) and source.bit_width <= target.bit_width)
    if is_a.is_string(target):
        return is_a.is_large_string(source) or is_a.is_string_view(source)
    if is_a.is_binary(target):
        return is_a.is_large_binary(source) or is_a.is_fixed_size_binary(source) or is_a.is_binary_view(source)
    if is_a.is_timestamp(target):
        return is_a.is_timestamp(source) and (target.tz is not None or source.tz is None)
    return is_a.is_time(target) and is_a.is_time(source)


def _symbol_indexes(column: Column, node: Node, place: _Place) -> Any:
    """The index of each enum symbol; 0 where the row is null."""
    symbols = pa.array(node["symbols"], pa.string())
    indexes = pc.index_in(column, value_set=symbols)
    if indexes.null_count > column.null_count:
        unknown = pc.and_(pc.is_null(indexes), pc.is_valid(column))
        offset = pc.index(unknown, True).as_py()
        raise InvalidRequest(
            "value_misfit",
            f"column {place.name} does not fit the schema",
            found=f"{describe(column[offset].as_py())} at row {place.start_row + offset}",
            expected=f"one of {', '.join(node['symbols'])}",
        )
    return numbers(indexes, pa.int32()).astype(np.int64)
