"""The files of a full push as a Spark scan: rows → Avro keys and values, vectorised, with an account of misfits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from anew.codec.avro import AvroSchema, parse_schema
from anew.codec.container import container_columns
from anew.codec.vector import Cast, Misfit, arrow_schema, cast_columns, encode_table
from anew.core.admission import with_hashes
from anew.core.blocks import BLOCKS
from anew.core.errors import InvalidRequest
from anew.core.hashing import total
from anew.core.plan import PushInput
from anew.core.rows import ROWS
from anew.core.stamp import BATCH
from anew.core.suggest import did_you_mean
from anew.spark.avrosource import AvroSource
from anew.spark.failures import reason_of
from anew.spark.frames import SCANNED, Kind, report_row, spark_schema
from anew.spark.shuffle import Destination, packed
from anew.spark.worker import begin_task, required_build

FILE, BLOCK, CORRUPT = "__file", "__block", "__corrupt"
_EXAMPLES = 20
_CSV = {"header": "true", "quote": '"', "escape": '"'}
"""As RFC 4180 says and everybody writes: a quote inside of quotes is doubled. Spark's own default is a backslash."""


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
        exact_rows: Whether ``__block`` is the row's own number (Parquet) and not its block's start.
    """

    key_schema: str
    value_schema: str
    schema_id: int
    key: tuple[str, ...]
    value: tuple[str, ...]
    written_at: str | None
    files: dict[str, int]
    exact_rows: bool


def input_columns(spark: SparkSession, files: PushInput, paths: list[str]) -> list[str] | None:
    """The columns that the input has by its header or schema; None for JSON lines, where every row may differ.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    try:
        match files.format:
            case "csv":
                options = {**_CSV, **files.options}
                return spark.read.options(**options).csv(paths[0]).columns
            case "json":
                return None
            case "avro":
                with Path(unquote(urlparse(paths[0]).path)).open("rb") as source:
                    return container_columns(source)
            case _:
                return spark.read.options(**files.options).parquet(*paths).columns
    except AnalysisException as error:
        raise unreadable(files.format, str(error)) from error
    except (PySparkException, Py4JJavaError) as error:
        raise unreadable(files.format, str(reason_of(error).found)) from error


def check_columns(found: list[str], wanted: Sequence[str]) -> None:
    """Raise unless the input has all columns.

    Raises:
        InvalidRequest: ``missing_column``, with the nearest name.
    """
    for name in wanted:
        if name not in found:
            raise InvalidRequest(
                "missing_column",
                f"the input has no column {name}",
                found=", ".join(found),
                expected=name,
                hint=did_you_mean(name, found),
            )


def unreadable(input_format: str, found: str) -> InvalidRequest:
    """The refusal of an input that Spark cannot read."""
    lines = found.splitlines()
    return InvalidRequest(
        "unreadable_input", "the input cannot be read", found=lines[0] if lines else found, expected=input_format
    )


def scan_files(spark: SparkSession, files: PushInput, task: EncodeTask, header: list[str] | None) -> DataFrame:
    """The input's columns, with the file and the place of each row, and the text of rows that could not be parsed."""
    paths = list(task.files)
    wanted = [*dict.fromkeys([*task.key, *task.value, *([task.written_at] if task.written_at else [])])]
    match files.format:
        case "csv":
            fields = [StructField(name, StringType()) for name in [*(header or wanted), CORRUPT]]
            options = {**_CSV, "enforceSchema": "false", **files.options}
            frame = _text_reader(spark, options, fields).csv(paths)
        case "json":
            fields = [StructField(name, StringType()) for name in [*wanted, CORRUPT]]
            frame = _text_reader(spark, files.options, fields).json(paths)
        case "avro":
            spark.dataSource.register(AvroSource)
            avro = spark.read.format(AvroSource.name()).option("files", json.dumps(paths))
            return avro.option("columns", json.dumps(wanted)).load()
        case _:
            parquet = spark.read.options(**files.options).parquet(*paths)
            frame = parquet.withColumn(CORRUPT, F.lit(None).cast("string"))
    place = "_metadata.row_index" if task.exact_rows else "_metadata.file_block_start"
    columns: list[Column] = [F.col(f"`{name}`") for name in wanted]
    meta = [F.col("_metadata.file_path").alias(FILE), F.col(place).cast("long").alias(BLOCK), F.col(CORRUPT)]
    return frame.select(*columns, *meta)


def encode_rows(frame: DataFrame, task: EncodeTask) -> DataFrame:
    """The rows as `SCANNED`, batch-stamped, in input order within a file; each task ends with its report."""
    return frame.mapInArrow(_encoder(task), spark_schema(SCANNED))


