"""The columns of what a rebuild's tasks scan and merge."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from anew.core.rows import ROWS


class Kind(IntEnum):
    """What a row of the query is."""

    BASE = 0
    """A record of the source's base; its value is compressed by the source's codec."""
    RAW = 1
    """A record of a feed or of a push; its value is an Avro body."""
    REPORT = 2
    """No record: what a scanning task says of itself (JSON in ``value``). Rows, not accumulators: a task that ran twice
    is counted once."""


_KIND: Any = pa.field("kind", pa.int8(), nullable=False)
_COLUMNS: list[Any] = [*ROWS, _KIND]
SCANNED = pa.schema(_COLUMNS)
"""`ROWS` and the kind."""
_HELD: Any = pa.field("held", pa.bool_(), nullable=False)
HELD = pa.schema([*SCANNED, _HELD])
"""`SCANNED` and whether the row is of the source's base, which a winner inherits from its key's other rows (R12)."""

_SPARK_TYPES = {
    pa.binary(): BinaryType(),
    pa.int8(): ByteType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema of flat columns."""
    return StructType([StructField(field.name, _SPARK_TYPES[field.type], field.nullable) for field in schema])


def as_scanned(rows: pa.RecordBatch, kind: Kind) -> pa.RecordBatch:
    """Rows of one kind with the column that `SCANNED` adds to `ROWS`."""
    kinds = pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, kinds], schema=SCANNED)


def with_held(rows: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> pa.RecordBatch:
    """Rows of the columns `SCANNED` with the column that `HELD` adds."""
    return pa.RecordBatch.from_arrays([*rows.columns, pa.array(kinds == int(Kind.BASE))], schema=HELD)


def is_report(rows: pa.RecordBatch) -> bool:
    """Whether a batch of scanned rows is a task's report: that comes as a batch of its own."""
    return rows.num_rows == 1 and rows.column("kind")[0].as_py() == int(Kind.REPORT)


def report_row(report: dict[str, Any]) -> pa.RecordBatch:
    """A scanning task's report as a row."""
    row: dict[str, Any] = {
        "key": b"",
        "value": json.dumps(report).encode(),
        "schema_id": 0,
        "time": 0,
        "origin": b"",
        "append_timed": False,
        "incarnation": 0,
        "feed_partition": 0,
        "offset": 0,
        "hash": 0,
        "kind": int(Kind.REPORT),
    }
    return pa.RecordBatch.from_pylist([row], schema=SCANNED)
