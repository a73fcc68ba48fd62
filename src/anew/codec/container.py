"""Avro container files as Arrow batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import IO, Any

import fastavro
import pyarrow as pa

from anew.core.errors import InvalidRequest

_BATCH_ROWS = 10_000


def container_columns(source: IO[bytes]) -> list[str]:
    """The field names of a container file's records.

    Raises:
        InvalidRequest: ``unreadable_input``: no container file, or not of records.
    """
    schema = _reader(source).writer_schema
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidRequest(
            "unreadable_input", "the container holds no records", found=str(schema), expected="records"
        )
    return [str(field["name"]) for field in schema["fields"]]


def read_container(source: IO[bytes], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Some fields of a container file's records, batch by batch; types are those of the values.

    Raises:
        InvalidRequest: ``unreadable_input``, ``missing_column``.
    """
    reader: Iterator[Any] = iter(_reader(source))
    try:
        while rows := list(itertools.islice(reader, _BATCH_ROWS)):
            arrays: list[Any] = [pa.array([row[name] for row in rows]) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=columns)
    except KeyError as error:
        raise InvalidRequest("missing_column", f"the input has no column {error.args[0]}", found=columns) from error
    except (EOFError, ValueError, TypeError) as error:
        raise InvalidRequest("unreadable_input", "the container is corrupt", found=str(error)) from error


def _reader(source: IO[bytes]) -> Any:
    try:
        return fastavro.reader(source)
    except (ValueError, EOFError, KeyError, IndexError) as error:
        raise InvalidRequest(
            "unreadable_input", "this is no Avro container file", found=str(error), expected="an Avro container file"
        ) from error
