"""Columns that Arrow has no type for, carried as one Avro body for each row.

Unions of several types and records that contain themselves are such: each value is a body of the column's own schema,
which stands in the field's metadata. A null is the body of null, where the schema allows it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anew.codec.arrow_types import arrow_type, column_nodes
from anew.codec.nodes import Named, Node, nullable_of, resolve
from anew.codec.schema import AvroSchema, parse_schema, schema_of_node
from anew.core.errors import InvalidRequest

AS_JSON = {b"anew.text": b"json"}
"""Metadata of a text column whose values are JSON, so that a text and a number can be told apart."""
_SCHEMA = b"anew.avro"


def carried_field(name: str, schema: AvroSchema) -> pa.Field[Any]:
    """The field of a column of bodies of a schema."""
    return pa.field(name, pa.binary(), metadata={_SCHEMA: schema.canonical.encode()})


def carried_schema(field: pa.Field[Any]) -> AvroSchema | None:
    """The schema of a column's bodies; None for a column of an Arrow type of its own."""
    text = (field.metadata or {}).get(_SCHEMA)
    return None if text is None else parse_schema(text.decode())


def takes_null(node: Node, named: Named) -> bool:
    """Whether null is a value of the node."""
    node = resolve(node, named)
    return node == "null" or (isinstance(node, list) and "null" in node)


def column_field(name: str, node: Node, named: Named) -> pa.Field[Any]:
    """The field of a column of a schema: of its Arrow type, or carried."""
    try:
        of_type = arrow_type(node, named, (name,))
    except InvalidRequest:
        return carried_field(name, schema_of_node(node, named))
    _, null_branch = nullable_of(node, named)
    return pa.field(name, of_type, nullable=null_branch is not None or resolve(node, named) == "null")


def columns_schema(schema: AvroSchema) -> pa.Schema:
    """`anew.codec.arrow_types.arrow_schema`, where columns without an Arrow type are carried."""
    return pa.schema([column_field(name, node, schema.named) for name, node in column_nodes(schema).items()])
