"""How a column of one Arrow type becomes one of another, exactly or not at all: whole columns, nested ones too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from anew.codec.avro import native_schema, read_body
from anew.codec.carried import AS_JSON, carried_schema, column_field, takes_null
from anew.codec.kernels import Column, pc
from anew.codec.misfit import describe
from anew.codec.nodes import Named, Node, kind, nullable_of, type_name
from anew.codec.rowcasts import by_row, from_bodies, from_json, from_plain_text, to_text, typed_step
from anew.codec.textcasts import from_text, narrowed
from anew.core.errors import InvalidRequest

Convert = Callable[[Column], Column]
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_IN_CALENDAR = "within the years 1 to 9999"
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_TEXT_TYPES: dict[str, Any] = {
    "date32[day]": {"type": "int", "logicalType": "date"},
    "time64[us]": {"type": "long", "logicalType": "time-micros"},
}


def converter(source: pa.Field[Any], node: Node, named: Named, target: pa.Field[Any]) -> Convert:
    """The function that casts a part of a column; it raises ValueError where a value does not fit.

    Args:
        source: The column's field.
        node: The Avro type that is wanted.
        named: The named types of its schema.
        target: The field of the column that is made (`anew.codec.carried.column_field`).

    Raises:
        InvalidRequest: ``column_type``: no value of the column could fit.
    """
    bodies = carried_schema(source)
    if bodies is not None:
        return by_row(node, named, target, from_bodies(bodies, node, named))
    if is_text(source.type) and source.metadata is not None and source.metadata.items() >= AS_JSON.items():
        return by_row(node, named, target, from_json(node, named))
    if carried_schema(target) is not None:
        read = from_plain_text(node, named) if is_text(source.type) else typed_step(node, named)
        return by_row(node, named, target, read)
    inner, _ = nullable_of(node, named)
    return _checked(target.type, _convert(source.name, source.type, inner, named, target))


def is_text(of_type: pa.DataType) -> bool:
    """Whether values of the type are text, of whatever layout."""
    if pa.types.is_dictionary(of_type):
        return is_text(of_type.value_type)
    return pa.types.is_string(of_type) or pa.types.is_large_string(of_type) or pa.types.is_string_view(of_type)


def shown_value(column: Column, field: pa.Field[Any], row: int) -> str:
    """A value in words, also one that Python has no value for."""
    bodies = carried_schema(field)
    try:
        value = column[row].as_py()
        if bodies is not None and value is not None:
            value = read_body(native_schema(bodies), value)
        if pa.types.is_time64(column.type) and column.type.unit == "ns":
            # Python's times end with microseconds.
            return f"time {column[row].value} ns after midnight"
        return describe(value)
    except UnicodeDecodeError:
        if not is_text(column.type) or pa.types.is_dictionary(column.type):
            return f"{column.type} with text that is not UTF-8"
        raw = column.slice(row, 1).cast(pa.binary())[0].as_py()
        return f"text {raw[:80].decode('utf-8', 'backslashreplace')!r}, which is not UTF-8"
    except (ValueError, OverflowError):
        raw = getattr(column[row], "value", "with a value")
        return f"{column.type} {raw}, not {_IN_CALENDAR}"


def _convert(name: str, source: Any, node: Node, named: Named, target: pa.Field[Any]) -> Convert:
    if pa.types.is_dictionary(source):
        inner = _convert(name, source.value_type, node, named, target)
        return lambda part: inner(part.dictionary_decode())
    if pa.types.is_null(source):
        return lambda part: pa.nulls(len(part), target.type)
    if is_text(source):
        if kind(node) in ("array", "map", "record"):
            return by_row(node, named, target, from_json(node, named))
        if kind(node) in ("bytes", "fixed"):
            return by_row(node, named, target, from_plain_text(node, named))
        cast = from_text(node, target.type)
        # Parquet's text is not looked at when it is read: the cast from bytes does it.
        return lambda part: cast(part.cast(pa.binary()).cast(pa.string()))
    if pa.types.is_nested(source) and pa.types.is_nested(target.type):
        nested = _nested(name, source, node, named, target)
        if nested is not None:
            return nested
    elif _may_become(source, target.type):
        return _typed(source, target.type)
    raise InvalidRequest(
        "column_type",
        f"no value of the column {name} fits its field",
        found=str(source),
        expected=f"{type_name(node, named)} ({target.type})",
        hint=f"write the column {name} in a type that loses nothing, such as text",
    )


def _typed(source: Any, target: Any) -> Convert:
    """A cast between flat types that raises where something would be lost."""
    is_a = pa.types
    if is_a.is_string(target):
        return _written(source)
    if target == pa.float32() and is_a.is_floating(source):
        return narrowed
    if is_a.is_decimal(target) and is_a.is_integer(source):
        return lambda part: part.cast(pa.decimal128(20, 0)).cast(target)
    if is_a.is_timestamp(source) and is_a.is_timestamp(target):
        # The zone is only how a time is shown; a time without one is taken for UTC, as text without an offset is.
        plain = pa.timestamp(target.unit)
        return lambda part: part.cast(pa.timestamp(source.unit)).cast(plain).cast(target)
    if is_a.is_integer(source) and is_a.is_floating(target):
        return lambda part: _exact_floats(part, target)
    return lambda part: part.cast(target)


def _exact_floats(part: Column, target: Any) -> Column:
    floats = part.cast(target, safe=False)
    if pc.any(
        pc.not_equal(floats.cast(pa.float64()).cast(pa.decimal128(38, 0)), part.cast(pa.decimal128(38, 0)))
    ).as_py():
        raise ValueError("a whole number that the floating-point type would round")
    return floats


def _written(source: Any) -> Convert:
    """Typed values as text, as JSON shows them."""
    if pa.types.is_decimal(source):
        return lambda part: pa.array(
            [None if value is None else format(value, "f") for value in part.to_pylist()], pa.string()
        )
    as_type: Any
    if pa.types.is_timestamp(source):
        logical = "timestamp-micros" if source.tz is not None else "local-timestamp-micros"
        write, as_type = to_text({"type": "long", "logicalType": logical}), pa.timestamp("us")
    else:
        as_type = pa.date32() if pa.types.is_date(source) else pa.time64("us")
        write = to_text(_TEXT_TYPES[str(as_type)])
    raw = pa.int32() if pa.types.is_date(as_type) else pa.int64()

    def convert(part: Column) -> Column:
        if pa.types.is_timestamp(source):
            part = part.cast(pa.timestamp(source.unit))
        values = part.cast(as_type).cast(raw).to_pylist()
        return pa.array([None if value is None else write(value) for value in values], pa.string())

    return convert


def _may_become(source: Any, target: Any) -> bool:
    is_a = pa.types
    families: list[tuple[Callable[[Any], bool], Callable[[Any], bool]]] = [
        (is_a.is_integer, lambda of: is_a.is_integer(of) or is_a.is_floating(of) or is_a.is_decimal(of)),
        (is_a.is_floating, lambda of: is_a.is_integer(of) or is_a.is_floating(of)),
        (is_a.is_decimal, lambda of: is_a.is_integer(of) or is_a.is_decimal(of)),
        (is_a.is_timestamp, is_a.is_timestamp),
        (is_a.is_date, is_a.is_date),
        (is_a.is_time, is_a.is_time),
        (_is_binary, _is_binary),
        (_has_text, is_a.is_string),
    ]
    return bool(source == target) or any(is_target(target) and is_source(source) for is_source, is_target in families)


def _has_text(of_type: pa.DataType) -> bool:
    is_a = pa.types
    kinds = (is_a.is_decimal, is_a.is_timestamp, is_a.is_date, is_a.is_time)
    return any(is_kind(of_type) for is_kind in kinds)


def _is_binary(of_type: pa.DataType) -> bool:
    is_a = pa.types
    return (
        is_a.is_binary(of_type)
        or is_a.is_large_binary(of_type)
        or is_a.is_fixed_size_binary(of_type)
        or is_a.is_binary_view(of_type)
    )


def _checked(target: Any, convert: Convert) -> Convert:
    """The cast, and a look at what Arrow does not look at: times that the calendar, or a day, does not have."""
    limits = _limits(target)
    if limits is None:
        return convert
    raw = pa.int32() if target.bit_width == 32 else pa.int64()

    def check(part: Column) -> Column:
        made = convert(part)
        ends = pc.min_max(made.view(raw))
        least, most = ends["min"].as_py(), ends["max"].as_py()
        if least is not None and (least < limits[0] or most > limits[1]):
            raise ValueError(f"not {_IN_CALENDAR}")
        return made

    return check


def _limits(target: Any) -> tuple[int, int] | None:
    is_a = pa.types
    if is_a.is_date32(target):
        return _FIRST_DAY, _LAST_DAY
    if is_a.is_timestamp(target):
        a_day = 86_400 * _PER_SECOND[target.unit]
        return _FIRST_DAY * a_day, (_LAST_DAY + 1) * a_day - 1
    if is_a.is_time(target):
        return 0, 86_400 * _PER_SECOND[target.unit] - 1
    return None


# ---- nested columns --------------------------------------------------------------------------------------------


def _nested(name: str, source: Any, node: Node, named: Named, target: pa.Field[Any]) -> Convert | None:
    is_a, of_kind = pa.types, kind(node)
    is_list = is_a.is_list(source) or is_a.is_large_list(source) or is_a.is_fixed_size_list(source)
    if of_kind == "array" and is_list:
        return _list(name, source, node["items"], named, target)
    if of_kind == "map" and is_a.is_map(source) and is_text(source.key_type):
        return _map(name, source, node["values"], named, target)
    if of_kind == "record" and is_a.is_struct(source):
        return _struct(name, source, node, named, target)
    return None


def _part_of(source: pa.Field[Any], node: Node, named: Named) -> Convert:
    """The cast of a nested column's values; it also refuses nulls that the type does not have."""
    cast = converter(source, node, named, column_field(source.name, node, named))
    nullable = takes_null(node, named)

    def convert(part: Column) -> Column:
        if part.null_count and not nullable:
            raise ValueError("a null inside, which the type does not have")
        return cast(part)

    return convert


