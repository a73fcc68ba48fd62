"""Fit columns, of text or typed, to a schema: all rows at once, and row by row only where something did not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anew.codec.arrow_types import arrow_schema, arrow_value, column_nodes
from anew.codec.datum import FLOAT32_LIMIT, default_compiler
from anew.codec.kernels import Column, pc
from anew.codec.misfit import describe, nearest_name
from anew.codec.nodes import Named, Node, kind, nullable_of, resolve, type_name
from anew.codec.plain import misfit_of
from anew.codec.schema import AvroSchema, schema_of_node
from anew.core.errors import InvalidRequest

# Arrow's regular expressions are RE2's: no look-around, \z for the end.
_HAS_ZONE = r"(Z|[+-]\d\d:?\d\d)$"
_DATE_ONLY_CHARACTERS = len("2013-01-01")
_UUID = r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"


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


Convert = Callable[[Column], Column]


def cast_columns(schema: AvroSchema, batch: pa.RecordBatch) -> Cast:
    """Cast each column of a record schema to its field's Arrow type; rows that do not fit are left out and told.

    Text is read as: numbers; ``true``/``false``; ISO-8601 instants with ``Z``, an offset, or neither (UTC), with
    ``T`` or a space; ISO dates and times; base64 for bytes and fixed; JSON for arrays, maps and records. What
    stands for a null (an empty field, ``NA``) is null already. Other columns than the schema's are left out.

    Raises:
        InvalidRequest: ``missing_column``, unless the field has a default; ``column_type``, where no value of
            the column could fit.
    """
    target = arrow_schema(schema)
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
        inner, _ = nullable_of(node, schema.named)
        fitted, bad_rows = _fit(column, _converter(name, column.type, inner, schema.named, arrow_field.type))
        columns.append(fitted)
        if not arrow_field.nullable and column.null_count:
            bad_rows = np.union1d(bad_rows, np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False)))
        kept[bad_rows] = False
        expected = type_name(node, schema.named)
        for row in bad_rows.tolist():
            misfits.append((row, place, Misfit(row, name, describe(column[row].as_py()), expected)))
    misfits.sort(key=lambda entry: entry[:2])
    mask = pa.array(kept)
    if misfits:
        columns = [column.filter(mask) for column in columns]
    fitting = pa.RecordBatch.from_arrays(columns, schema=target)
    return Cast(fitting, [misfit for _, _, misfit in misfits], mask)


def _fit(column: Column, convert: Convert) -> tuple[Column, Any]:
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
        except (pa.ArrowInvalid, ValueError):
            if count == 1:
                bad_rows.append(start)
                pieces.append(convert(pa.nulls(1, column.type)))
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


def _converter(name: str, source: Any, node: Node, named: Named, target: Any) -> Convert:
    """The function that casts a part of the column, or raises ArrowInvalid or ValueError."""
    if pa.types.is_dictionary(source):
        inner = _converter(name, source.value_type, node, named, target)
        return lambda part: inner(part.dictionary_decode())
    if pa.types.is_null(source):
        return lambda part: pa.nulls(len(part), target)
    if pa.types.is_large_string(source) or pa.types.is_string_view(source):
        from_string = _from_text(node, named, target)
        return lambda part: from_string(part.cast(pa.string()))
    if pa.types.is_string(source):
        return _from_text(node, named, target)
    if not _may_become(source, target):
        raise InvalidRequest(
            "column_type",
            f"no value of the column {name} fits its field",
            found=str(source),
            expected=f"{type_name(node, named)} ({target})",
        )
    if target == pa.float32() and pa.types.is_floating(source):
        return _narrowed
    return lambda part: part.cast(target)


def _may_become(source: Any, target: Any) -> bool:
    is_a = pa.types
    families: list[tuple[Callable[[Any], bool], Callable[[Any], bool]]] = [
        (is_a.is_integer, lambda kind_of: is_a.is_integer(kind_of) or is_a.is_floating(kind_of)),
        (is_a.is_floating, lambda kind_of: is_a.is_integer(kind_of) or is_a.is_floating(kind_of)),
        (is_a.is_decimal, lambda kind_of: is_a.is_integer(kind_of) or is_a.is_decimal(kind_of)),
        (is_a.is_timestamp, is_a.is_timestamp),
        (is_a.is_date, is_a.is_date),
        (is_a.is_time, is_a.is_time),
        (_is_binary, _is_binary),
    ]
    if source == target or is_a.is_nested(target):
        return bool(source == target or is_a.is_nested(source))
    return any(is_target(target) and is_source(source) for is_target, is_source in families)


def _is_binary(kind_of: pa.DataType) -> bool:
    is_a = pa.types
    return is_a.is_binary(kind_of) or is_a.is_large_binary(kind_of) or is_a.is_fixed_size_binary(kind_of)


def _narrowed(part: Column) -> Column:
    wide = part.cast(pa.float64())
    size = pc.abs(wide)
    if pc.any(pc.and_(pc.is_finite(wide), pc.greater_equal(size, FLOAT32_LIMIT))).as_py():
        raise ValueError("out of the range of float")
    return part.cast(pa.float32())


def _from_text(node: Node, named: Named, target: Any) -> Convert:
    of_kind = kind(node)
    if of_kind == "string":
        return lambda part: part
    if of_kind == "enum":
        symbols = pa.array(node["symbols"], pa.string())
        return lambda part: _only(part, pc.is_in(part, value_set=symbols))
    if of_kind == "string-uuid":
        return lambda part: _only(pc.utf8_lower(part), pc.match_substring_regex(part, _UUID))
    if pa.types.is_timestamp(target):
        return lambda part: _instants(part, target)
    if of_kind == "boolean":
        truths = pa.array(["true", "false"])
        return lambda part: _only(part, pc.is_in(pc.utf8_lower(part), value_set=truths)).cast(target)
    if of_kind == "float":
        return lambda part: _narrowed(part.cast(pa.float64()))
    if of_kind in ("int", "long"):
        # Arrow would read 0x10 as sixteen.
        return lambda part: _only(part, pc.match_substring_regex(part, r"^-?\d+$")).cast(target)
    if of_kind in ("bytes", "fixed", "array", "map", "record"):
        return _through_json(node, named, target)
    return lambda part: part.cast(target)


def _only(part: Column, fits: Column) -> Column:
    """The part itself where every value that is not null fits."""
    if pc.any(pc.and_(pc.is_valid(part), pc.invert(fits.fill_null(True)))).as_py():
        raise ValueError("does not fit")
    return part


def _instants(part: Column, target: Any) -> Column:
    """ISO-8601 text as timestamps; without an offset it is UTC, without a time it is midnight."""
    if target.tz is None:
        return part.cast(target)
    if not pc.any(pc.match_substring_regex(part, _HAS_ZONE)).as_py():
        return part.cast(pa.timestamp(target.unit)).cast(target)
    timed = pc.if_else(
        pc.equal(pc.utf8_length(part), _DATE_ONLY_CHARACTERS), pc.binary_join_element_wise(part, "00:00:00Z", "T"), part
    )
    zoned = pc.if_else(pc.match_substring_regex(timed, _HAS_ZONE), timed, pc.binary_join_element_wise(timed, "Z", ""))
    return zoned.cast(target)


def _through_json(node: Node, named: Named, target: Any) -> Convert:
    """Types without a text of their own: the JSON face, one value after the other."""
    schema = schema_of_node(node, named)
    is_text = kind(node) in ("bytes", "fixed")

    def convert(part: Column) -> Column:
        values: list[Any] = []
        for text in part.to_pylist():
            if text is None:
                values.append(None)
                continue
            datum, misfit = misfit_of(schema, text if is_text else json.loads(text))
            if misfit is not None:
                raise misfit
            values.append(arrow_value(datum, node, named))
        return pa.array(values, target)

    return convert
