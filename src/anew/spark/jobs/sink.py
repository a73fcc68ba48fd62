"""What a job's function made, appended to the topic of its output: encoded, placed by key, and with its identity.

The frame of a batch is evaluated once. Each task appends what it holds, in its order, and says in the end which ranges
of the output it appended to. While a block is on its way, to all partitions of the output at once, the next one is
made. What an attempt appended that died lies there too: whose records count is decided by the record of the batch
(`anew.core.jobs.batch`), and between equal stamps by the sequence (rule R20).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from anew.api.location import LogLocation
from anew.codec.avro import AvroSchema, parse_schema
from anew.codec.vector import encode_table
from anew.core.arrow import concat, take
from anew.core.errors import Failed, InvalidRequest
from anew.core.hashing import key_hashes
from anew.core.identity import ATTEMPT_BITS, identified_origins, sequences
from anew.core.jobs.batch import OutputRange, TaskOutput
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Origin
from anew.log.interface import APPEND_RECORDS, Appended, Log, TopicPartition, identified
from anew.log.open import BUILD_TIMEOUT_SECONDS, open_log
from anew.spark.failures import reason_of, told_to_driver
from anew.spark.inputcolumns import cast_selected
from anew.spark.jobs.decoding import DELETED, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from anew.spark.worker import begin_task, required_build

WRITTEN_AT = "written_at"
_TAKEN = frozenset({KEY, VALUE, WRITTEN_AT, DELETED})
_PASSED_OVER = frozenset({TIMESTAMP, PARTITION, OFFSET})
"""Columns of an input's frame that a function may leave in what it gives."""
_APPENDED_ROWS = 50_000
"""Rows that a task gathers before it appends: an append to each partition costs a round trip, or a write to disk."""
_APPENDS_AT_ONCE = 8

_LOGS: dict[tuple[LogLocation, int], Log] = {}
"""Open logs of this worker, one for all of its tasks."""


@dataclass(frozen=True, slots=True)
class SinkTask:
    """What crosses to the tasks that append.

    Attributes:
        location: Where the output's log is.
        topic, uid, partitions: The output's topic.
        key_schema, value_schema: Avro texts.
        schema_id: The id of the value's schema.
        key_schema_id: What wire headers of keys say.
        origin: The generation's.
        skew_limit_ms: How far ahead of its append time a record's time may be (rule R6).
    """

    location: LogLocation
    topic: str
    uid: str
    partitions: int
    key_schema: str
    value_schema: str
    schema_id: int
    key_schema_id: int
    origin: Origin
    skew_limit_ms: int
    clock: Callable[[], int]


def check_output(given: Sequence[tuple[str, str]]) -> None:
    """Raise unless a function's frame has what a store takes.

    Args:
        given: Names of columns, each with Spark's type, as text.

    Raises:
        InvalidRequest: ``missing_column``, ``unknown_column``, ``column_twice``, ``no_written_at``.
    """
    columns = dict(given)
    if len(columns) < len(given):
        raise InvalidRequest(
            "column_twice",
            "the function gives columns of the same name",
            found=", ".join(name for name, _ in given),
            expected="each name once",
        )
    unknown = sorted(columns.keys() - _TAKEN - _PASSED_OVER)
    if unknown:
        raise InvalidRequest(
            "unknown_column",
            "the function gives columns that mean nothing to a store",
            found=", ".join(unknown),
            expected=f"only {', '.join(sorted(_TAKEN))}, and columns of the input",
            hint="put what is to be kept into value: F.struct(…).alias('value')",
        )
    if KEY not in columns or (VALUE not in columns and DELETED not in columns):
        raise InvalidRequest(
            "missing_column",
            "the function gives no key, or no value",
            found=", ".join(sorted(columns)),
            expected=f"{KEY}, and {VALUE} (null for a delete) or {DELETED}",
        )
    if not columns.keys() & {WRITTEN_AT, TIMESTAMP}:
        raise InvalidRequest(
            "no_written_at",
            "nothing says when what the function gives was written",
            found=", ".join(sorted(columns)),
            expected=f"a column {WRITTEN_AT}, or the input's {TIMESTAMP}",
            hint="keep the input's timestamp, or name a column written_at",
        )