def _list(name: str, source: Any, items: Node, named: Named, target: pa.Field[Any]) -> Convert:
    cast = _part_of(pa.field(f"{name}[]", source.value_type), items, named)

    def convert(part: Column) -> Column:
        lengths = pc.fill_null(pc.list_value_length(part), 0)
        values = cast(pc.list_flatten(part))
        return pa.ListArray.from_arrays(_offsets(lengths), values, type=target.type, mask=_nulls(part))

    return convert


def _map(name: str, source: Any, values_node: Node, named: Named, target: pa.Field[Any]) -> Convert:
    cast_keys = _part_of(pa.field(f"{name}.key", source.key_type), "string", named)
    cast = _part_of(pa.field(f"{name}.value", source.item_type), values_node, named)

    def convert(part: Column) -> Column:
        as_list = part.cast(pa.list_(pa.struct([("key", source.key_type), ("value", source.item_type)])))
        lengths = pc.fill_null(pc.list_value_length(as_list), 0)
        entries = pc.list_flatten(as_list)
        keys, values = cast_keys(entries.field(0)), cast(entries.field(1))
        _refuse_twice(keys, lengths)
        made = pa.MapArray.from_arrays(_offsets(lengths), keys, values, type=target.type)
        return made if not part.null_count else pc.if_else(pc.is_valid(part), made, pa.scalar(None, target.type))

    return convert


