"""The Arrow type of each Avro type, and what of it can be told without Python values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anew.codec.nodes import Named, Node, kind, nullable_of, resolve, type_name
from anew.codec.schema import AvroSchema
from anew.core.errors import InvalidRequest

# The only column's name where the schema is no record.
SINGLE_COLUMN = "value"

_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "int-date": pa.date32(),
    "int-time-millis": pa.time32("ms"),
    "long-time-micros": pa.time64("us"),
    "long-timestamp-millis": pa.timestamp("ms", "UTC"),
    "long-timestamp-micros": pa.timestamp("us", "UTC"),
    "long-local-timestamp-millis": pa.timestamp("ms"),
    "long-local-timestamp-micros": pa.timestamp("us"),
    "string-uuid": pa.string(),
}
_DECIMAL256_DIGITS = 76


def column_nodes(schema: AvroSchema) -> dict[str, Node]:
    """Column name → type node, in the schema's order; one column where the schema is no record."""
    root = resolve(schema.root, schema.named)
    if kind(root) == "record":
        return {column["name"]: column["type"] for column in root["fields"]}
    return {SINGLE_COLUMN: root}


def arrow_schema(schema: AvroSchema) -> pa.Schema:
    """The Arrow columns of a record schema; any other schema is one column named ``value``.

    Enums and uuids are strings, fixed is fixed-size binary, timestamps are in UTC.

    Raises:
        InvalidRequest: ``no_arrow_type`` for unions of several types and for recursive records.
    """
    fields = []
    for name, node in column_nodes(schema).items():
        _, null_branch = nullable_of(node, schema.named)
        nullable = null_branch is not None or resolve(node, schema.named) == "null"
        fields.append(pa.field(name, arrow_type(node, schema.named, (name,)), nullable=nullable))
    return pa.schema(fields)


def arrow_type(node: Node, named: Named, path: tuple[str, ...], inside: frozenset[str] = frozenset()) -> pa.DataType:
    """The Arrow type of a node; ``path`` is for the error, ``inside`` are the records around it."""
    node, _ = nullable_of(node, named)
    of_kind = kind(node)
    if of_kind in _TYPES:
        return _TYPES[of_kind]
    if of_kind.endswith("-decimal") and node["precision"] <= _DECIMAL256_DIGITS:
        precision, scale = int(node["precision"]), int(node.get("scale", 0))
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if of_kind == "fixed":
        return pa.binary(int(node["size"]))
    if of_kind == "array":
        return pa.list_(arrow_type(node["items"], named, (*path, "items"), inside))
    if of_kind == "map":
        return pa.map_(pa.string(), arrow_type(node["values"], named, (*path, "values"), inside))
    if of_kind == "record" and node["name"] not in inside:
        within = inside | {node["name"]}
        fields = [(c["name"], arrow_type(c["type"], named, (*path, c["name"]), within)) for c in node["fields"]]
        return pa.struct(fields)
    raise InvalidRequest(
        "no_arrow_type",
        f"{'.'.join(path)} has no Arrow type",
        found=f"a recursive record {node['name']}" if of_kind == "record" else type_name(node, named),
        expected="a type with a table column: no recursive record, no union of several types",
    )


def arrow_value(value: Any, node: Node, named: Named) -> Any:
    """A decoded value as ``pa.array`` wants it: maps as lists of pairs, uuids as text."""
    if value is None:
        return None
    node, _ = nullable_of(node, named)
    of_kind = kind(node)
    if of_kind == "array":
        return [arrow_value(item, node["items"], named) for item in value]
    if of_kind == "map":
        return [(key, arrow_value(item, node["values"], named)) for key, item in value.items()]
    if of_kind == "record":
        return {column["name"]: arrow_value(value[column["name"]], column["type"], named) for column in node["fields"]}
    return str(value) if of_kind == "string-uuid" else value


def is_plain_kind(of_kind: str) -> bool:
    """Whether ``arrow_value`` leaves values of the kind alone."""
    return of_kind not in ("array", "map", "record")