def check_types(frame: DataFrame, key_schema: str | None, value_schema: str | None) -> pa.Schema:
    """The Arrow columns of a frame, if their types fit an output's schemas.

    Args:
        frame: What a function gives.
        key_schema: The Avro text of the output's keys; None: they are not looked at.
        value_schema: Likewise of its values.

    Raises:
        InvalidRequest: ``column_type``, ``missing_column``: no value of a column could fit; ``unknown_member``: a
            struct has what no field takes, and what would be lost.
    """
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    _check_types_of_ours(schema)
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    for column, text in ((KEY, key_schema), (VALUE, value_schema)):
        if text is not None and column in schema.names:
            avro = parse_schema(text)
            _check_members(avro, schema.field(column))
            _encoded(avro, empty, column)
    return schema


def _check_members(schema: AvroSchema, column: Any) -> None:
    if not schema.fields or not pa.types.is_struct(column.type):
        return
    names = [column.type.field(number).name for number in range(column.type.num_fields)]
    if len(set(names)) < len(names) or set(names) - schema.fields.keys():
        raise InvalidRequest(
            "unknown_member",
            f"the function gives a {column.name} with members that the output has no fields for",
            found=", ".join(names),
            expected=f"of {', '.join(schema.fields)}, each once",
            hint="leave them out, or give the output a schema with them",
        )


def _check_types_of_ours(schema: pa.Schema) -> None:
    """Raise unless ``deleted`` and the time have types that say what they are to say."""
    wanted: dict[str, tuple[Callable[[Any], bool], str]] = {
        DELETED: (pa.types.is_boolean, "a boolean"),
        WRITTEN_AT: (lambda of: pa.types.is_timestamp(of) or pa.types.is_int64(of), "a timestamp, or a long of ms"),
        TIMESTAMP: (pa.types.is_timestamp, "a timestamp"),
    }
    for column in schema:
        if column.name in wanted and not wanted[column.name][0](column.type):
            raise InvalidRequest(
                "column_type",
                f"the column {column.name} has another type than it may have",
                found=str(column.type),
                expected=wanted[column.name][1],
                hint="cast it in the function",
            )


def append_frame(frame: DataFrame, task: SinkTask, batch: int, epoch: int) -> list[TaskOutput]:
    """Append the rows of a batch's frame; what the task attempts that count appended, by task.

    Raises:
        Failed: What a task raised: ``output_misfit``, ``written_at_out_of_range``, what the log or the function raised.
    """
    run = _appender(task, batch, epoch, required_build())
    try:
        reports = frame.mapInArrow(run, "report string").collect()
    except Exception as error:
        raise reason_of(error) from error
    return sorted((TaskOutput.model_validate_json(row["report"]) for row in reports), key=lambda each: each.task)


def evaluate_frame(frame: DataFrame, task: SinkTask) -> None:
    """Evaluate a frame, and make of its rows what would be appended; nothing is.

    Raises:
        Failed: As `append_frame`, but for what the log of the output raises.
    """
    run = _evaluator(task, required_build())
    try:
        frame.mapInArrow(run, "report string").collect()
    except Exception as error:
        # The same was logged when the batch failed.
        raise reason_of(error, is_logged=False) from error