def encode_blocks(frame: DataFrame, task: EncodeTask, destination: Destination) -> DataFrame:
    """`encode_rows`, packed for the shuffle (columns `anew.core.blocks.BLOCKS`)."""
    encode = _encoder(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return packed(encode(batches), destination)

    return frame.mapInArrow(run, spark_schema(BLOCKS))


def sample_values(scanned: DataFrame, count: int) -> list[bytes]:
    """Up to so many values of encoded rows (columns `SCANNED`), as Avro bodies.

    Raises:
        Failed: ``build_failed``.
    """
    found = scanned.where((F.col("kind") == int(Kind.RAW)) & F.col("value").isNotNull()).select("value").limit(count)
    try:
        values: list[Any] = found.toArrow().column("value").to_pylist()
    except Exception as error:
        raise reason_of(error) from error
    return values


def _text_reader(spark: SparkSession, options: dict[str, str], fields: list[StructField]) -> DataFrameReader:
    ours: dict[str, Any] = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **options}
    return spark.read.options(**ours).schema(StructType(fields))


def _encoder(task: EncodeTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    build = required_build()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = begin_task(build)
        encoder = _Encoder(task, parse_schema(task.key_schema), parse_schema(task.value_schema))
        for batch in batches:
            if batch.num_rows:
                yield encoder.encode(batch)
        yield report_row(encoder.report(str(context.partitionId())))

    return run


@dataclass(slots=True)
class _Encoder:
    """One task's pass over its rows."""

    task: EncodeTask
    key_schema: AvroSchema
    value_schema: AvroSchema
    records: int = 0
    fingerprint: int = 0
    bad: int = 0
    null_keys: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    bad_files: set[str] = field(default_factory=set)
    _rows_in_block: dict[tuple[str, int], int] = field(default_factory=dict)

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that fit; those that do not are counted, the first ones kept as examples."""
        orders = self._orders(batch)
        keep = np.ones(batch.num_rows, dtype=np.bool_)
        corrupt = batch.column(CORRUPT)
        if corrupt.null_count < batch.num_rows:
            bad = corrupt.is_valid().to_numpy(zero_copy_only=False)
            for row in bad.nonzero()[0]:
                self._misfit(batch, int(row), Misfit(int(row), "-", str(corrupt[int(row)]), "a row that parses"))
            keep &= ~bad
        self._count_null_keys(batch, keep)
        keys, keep = self._cast(batch, self.key_schema, self.task.key, keep)
        values, keep = self._cast(batch, self.value_schema, self.task.value, keep)
        times, keep = self._times(batch, keep)
        kept = keep.nonzero()[0]
        # Rows, not misfits: one row may have several.
        self.bad += batch.num_rows - kept.size
        rows = self._rows(
            encode_table(self.key_schema, keys(kept)), encode_table(self.value_schema, values(kept)), times[kept]
        )
        hashed = with_hashes(rows)
        self.records += hashed.num_rows
        self.fingerprint = (self.fingerprint + total(hashed.column("hash").to_numpy())) % (1 << 64)
        return self._ordered(hashed, batch, orders, kept)

    def report(self, task_id: str) -> dict[str, Any]:
        """What is said at the end of the task."""
        return {
            "source": "batch",
            "records": self.records,
            "hash": self.fingerprint,
            "skipped": self.bad,
            "null_keys": self.null_keys,
            "examples": self.examples,
            "bad_files": sorted(self.bad_files),
            "task": task_id,
        }

    def _cast(
        self, batch: pa.RecordBatch, schema: AvroSchema, columns: tuple[str, ...], keep: np.ndarray[Any, Any]
    ) -> tuple[Callable[[np.ndarray[Any, Any]], pa.RecordBatch], np.ndarray[Any, Any]]:
        """The columns as the schema wants them: a function from the rows that are kept in the end to their batch."""
        positions = keep.nonzero()[0]
        cast = cast_selected(schema, batch.take(positions), columns)
        for misfit in cast.misfits:
            self._misfit(batch, int(positions[misfit.row]), misfit)
        fitting = positions[np.asarray(cast.kept)]
        after = np.zeros_like(keep)
        after[fitting] = True
        place = np.full(keep.size, -1)
        place[fitting] = np.arange(fitting.size)
        return (lambda rows: cast.batch.take(place[rows])), after

    def _times(
        self, batch: pa.RecordBatch, keep: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        if self.task.written_at is None:
            return np.zeros(batch.num_rows, dtype=np.int64), keep
        times, bad = written_times(batch.column(self.task.written_at))
        for row in (bad & keep).nonzero()[0]:
            found = str(batch.column(self.task.written_at)[int(row)])
            self._misfit(batch, int(row), Misfit(int(row), self.task.written_at, found, "a time after 1970-01-01"))
        return times, keep & ~bad

    def _misfit(self, batch: pa.RecordBatch, row: int, misfit: Misfit) -> None:
        file = str(batch.column(FILE)[row])
        self.bad_files.add(file)
        if len(self.examples) < _EXAMPLES:
            self.examples.append(
                {
                    "file": file,
                    "place": batch.column(BLOCK)[row].as_py(),
                    "column": misfit.column,
                    "found": misfit.found,
                    "expected": misfit.expected,
                }
            )

    def _count_null_keys(self, batch: pa.RecordBatch, keep: np.ndarray[Any, Any]) -> None:
        null = np.zeros_like(keep)
        for name in self.task.key:
            if not self._key_takes_null(name):
                null |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
        self.null_keys += int((null & keep).sum())

    def _key_takes_null(self, column: str) -> bool:
        schema = arrow_schema(self.key_schema)
        return schema.field(column if column in schema.names else 0).nullable

    def _orders(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """The place of each row in its file, ascending: a block's start plus the row's index in the block.

        A row of text takes at least one byte, so that the rows of one block never reach into the next block's numbers.
        """
        blocks = batch.column(BLOCK).to_numpy(zero_copy_only=False).astype(np.int64)
        if self.task.exact_rows:
            return blocks
        orders = np.empty(batch.num_rows, dtype=np.int64)
        encoded = batch.column(FILE).dictionary_encode()
        files = encoded.indices.to_numpy(zero_copy_only=False)
        names = encoded.dictionary.to_pylist()
        starts = np.append(0, ((files[1:] != files[:-1]) | (blocks[1:] != blocks[:-1])).nonzero()[0] + 1)
        for begin, end in zip(starts, np.append(starts[1:], batch.num_rows), strict=True):
            block = (str(names[files[begin]]), int(blocks[begin]))
            seen = self._rows_in_block.get(block, 0)
            orders[begin:end] = block[1] + seen + np.arange(end - begin)
            self._rows_in_block[block] = seen + int(end - begin)
        return orders

    def _rows(self, keys: pa.Array[Any], values: pa.Array[Any], times: np.ndarray[Any, Any]) -> pa.RecordBatch:
        count = len(keys)
        zeros = np.zeros(count, dtype=np.int64)
        columns: list[Any] = [
            keys.cast(pa.binary()),
            values.cast(pa.binary()),
            pa.array(np.full(count, self.task.schema_id, dtype=np.int32)),
            pa.array(times),
            pa.repeat(pa.scalar(BATCH.encoded, pa.binary()), count),
            pa.array(zeros.astype(np.bool_)),
            pa.array(zeros.astype(np.int32)),
            pa.array(zeros.astype(np.int32)),
            pa.array(zeros),
            pa.array(zeros),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)

    def _ordered(
        self, rows: pa.RecordBatch, batch: pa.RecordBatch, orders: np.ndarray[Any, Any], kept: np.ndarray[Any, Any]
    ) -> pa.RecordBatch:
        """The rows with file number and place where the order of equal keys is decided; both go before the write."""
        encoded = batch.column(FILE).dictionary_encode()
        numbers = np.array([self.task.files.get(str(name), 0) for name in encoded.dictionary.to_pylist()], np.int32)
        files = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        columns: list[Any] = list(rows.columns)
        columns[ROWS.get_field_index("feed_partition")] = pa.array(files[kept])
        columns[ROWS.get_field_index("offset")] = pa.array(orders[kept])
        columns.append(pa.array(np.full(rows.num_rows, int(Kind.RAW), dtype=np.int8)))
        return pa.RecordBatch.from_arrays(columns, schema=SCANNED)


def cast_selected(schema: AvroSchema, batch: pa.RecordBatch, columns: tuple[str, ...]) -> Cast:
    """Cast some columns of the input to the schema's fields; for a schema that is no record, the one column."""
    chosen = batch.select(list(columns))
    if schema.fields:
        return cast_columns(schema, chosen)
    cast = cast_columns(schema, chosen.rename_columns(arrow_schema(schema).names))
    return replace(cast, misfits=[replace(misfit, column=columns[0]) for misfit in cast.misfits])


def written_times(column: pa.Array[Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Write times in ms of a column of numbers (ms), timestamps or text, and where there is none that is after 0.

    Returns:
        Times and a mask of the bad ones, both of shape (n,).
    """
    present: Any = column
    if pa.types.is_string(present.type) or pa.types.is_large_string(present.type):
        numeric = pc.match_substring_regex(present, r"^\s*\d+\s*$")
        numbers = pc.if_else(numeric, present, pa.scalar(None, pa.string())).cast(pa.int64())
        texts = pc.if_else(pc.invert(numeric), present, pa.scalar(None, pa.string()))
        parsed = [_parsed_ms(text) for text in texts.to_pylist()]
        present = pc.coalesce(numbers, pa.array(parsed, pa.int64()))
    elif pa.types.is_timestamp(present.type):
        present = present.cast(pa.timestamp("ms", tz=present.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date(present.type):
        present = present.cast(pa.timestamp("ms")).cast(pa.int64())
    else:
        present = present.cast(pa.int64())
    times = present.fill_null(0).to_numpy(zero_copy_only=False)
    return times, times <= 0


def _parsed_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        value: Any = pa.scalar(text.strip().replace("Z", "+00:00")).cast(pa.timestamp("ms", tz="UTC"))
    except pa.ArrowInvalid:
        try:
            value = pa.scalar(text.strip()).cast(pa.timestamp("ms"))
        except pa.ArrowInvalid:
            return None
    return int(value.cast(pa.int64()).as_py())
