"""The files of a push or a load as a Spark scan: a task for each group of pieces, which reads them itself.

Rows go from the file to what the task makes of them in one process: no JVM lies between that would read them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anew.codec.filerows import FileRows
from anew.core.errors import AnewError
from anew.core.stores.plan import PushInput
from anew.spark.failures import TaskFailed
from anew.spark.inputfiles import Piece, Wanted, plan_pieces, read_piece
from anew.spark.worker import begin_task, required_build

FILE, PLACE, CORRUPT = "__file", "__place", "__corrupt"
"""The file of a row as a URI, its line or number there, and the text of a row that did not parse, else null."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Reading:
    """What crosses to the executors.

    Attributes:
        files: Format and options.
        wanted: The columns.
        groups: What each task reads.
    """

    files: PushInput
    wanted: Wanted
    groups: tuple[tuple[Piece, ...], ...]

    def rows(self, index: int, now_reading: Callable[[str], object]) -> Batches:
        """The rows of one task: the wanted columns that the file has, `FILE`, `PLACE` and `CORRUPT`.

        Args:
            index: Which task.
            now_reading: Called with the path of each piece before it is read.
        """
        for piece in self.groups[index] if self.groups else ():
            now_reading(piece.path)
            uri = Path(piece.path).as_uri()
            for rows in read_piece(piece, self.files, self.wanted):
                yield from placed(uri, rows)


@dataclass(frozen=True, slots=True)
class InputScan:
    """A scan that has not begun."""

    spark: SparkSession
    reading: Reading

    def map_rows(self, run: Callable[[Batches], Batches], schema: Any) -> DataFrame:
        """What a function makes of each task's rows.

        Args:
            run: Called once in each task.
            schema: Spark's schema of what it gives.
        """
        count = max(1, len(self.reading.groups))
        # A row for each task: nothing of it is used.
        frame = self.spark.range(0, count, 1, count)
        return frame.mapInArrow(_reading_task(self.reading, run), schema)


def scan_input(spark: SparkSession, files: PushInput, paths: list[str], wanted: Wanted) -> InputScan:
    """A scan of files.

    Raises:
        InvalidRequest: ``unreadable_input``, ``bad_option``.
    """
    groups = plan_pieces(files, paths, spark.sparkContext.defaultParallelism)
    return InputScan(spark, Reading(files.model_copy(update={"paths": ()}), wanted, groups))


def placed(uri: str, rows: FileRows) -> Batches:
    """Rows with their file and place; those that did not parse follow, with nothing but their text."""
    if rows.batch.num_rows:
        yield _with_place(rows.batch, uri, pa.array(rows.lines), pa.nulls(rows.batch.num_rows, pa.string()))
    if rows.unparsed:
        count = len(rows.unparsed)
        nothing = [pa.nulls(count, column.type) for column in rows.batch.columns]
        empty = pa.RecordBatch.from_arrays(nothing, schema=rows.batch.schema) if nothing else rows.batch
        lines = pa.array([row.line for row in rows.unparsed], pa.int64())
        yield _with_place(empty, uri, lines, pa.array([row.text for row in rows.unparsed], pa.string()))


def _with_place(batch: pa.RecordBatch, uri: str, lines: Any, corrupt: Any) -> pa.RecordBatch:
    count = len(lines)
    arrays: list[Any] = [*batch.columns, pa.repeat(pa.scalar(uri), count), lines, corrupt]
    fields = [pa.field(FILE, pa.string()), pa.field(PLACE, pa.int64()), pa.field(CORRUPT, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*batch.schema, *fields]))


def _of_file(error: AnewError, paths: list[str]) -> AnewError:
    """The error with the name of the file that was read last in its message."""
    if not paths or paths[-1] in error.message:
        return error
    message = f"{paths[-1]}: {error.message}"
    return type(error)(error.code, message, found=error.found, expected=error.expected, hint=error.hint)


def _reading_task(reading: Reading, run: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    build = required_build()

    def task(batches: Batches) -> Batches:
        for _ in batches:
            pass
        index = begin_task(build).partitionId()
        paths: list[str] = []
        try:
            yield from run(reading.rows(index, paths.append))
        except AnewError as error:
            raise TaskFailed(_of_file(error, paths)) from error

    return task
