"""The files of a load as a Spark scan: rows → typed columns, dealt to segments, with an account of misfits.

Two passes over the same files: the first counts rows per task and group, so that the second knows of each row in which
segment it belongs, without a shuffle that would have to count. Both must find the same; the writers check it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import field as of_class
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from anew.codec.avro import parse_schema
from anew.codec.casting import Cast
from anew.codec.misfit import describe
from anew.codec.nodes import CALLED
from anew.codec.vector import Misfit
from anew.core.errors import AnewError
from anew.core.tables.columns import Column
from anew.core.tables.config import SegmentConfig
from anew.core.tables.dealing import Deal, groups_of
from anew.segments.tables.partitions import partition_numbers
from anew.spark.failures import reason_of
from anew.spark.inputcolumns import EncodeTask, cast_selected
from anew.spark.inputscan import CORRUPT, FILE, InputScan

_COUNTED = "counted string"
_EXAMPLES = 20
SEGMENT = "__segment"
NO_KEY = '{"type": "record", "name": "NoKey", "fields": []}'


@dataclass(frozen=True, slots=True)
class LoadTask:
    """What crosses to the executors: how rows become those of the table.

    Attributes:
        encode: The columns that are read, and their types as Avro says them.
        config: The table's configuration.
        bucket: Into which spans of time rows are dealt.
    """

    encode: EncodeTask
    config: SegmentConfig
    bucket: str | None


@dataclass(slots=True)
class Counted:
    """What a task of the first pass found.

    Attributes:
        groups: Group → how many rows of it fit.
        read: How many rows there were.
        bad: How many did not fit.
        bad_files: Which files they are in.
    """

    task: int
    groups: dict[str, int] = of_class(default_factory=dict)
    read: int = 0
    bad: int = 0
    bad_files: list[str] = of_class(default_factory=list)


def avro_schema(columns: tuple[Column, ...]) -> str:
    """The columns as an Avro record: what casting of text and of typed columns goes by."""
    fields = []
    for column in columns:
        kind = {**_avro_type(column.type), CALLED: column.type}
        field: dict[str, Any] = {"name": column.name, "type": ["null", kind] if column.nullable else kind}
        if column.nullable and column.default is None:
            # A file may lack it where others have it.
            field["default"] = None
        fields.append(field)
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


def count_rows(scan: InputScan, task: LoadTask) -> list[Counted]:
    """The first pass, by task.

    Raises:
        Failed: ``build_failed``; what a file is refused for, with its name.
    """
    rows = _collected(scan.map_rows(_counting(task), _COUNTED))
    return sorted((Counted(**json.loads(row["counted"])) for row in rows), key=lambda counted: counted.task)


def dealt_rows(scan: InputScan, task: LoadTask, dealt: Deal) -> DataFrame:
    """The second pass: the rows that fit, where they belong: in one Spark partition per segment."""
    schema = task.config.arrow_schema.append(pa.field(SEGMENT, pa.int32()))
    read = pa.schema([schema.field(name) for name in [*task.encode.value, SEGMENT]])
    rows = scan.map_rows(_dealing(task, dealt), from_arrow_schema(read))
    return rows.repartitionById(len(dealt.names), F.col(SEGMENT))


def _counting(task: LoadTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted = Counted(_task_number())
        files: set[str] = set()
        for batch in batches:
            rows, kept = _fitting(batch, task)
            counted.read += batch.num_rows
            counted.bad += batch.num_rows - rows.num_rows
            if rows.num_rows < batch.num_rows:
                bad = batch.column(FILE).filter(pa.array(~kept))
                files.update(str(name) for name in bad.unique().to_pylist())
            numbers, groups = _groups(rows, task)
            for group, count in zip(groups, np.bincount(numbers, minlength=len(groups)).tolist(), strict=True):
                counted.groups[group.key] = counted.groups.get(group.key, 0) + count
        counted.bad_files = sorted(files)
        text = json.dumps({name: getattr(counted, name) for name in Counted.__slots__})
        yield pa.RecordBatch.from_pydict({"counted": [text]})

    return run


def _dealing(task: LoadTask, dealt: Deal) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _task_number()
        seen: dict[str, int] = {}
        for batch in batches:
            rows, _ = _fitting(batch, task)
            numbers, groups = _groups(rows, task)
            segments = np.zeros(rows.num_rows, np.int32)
            for number, group in enumerate(groups):
                mine = numbers == number
                count = int(mine.sum())
                first = dealt.first[index, group.key] + seen.get(group.key, 0)
                seen[group.key] = seen.get(group.key, 0) + count
                segments[mine] = dealt.base[group.key] + (first + np.arange(count)) // dealt.most
            yield rows.append_column(SEGMENT, pa.array(segments))

    return run


def _task_number() -> int:
    context = TaskContext.get()
    if context is None:
        raise AssertionError("runs inside a Spark task")
    return context.partitionId()


def _fitting(batch: pa.RecordBatch, task: LoadTask) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]]:
    """The rows that fit, with the table's own types, and which of the batch they are."""
    names = task.encode.value
    keep = batch.column(CORRUPT).is_null().to_numpy(zero_copy_only=False)
    positions = keep.nonzero()[0]
    cast = cast_selected(parse_schema(task.encode.value_schema), batch.take(positions), names)
    fits = np.asarray(cast.kept)
    columns: list[Any] = []
    within = np.ones(cast.batch.num_rows, np.bool_)
    for name in names:
        column, held = cast.batch.column(name), task.config.by_name[name].arrow_type
        narrowed, good = _narrowed(column, held)
        columns.append(narrowed)
        within &= good
    rows = pa.RecordBatch.from_arrays(columns, names=list(names))
    if not within.all():
        rows = rows.filter(pa.array(within))
    kept = np.zeros(batch.num_rows, np.bool_)
    kept[positions[fits][within]] = True
    return rows, kept


