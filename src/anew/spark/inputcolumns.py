"""Which columns of input files a push or a load reads, and how they are cast: what both scans share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import SparkSession

from anew.codec.arrow_types import column_nodes
from anew.codec.avro import AvroSchema, parse_schema
from anew.codec.vector import Cast, cast_columns
from anew.core.stores.plan import PushInput
from anew.spark.inputfiles import Wanted, json_types
from anew.spark.inputscan import InputScan, scan_input

LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, for a task that writes no times."""


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """What crosses to the executors.

    Attributes:
        key_schema: Avro text of the key.
        value_schema: Avro text of the value.
        schema_id: The value schema's id.
        key: Columns of the key, in the order of its fields.
        value: Columns of the value.
        written_at: The column with the write time, or None.
        files: File URI → its number, which orders equal keys.
        latest_ms: The latest write time that is taken (rule R6).
        left_out: Columns that no file has and that nobody asked for: none may be there under nearly that name.
        named: Whether the columns of the value were named by the user, who then knows what is left out.
    """

    key_schema: str
    value_schema: str
    schema_id: int
    key: tuple[str, ...]
    value: tuple[str, ...]
    written_at: str | None
    files: dict[str, int]
    latest_ms: int = LATEST_MS
    left_out: tuple[str, ...] = ()
    named: bool = False


def wanted_columns(task: EncodeTask) -> Wanted:
    """The columns that a task reads, each once."""
    key_schema, value_schema = parse_schema(task.key_schema), parse_schema(task.value_schema)
    times = [] if task.written_at is None else [task.written_at]
    columns = tuple(dict.fromkeys([*task.key, *task.value, *times]))
    types = {**json_types(value_schema, task.value), **json_types(key_schema, task.key)}
    optional = {name for name, has_default in value_schema.fields.items() if has_default}
    optional = optional.intersection(columns).difference([*task.key, *times])
    watched = frozenset() if task.named else frozenset([*optional, *task.left_out])
    return Wanted(columns, frozenset(optional), watched, types)


def scan_files(spark: SparkSession, files: PushInput, task: EncodeTask) -> InputScan:
    """The input's rows: the columns of the task, the file and the place of each row, rows that did not parse.

    Raises:
        InvalidRequest: ``unreadable_input``, ``bad_option``.
    """
    return scan_input(spark, files, [path_of(uri) for uri in task.files], wanted_columns(task))


def path_of(uri: str) -> str:
    """The path of a file's URI."""
    return unquote(urlparse(uri).path)


def cast_selected(schema: AvroSchema, batch: pa.RecordBatch, columns: tuple[str, ...]) -> Cast:
    """Cast some columns of the input to the schema's fields; for a schema that is no record, the one column.

    Columns that the input lacks take their default.
    """
    chosen = batch.select([name for name in columns if name in batch.schema.names])
    if schema.fields or not columns:
        return cast_columns(schema, chosen)
    cast = cast_columns(schema, chosen.rename_columns(list(column_nodes(schema))))
    return replace(cast, misfits=[replace(misfit, column=columns[0]) for misfit in cast.misfits])
