"""Columns of what an Avro writer wrote, in the Arrow types of the writer's own schema.

Times and dates are taken as the numbers that were written, since Python's types end with the year 9999; logical types
that schemas of stores do not have (nanoseconds, uuid in 16 bytes) are known here.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anew.codec.arrow_types import arrow_type, arrow_value
from anew.codec.avro import native_schema, write_checked
from anew.codec.carried import carried_field
from anew.codec.nodes import LOGICAL_KINDS, Named, Node, kind, nullable_of, plain_node, resolve
from anew.codec.schema import AvroSchema, schema_of_node
from anew.core.errors import InvalidRequest

_NANOS: dict[str, pa.DataType] = {
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_UUID_BYTES = 16


@dataclass(frozen=True)
class WriterColumn:
    """One column.

    Attributes:
        name: Its name.
        field: Name, Arrow type and metadata.
        array: Makes the column of the values that were decoded under `native_text`.
    """

    name: str
    field: pa.Field[Any]
    array: Callable[[list[Any]], Any]


def writer_columns(schema: AvroSchema, names: Sequence[str]) -> list[WriterColumn]:
    """Some columns of the records of a schema, in the order of the names."""
    nodes = {one["name"]: one["type"] for one in resolve(schema.root, schema.named)["fields"]}
    return [_column(name, nodes[name], schema.named) for name in names]


def native_text(schema: AvroSchema) -> str:
    """The schema as decoding wants it: without logical types but decimals, without defaults and aliases."""
    return json.dumps(plain_node(schema.root))


def _column(name: str, node: Node, named: Named) -> WriterColumn:
    inner, _ = nullable_of(_without_single_unions(node), named)
    special = _special(inner)
    if special is not None:
        of_type, convert = special
        return WriterColumn(
            name,
            pa.field(name, of_type),
            lambda values: pa.array([None if value is None else convert(value) for value in values], of_type),
        )
    try:
        plain_type = arrow_type(_without_single_unions(node), named, (name,))
    except InvalidRequest:
        return _carried(name, node, named)
    if kind(inner) in ("array", "map", "record"):
        if _has_special(inner, named):
            return _carried(name, node, named)
        return WriterColumn(
            name,
            pa.field(name, plain_type),
            lambda values: pa.array([arrow_value(value, inner, named) for value in values], plain_type),
        )
    return WriterColumn(name, pa.field(name, plain_type), lambda values: pa.array(values, plain_type))


def _carried(name: str, node: Node, named: Named) -> WriterColumn:
    own = schema_of_node(node, named)
    native = native_schema(schema_of_node(plain_node(own.root), own.named))

    def array(values: list[Any]) -> Any:
        return pa.array([write_checked(native, value) for value in values], pa.binary())

    return WriterColumn(name, carried_field(name, own), array)


def _without_single_unions(node: Node) -> Node:
    return node[0] if isinstance(node, list) and len(node) == 1 else node


def _special(node: Node) -> tuple[pa.DataType, Callable[[Any], Any]] | None:
    """The type of a logical type that only writers have, and how a value of it is taken."""
    if not isinstance(node, dict) or kind(node) in LOGICAL_KINDS:
        return None
    logical = node.get("logicalType")
    if node["type"] == "long" and logical in _NANOS:
        return _NANOS[logical], int
    if node["type"] == "fixed" and logical == "uuid" and node["size"] == _UUID_BYTES:
        return pa.string(), lambda value: str(uuid.UUID(bytes=value))
    return None


def _has_special(node: Node, named: Named) -> bool:
    node = resolve(node, named)
    if isinstance(node, list):
        return any(_has_special(branch, named) for branch in node)
    if isinstance(node, dict) and "fields" in node:
        return any(_has_special(one["type"], named) for one in node["fields"])
    if isinstance(node, dict) and ("items" in node or "values" in node):
        return _has_special(node.get("items", node.get("values")), named)
    return _special(node) is not None
