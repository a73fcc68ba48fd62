"""Avro without any header: schemas, their evolution, and datums to and from bytes."""

from __future__ import annotations

import copy
import functools
import io
import struct
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from anew.codec.datum import datum_direction, default_compiler
from anew.codec.evolution import can_read, check_evolution
from anew.codec.misfit import ValueMisfit
from anew.codec.schema import AvroSchema, check_key_schema, parse_schema
from anew.codec.walk import Compiler, Step
from anew.core.errors import Failed, InvalidRequest

__all__ = [
    "AvroSchema",
    "can_read",
    "check_evolution",
    "check_key_schema",
    "decode_datum",
    "encode_datum",
    "parse_schema",
]

# What fastavro raises on bytes that are no datum of the schema.
CORRUPT_BODY = (EOFError, ValueError, IndexError, OverflowError, KeyError, TypeError, MemoryError, struct.error)


@functools.lru_cache(maxsize=1024)
def native_schema(schema: AvroSchema) -> Any:
    """The schema as fastavro wants it, parsed once, its defaults replaced by the datums they stand for.

    fastavro hands a reader's defaults out as the JSON has them: bytes as text, timestamps as numbers.

    Raises:
        InvalidRequest: ``bad_schema`` for what only fastavro objects to.
    """
    try:
        native = fastavro.parse_schema(copy.deepcopy(schema.root))
    except (SchemaParseException, ValueError) as error:
        raise InvalidRequest("bad_schema", f"schema {schema.name}: {error}") from None
    compiler = default_compiler(schema.named)
    _replace_defaults(native, compiler)
    return native


def encode_datum(schema: AvroSchema, datum: Any) -> bytes:
    """The Avro body of a datum; missing fields take their default, naive datetimes are UTC.

    Raises:
        InvalidRequest: ``value_misfit``, naming the path of the first value that does not fit.
    """
    try:
        checked = _checker(schema)(datum)
    except ValueMisfit as misfit:
        raise misfit.as_request_error() from None
    return write_checked(native_schema(schema), checked)


def write_checked(native: Any, checked: Any) -> bytes:
    """The body of a datum that has been checked, under a schema as fastavro wants it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, native, checked, disable_tuple_notation=True)
    return out.getvalue()


def checked_datum(schema: AvroSchema, datum: Any) -> Any:
    """The datum as fastavro will get it.

    Raises:
        ValueMisfit: The datum does not fit.
    """
    return _checker(schema)(datum)


def decode_datum(writer_schema: AvroSchema, body: bytes, reader_schema: AvroSchema | None = None) -> Any:
    """The datum of a body, resolved to the reader's schema where one is given.

    Raises:
        Failed: ``corrupt_value``: the body is no datum of the writer's schema, or has bytes left over.
    """
    native_reader = None if reader_schema is None else native_schema(reader_schema)
    return read_body(native_schema(writer_schema), body, native_reader)


def read_body(native: Any, body: bytes, native_reader: Any = None) -> Any:
    """Like ``decode_datum`` under schemas as fastavro wants them."""
    source = io.BytesIO(body)
    try:
        datum = fastavro.schemaless_reader(source, native, native_reader)
    except CORRUPT_BODY as error:
        found = f"{len(body)} bytes that end or break early ({type(error).__name__}: {error})"
        raise Failed("corrupt_value", "a value cannot be decoded", found=found, expected="an Avro body") from None
    if source.tell() != len(body):
        found = f"{len(body) - source.tell()} bytes left over of {len(body)}"
        raise Failed("corrupt_value", "a value cannot be decoded", found=found, expected="exactly one Avro body")
    return datum


@functools.lru_cache(maxsize=1024)
def _checker(schema: AvroSchema) -> Step:
    return Compiler(schema.named, datum_direction(schema.named)).compile(schema.root)


def _replace_defaults(native: Any, compiler: Compiler) -> None:
    if isinstance(native, list):
        for branch in native:
            _replace_defaults(branch, compiler)
    elif isinstance(native, dict):
        for column in native.get("fields", []):
            if "default" in column:
                column["default"] = compiler.compile(column["type"])(column["default"])
            _replace_defaults(column["type"], compiler)
        for inner in ("items", "values"):
            _replace_defaults(native.get(inner), compiler)