def _evaluator(task: SinkTask, build: str | None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(build)
        with told_to_driver():
            for rows in batches:
                if rows.num_rows:
                    _records(rows, task)
        yield pa.RecordBatch.from_pydict({"report": pa.array([], pa.string())})

    return run


def _appender(
    task: SinkTask, batch: int, epoch: int, build: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = begin_task(build)
        attempt = context.taskAttemptId()
        with told_to_driver():
            output = _Output(task, batch, epoch, attempt)
            for rows in batches:
                output.add(rows)
            output.flush()
            report = output.report(context.partitionId())
        yield pa.RecordBatch.from_pydict({"report": [report.model_dump_json()]})

    return run


@dataclass(slots=True)
class _Output:
    """One task attempt's pass over its rows."""

    task: SinkTask
    batch: int
    epoch: int
    attempt: int
    rows: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_rows: int = 0
    _ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    _under_way: dict[int, tuple[pa.RecordBatch, Future[Appended]]] = field(default_factory=dict)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows; they are appended when enough of them have come together."""
        if rows.num_rows == 0:
            return
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= _APPENDED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Begin to append what was taken, once what came before is there: one append for each output partition.

        Raises:
            Failed: ``written_at_out_of_range``: readers do not take what was appended.
        """
        if not self._waiting:
            return
        rows, self._waiting, self._waiting_rows = concat(self._waiting), [], 0
        records = _records(rows, self.task)
        numbers = sequences(self.epoch, self.attempt, self.rows, records.num_rows)
        origins = identified_origins(self.task.origin, self.batch, numbers)
        records = records.set_column(APPEND_RECORDS.get_field_index("origin"), APPEND_RECORDS.field("origin"), origins)
        log, task = _log_of(self.task), self.task
        self._settle()
        for partition, part in _dealt(records, task.partitions):
            at = TopicPartition(task.topic, task.uid, partition, task.key_schema_id)
            self._under_way[partition] = part, _appending().submit(log.append, at, identified(part))
        self.rows += records.num_rows

    def _settle(self) -> None:
        """Wait for what is under way.

        Raises:
            Failed: ``written_at_out_of_range``: readers do not take what was appended.
        """
        for partition, (part, appended) in self._under_way.items():
            done = appended.result()
            if done.rejected:
                raise _rejected(part, done, self.task)
            begin, _ = self._ranges.get(partition, (done.first_offset, 0))
            self._ranges[partition] = begin, done.next_offset
        self._under_way.clear()

    def report(self, number: int) -> TaskOutput:
        """What was appended, once it is."""
        self._settle()
        ranges = (OutputRange(partition=p, begin=b, end=e) for p, (b, e) in sorted(self._ranges.items()))
        return TaskOutput(task=number, attempt=self.attempt % (1 << ATTEMPT_BITS), rows=self.rows, ranges=tuple(ranges))


def _records(rows: pa.RecordBatch, task: SinkTask) -> pa.RecordBatch:
    """Rows of a function's frame as records to append, without their identities."""
    count, names = rows.num_rows, rows.schema.names
    deleted = _deleted(rows)
    live = np.flatnonzero(~deleted)
    keys = _encoded(parse_schema(task.key_schema), rows, KEY)
    values = pa.nulls(count, pa.binary())
    if live.size:
        bodies = _encoded(parse_schema(task.value_schema), take(rows, live), VALUE)
        places = np.cumsum(~deleted) - 1
        values = bodies.take(pa.array(places, mask=deleted))
    ids = np.where(deleted, 0, task.schema_id).astype(np.int32)
    times = _times(rows.column(WRITTEN_AT if WRITTEN_AT in names else TIMESTAMP), task)
    columns: list[Any] = [times, pa.array([b""] * count, pa.binary()), keys, pa.array(ids), values]
    return pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS)


def _deleted(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which rows are deletes: said so, or with a null for their value.

    Raises:
        Failed: ``output_misfit``: no value was given at all, for a row that is no delete.
    """
    count, names = rows.num_rows, rows.schema.names
    none = np.zeros(count, dtype=np.bool_)
    said = rows.column(DELETED).fill_null(False).to_numpy(zero_copy_only=False) if DELETED in names else none
    if VALUE not in names and not said.all():
        raise Failed(
            "output_misfit",
            "the function gives no column value, and rows that are no deletes",
            found=f"{DELETED} = false or null, of the key {rows.column(KEY)[int(np.argmin(said))]}",
            expected=f"{DELETED} = true in each row, or a column {VALUE}",
        )
    null = rows.column(VALUE).is_null().to_numpy(zero_copy_only=False) if VALUE in names else none
    deleted: npt.NDArray[np.bool_] = said | null
    return deleted


def _encoded(schema: AvroSchema, rows: pa.RecordBatch, column: str) -> Any:
    """Avro bodies of a column: a struct's members are the fields of a record.

    Raises:
        Failed: ``output_misfit``, with the row's key.
    """
    values = rows.column(column)
    if schema.fields and pa.types.is_struct(values.type):
        struct: Any = values
        table = pa.RecordBatch.from_struct_array(struct)
    else:
        table = pa.RecordBatch.from_arrays([values], names=[column])
    cast = cast_selected(schema, table, tuple(table.schema.names))
    if cast.misfits:
        misfit = cast.misfits[0]
        raise Failed(
            "output_misfit",
            f"the function gives a {column} that the output cannot take",
            found=f"{misfit.column}: {misfit.found}, of the key {rows.column(KEY)[misfit.row]}",
            expected=misfit.expected,
            hint=f"{len({m.row for m in cast.misfits})} rows of this task do not fit; mend the function",
        )
    return encode_table(schema, cast.batch).cast(pa.binary())


def _times(column: Any, task: SinkTask) -> pa.Array[Any]:
    """When rows were written, in ms: a timestamp, or a number of ms.

    Raises:
        Failed: ``written_at_out_of_range``.
    """
    is_time = pa.types.is_timestamp(column.type)
    in_ms = column.cast(pa.timestamp("ms", tz="UTC"), safe=False) if is_time else column
    times: pa.Array[Any] = in_ms.cast(pa.int64())
    latest_ms = task.clock() + task.skew_limit_ms
    numbers = times.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((numbers <= 0) | (numbers > latest_ms))
    if wrong.size:
        raise Failed(
            "written_at_out_of_range",
            "the function gives a time that no reader takes",
            found=f"{times[int(wrong[0])]} ms, in {wrong.size} rows of this task",
            expected=f"more than 0, and at most {task.skew_limit_ms} ms ahead of now",
            hint="give a row the time of its input, never one that is still to come",
        )
    return times


def _rejected(records: pa.RecordBatch, appended: Appended, task: SinkTask) -> Failed:
    """Why a batch fails whose records readers would not take: the log's clock is further behind than this one's."""
    row = appended.rejected[0]
    return Failed(
        "written_at_out_of_range",
        "readers reject records that the function gave, which are dead letters now",
        found=f"written_at {records.column('written_ms')[row]}, {len(appended.rejected)} of {records.num_rows} records",
        expected=f"at most the append time ({appended.last_ms}) + the skew limit ({task.skew_limit_ms} ms)",
        hint="set the clocks right; the batch runs again",
    )


def _dealt(records: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records of each partition of the output, in their order."""
    to = XxHash64Partitioner(partitions).of_hashes(key_hashes(records.column("key")))
    order = np.argsort(to, kind="stable")
    placed, cuts = take(records, order), np.searchsorted(to[order], np.arange(partitions + 1))
    for partition in np.unique(to).tolist():
        begin, end = int(cuts[partition]), int(cuts[partition + 1])
        yield partition, placed.slice(begin, end - begin)


@cache
def _appending() -> Executor:
    """Of this worker; whoever appends waits for its log, not for the processor."""
    return ThreadPoolExecutor(_APPENDS_AT_ONCE, thread_name_prefix="appending")


def _log_of(task: SinkTask) -> Log:
    key = task.location, task.skew_limit_ms
    log = _LOGS.get(key)
    if log is None:
        log = _LOGS[key] = open_log(
            task.location,
            clock=task.clock,
            skew_limit_ms=task.skew_limit_ms,
            timeout_seconds=BUILD_TIMEOUT_SECONDS,
        )
    return log
