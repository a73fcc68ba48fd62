"""The tasks of a load that make segments: one per segment, out of the rows that were dealt to it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict
from pyspark.sql import DataFrame

from anew.core.errors import AnewError, Failed, error_from_json
from anew.core.tables.config import SegmentConfig
from anew.core.tables.dealing import Deal
from anew.core.tables.segment import Contents
from anew.deepstore.open import open_deep_store
from anew.segments.layout import build_path
from anew.segments.tables.rebuild import make_file
from anew.spark.failures import reason_of
from anew.spark.tables.scan import SEGMENT
from anew.spark.tables.segmenttask import put_file, scratch_folder
from anew.spark.worker import begin_task, required_build

_MADE = "made string"


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What crosses to the executors."""

    deep_store: str
    directory: str
    config: SegmentConfig
    dealt: Deal


class MadeSegment(BaseModel):
    """A segment that a task made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    segment: str
    path: str
    attempt: str
    bytes: int
    sha256: str
    contents: Contents
    rows_read: int
    rows_filtered: int


def write_segments(rows: DataFrame, task: WriteTask) -> list[MadeSegment]:
    """Make all segments.

    Raises:
        AnewError: What a task ended with; `Failed` ``build_failed``: Spark did; ``segment_missing``.
    """
    try:
        answers = rows.mapInArrow(_writing(task), _MADE).collect()
    except AnewError:
        raise
    except Exception as error:
        raise reason_of(error) from error
    told = [json.loads(answer["made"]) for answer in answers]
    for each in told:
        if "error" in each:
            raise error_from_json(each["status"], each["error"])
    made = [MadeSegment.model_validate(each) for each in told if "segment" in each]
    if sorted(each.segment for each in made) != sorted(task.dealt.names):
        raise Failed(
            "segment_missing", "not every segment was made once", found=len(made), expected=len(task.dealt.names)
        )
    return made


def _writing(task: WriteTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    build = required_build()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = begin_task(build)
        held = [batch for batch in batches if batch.num_rows]
        try:
            text = _made(task, context.partitionId(), f"t{context.taskAttemptId()}", held).model_dump_json()
        except AnewError as error:
            text = json.dumps({"status": error.http_status, "error": error.to_json()}, default=str)
        yield pa.RecordBatch.from_pydict({"made": [text]})

    return run


def _made(task: WriteTask, index: int, attempt: str, held: list[pa.RecordBatch]) -> MadeSegment:
    rows = sum(batch.num_rows for batch in held)
    if rows != task.dealt.rows[index] or any((_numbers(batch) != index).any() for batch in held):
        raise Failed(
            "rows_lost",
            f"{task.dealt.names[index]} did not get the rows that were counted for it: did the input change meanwhile?",
            found=rows,
            expected=task.dealt.rows[index],
            hint="load again",
        )
    name = task.dealt.names[index]
    table = pa.Table.from_batches(held).drop_columns([SEGMENT])
    with tempfile.TemporaryDirectory(prefix="anew-segment-", dir=scratch_folder()) as folder:
        file = Path(folder) / "segment.parquet"
        rebuilt = make_file(table, file, task.config)
        path = build_path(task.directory, name, attempt)
        put_file(open_deep_store(task.deep_store), file, path, rebuilt)
    return MadeSegment(
        segment=name,
        path=path,
        attempt=attempt,
        bytes=rebuilt.bytes,
        sha256=rebuilt.sha256,
        contents=rebuilt.contents,
        rows_read=rebuilt.rows_read,
        rows_filtered=rebuilt.rows_filtered,
    )


def _numbers(batch: pa.RecordBatch) -> Any:
    return batch.column(SEGMENT).to_numpy(zero_copy_only=False)
