"""The files of a full push as a Spark scan: rows → Avro keys and values, vectorised, with an account of misfits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anew.codec.arrow_types import column_nodes
from anew.codec.avro import AvroSchema, parse_schema
from anew.codec.carried import takes_null
from anew.codec.vector import Misfit, encode_table
from anew.core.admission import with_hashes
from anew.core.blocks import BLOCKS
from anew.core.hashing import total
from anew.core.rows import ROWS
from anew.core.stamp import BATCH
from anew.spark.failures import reason_of
from anew.spark.inputcolumns import EncodeTask, cast_selected
from anew.spark.inputscan import CORRUPT, FILE, PLACE, InputScan
from anew.spark.stores.frames import SCANNED, Kind, report_row, spark_schema
from anew.spark.stores.shuffle import Destination, packed
from anew.spark.stores.writtenat import written_times

_EXAMPLES = 20


def encode_rows(scan: InputScan, task: EncodeTask) -> DataFrame:
    """The rows as `SCANNED`, batch-stamped, in input order within a file; each task ends with its report."""
    return scan.map_rows(_encoder(task), spark_schema(SCANNED))


def encode_blocks(scan: InputScan, task: EncodeTask, destination: Destination) -> DataFrame:
    """`encode_rows`, packed for the shuffle (columns `anew.core.blocks.BLOCKS`)."""
    encode = _encoder(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return packed(encode(batches), destination)

    return scan.map_rows(run, spark_schema(BLOCKS))


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


def _encoder(task: EncodeTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = _Encoder(task, parse_schema(task.key_schema), parse_schema(task.value_schema))
        for batch in batches:
            if batch.num_rows:
                yield encoder.encode(batch)
        context = TaskContext.get()
        yield report_row(encoder.report("" if context is None else str(context.partitionId())))

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

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that fit; those that do not are counted, the first ones kept as examples."""
        orders = batch.column(PLACE).to_numpy(zero_copy_only=False)
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
        column = batch.column(self.task.written_at)
        written = written_times(column, self.task.latest_ms)
        for row in (written.bad & keep).nonzero()[0]:
            found = written.found(column, int(row))
            self._misfit(batch, int(row), Misfit(int(row), self.task.written_at, found, written.expected))
        return written.times_ms, keep & ~written.bad

    def _misfit(self, batch: pa.RecordBatch, row: int, misfit: Misfit) -> None:
        file = str(batch.column(FILE)[row])
        self.bad_files.add(file)
        if len(self.examples) < _EXAMPLES:
            self.examples.append(
                {
                    "file": file,
                    "place": batch.column(PLACE)[row].as_py(),
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
        nodes = column_nodes(self.key_schema)
        node = nodes[column] if column in nodes else next(iter(nodes.values()))
        return takes_null(node, self.key_schema.named)

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
