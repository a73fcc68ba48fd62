"""Casts of values that have no kernel, one after the other: unions of several types, recursive records, JSON."""

from __future__ import annotations

import datetime
import decimal
import json
import struct
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anew.codec.arrow_types import arrow_value
from anew.codec.avro import native_schema, read_body, write_checked
from anew.codec.carried import takes_null
from anew.codec.datum import DATUM_LEAVES, datum_fill, real, text
from anew.codec.kernels import Column
from anew.codec.misfit import ValueMisfit, describe
from anew.codec.nodes import Named, Node, kind, resolve, type_name
from anew.codec.plain import misfit_of, to_plain
from anew.codec.schema import AvroSchema, parse_schema, schema_of_node
from anew.codec.walk import Compiler, Direction, Step
from anew.core.errors import Failed, InvalidRequest

_TEXT_BRANCHES = ("int", "long", "double", "float", "boolean")


def by_row(node: Node, named: Named, target: pa.Field[Any], read: Callable[[Any], Any]) -> Callable[[Column], Column]:
    """A cast that makes a datum of each value and puts it into the target column.

    Args:
        node: The target's type.
        named: The named types of its schema.
        target: The field of the column that is made: of an Arrow type, or carried.
        read: Makes a datum of ``node`` of a value as Arrow gives it, which is not null; raises ValueMisfit.
    """
    schema = schema_of_node(node, named)
    carried = target.metadata is not None
    native = native_schema(schema) if carried else None
    nullable = takes_null(node, named)

    def convert(part: Column) -> Column:
        made: list[Any] = []
        for value in part.to_pylist(maps_as_pydicts="strict"):
            datum = None if value is None else read(value)
            if datum is None and not nullable:
                raise ValueMisfit("null", type_name(node, named))
            made.append(write_checked(native, datum) if carried else arrow_value(datum, node, named))
        return pa.array(made, target.type)

    return convert


def from_bodies(source: AvroSchema, node: Node, named: Named) -> Callable[[Any], Any]:
    """Reads bodies of a writer's schema as datums of another type."""
    native, step = native_schema(source), typed_step(node, named)

    def read(body: bytes) -> Any:
        try:
            value = read_body(native, body)
        except Failed as error:
            raise ValueMisfit(str(error.found), type_name(node, named)) from None
        return step(value)

    return read


def typed_step(node: Node, named: Named) -> Step:
    """The step from a value of Python's own types to a datum; nothing is read as a type that it does not have."""
    return Compiler(named, Direction(_TYPED, datum_fill(named))).compile(node)


def from_json(node: Node, named: Named) -> Callable[[Any], Any]:
    """Reads JSON text."""
    schema = schema_of_node(node, named)

    def read(value: str) -> Any:
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueMisfit(describe(value), f"{type_name(node, named)} as JSON") from None
        return _fitting(schema, parsed)

    return read


def from_plain_text(node: Node, named: Named) -> Callable[[Any], Any]:
    """Reads text by a type's own text: bytes and fixed are base64, a union takes the first branch that fits."""
    schema = schema_of_node(node, named)
    is_union = kind(resolve(node, named)) == "union"

    def read(value: str) -> Any:
        if not is_union:
            return _fitting(schema, value)
        for branch in (branch for branch in resolve(node, named) if branch != "null"):
            own = schema_of_node(branch, named)
            of_kind = kind(resolve(branch, named))
            as_json = of_kind in (*_TEXT_BRANCHES, "array", "map", "record", "union")
            try:
                datum, misfit = misfit_of(own, json.loads(value) if as_json else value)
            except (ValueError, RecursionError):
                continue
            if misfit is None:
                return datum
        raise ValueMisfit(describe(value), type_name(node, named))

    return read


def to_text(avro_type: Any) -> Callable[[Any], str]:
    """The text of values of an Avro type, as JSON shows them."""
    schema = parse_schema(avro_type)

    def write(value: Any) -> str:
        try:
            plain = to_plain(schema, value)
        except InvalidRequest as error:
            raise ValueMisfit(str(error.found), str(error.expected)) from None
        return plain if isinstance(plain, str) else json.dumps(plain)

    return write


def _fitting(schema: AvroSchema, value: Any) -> Any:
    datum, misfit = misfit_of(schema, value)
    if misfit is not None:
        raise misfit
    return datum


def _text(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return text(value)


def _float(value: Any) -> float:
    number = real(value, "float")
    # A double that a float would round fits the double, if there is one.
    if number == number and struct.unpack("<f", struct.pack("<f", number))[0] != number:
        raise ValueMisfit(describe(value), "float, without rounding")
    return number


def _only_of(of_kind: str, types: type | tuple[type, ...]) -> Callable[[Node], Step]:
    def leaf(node: Node) -> Step:
        step = DATUM_LEAVES[of_kind](node)

        def check(value: Any) -> Any:
            if not isinstance(value, types):
                raise ValueMisfit(describe(value), of_kind.partition("-")[2])
            return step(value)

        return check

    return leaf


_TIMES = {
    "int-date": datetime.date,
    "int-time-millis": datetime.time,
    "long-time-micros": datetime.time,
    "long-timestamp-millis": datetime.datetime,
    "long-timestamp-micros": datetime.datetime,
    "long-local-timestamp-millis": datetime.datetime,
    "long-local-timestamp-micros": datetime.datetime,
}
_TYPED: dict[str, Callable[[Node], Step]] = {
    **DATUM_LEAVES,
    **{of_kind: _only_of(of_kind, types) for of_kind, types in _TIMES.items()},
    "string": lambda _node: _text,
    "float": lambda _node: _float,
}