def _refuse_twice(keys: Column, lengths: Column) -> None:
    """A map that has a key twice is not one: Python would keep the last value."""
    rows = np.repeat(np.arange(len(lengths)), lengths.to_numpy(zero_copy_only=False))
    pairs = pa.table({"row": pa.array(rows), "key": keys})
    if pairs.group_by(["row", "key"]).aggregate([]).num_rows < pairs.num_rows:
        raise ValueError("a map that has a key twice")


def _struct(name: str, source: Any, node: Node, named: Named, target: pa.Field[Any]) -> Convert | None:
    of_source = {source.field(index).name: source.field(index) for index in range(source.num_fields)}
    of_target = {one["name"]: one["type"] for one in node["fields"]}
    if of_source.keys() != of_target.keys() or len(of_source) != source.num_fields:
        return None
    casts = {one: _part_of(of_source[one].with_name(f"{name}.{one}"), inner, named) for one, inner in of_target.items()}

    def convert(part: Column) -> Column:
        whole = part.drop_null() if part.null_count else part
        children = [cast(pc.struct_field(whole, one)) for one, cast in casts.items()]
        fields = [target.type.field(index) for index in range(target.type.num_fields)]
        made = pa.StructArray.from_arrays(children, fields=fields)
        if not part.null_count:
            return made
        places = pc.subtract(pc.cumulative_sum(pc.is_valid(part).cast(pa.int64())), 1)
        return made.take(pc.if_else(pc.is_valid(part), places, pa.scalar(None, pa.int64())))

    return convert


def _offsets(lengths: Column) -> Any:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
    return pa.array(offsets)


def _nulls(part: Column) -> Any:
    return pc.is_null(part) if part.null_count else None