def too_large(cast: Cast, config: SegmentConfig) -> list[Misfit]:
    """Values that Avro's type holds, while the table's own does not; with their rows in what was cast."""
    rows = np.flatnonzero(np.asarray(cast.kept))
    misfits = []
    for name, column in zip(cast.batch.schema.names, cast.batch.columns, strict=True):
        _, good = _narrowed(column, config.by_name[name].arrow_type)
        values: Any = column
        for at in np.flatnonzero(~good).tolist():
            found = describe(values[at].as_py())
            misfits.append(Misfit(int(rows[at]), name, found, config.by_name[name].type))
    return misfits


def _narrowed(column: Any, held: pa.DataType) -> tuple[Any, np.ndarray[Any, Any]]:
    """A column that Avro's types hold in the table's own type; what does not fit there is marked."""
    good = np.ones(len(column), np.bool_)
    if pa.types.is_timestamp(held):
        return column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).cast(held), good
    if pa.types.is_int16(held):
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        good = (values >= np.iinfo(np.int16).min) & (values <= np.iinfo(np.int16).max)
        return column.cast(held, safe=False), good
    return column.cast(held), good


def _groups(rows: pa.RecordBatch, task: LoadTask) -> Any:
    partitioning = task.config.partition
    placed = None if partitioning is None else partition_numbers(rows.column(partitioning.column), partitioning)
    return groups_of(rows, task.config, task.bucket, placed)


def _collected(frame: DataFrame) -> list[Any]:
    try:
        return frame.collect()
    except AnewError:
        raise
    except Exception as error:
        raise reason_of(error) from error


def _avro_type(kind: str) -> dict[str, Any]:
    if kind.startswith("decimal"):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return {"type": "bytes", "logicalType": "decimal", "precision": int(precision), "scale": int(scale)}
    return _AVRO_TYPES[kind]


_AVRO_TYPES: dict[str, dict[str, Any]] = {
    "boolean": {"type": "boolean"},
    "smallint": {"type": "int"},
    "integer": {"type": "int"},
    "bigint": {"type": "long"},
    "real": {"type": "float"},
    "double": {"type": "double"},
    "varchar": {"type": "string"},
    "blob": {"type": "bytes"},
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
}
