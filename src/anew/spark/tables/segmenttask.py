"""One segment, rebuilt by one Spark task: fetch, prove or make again, verify, put into the deep store."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession

from anew.core.errors import AnewError, Failed, error_from_json
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Build, Contents
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.segments.layout import build_path
from anew.segments.tables.inspect import contents_of
from anew.segments.tables.prove import shortfalls
from anew.segments.tables.rebuild import RebuildJob, Rebuilt, rebuild_file
from anew.spark.failures import reason_of
from anew.spark.worker import begin_task, required_build


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """What crosses to the executor.

    Attributes:
        deep_store: The root to open.
        directory: Where the driver's builds go.
        source: The build that is read.
        source_config: With what it was made; None: it was imported.
        wanted: With what it is to be made.
    """

    deep_store: str
    directory: str
    segment: str
    source: Build
    source_config: SegmentConfig | None
    wanted: SegmentConfig


class SegmentAnswer(BaseModel):
    """What a task says.

    Attributes:
        path: Where the new file lies; the source's own where nothing had to be made.
        why: What the source's bytes lacked, empty where nothing had to be made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    bytes: int
    sha256: str
    contents: Contents
    rows_read: int
    rows_filtered: int
    why: tuple[str, ...] = ()
    attempt: str = ""


def rebuild_on_spark(spark: SparkSession, task: SegmentTask) -> SegmentAnswer:
    """Run a job of one task.

    Raises:
        AnewError: What the task ended with, with its own code; `Failed` ``build_failed``: Spark did.
    """
    try:
        # Without Spark's SQL, whose planning takes as long as a quarter of a million rows.
        (text,) = spark.sparkContext.parallelize([0], 1).mapPartitions(_running(task)).collect()
    except AnewError:
        raise
    except Exception as error:
        raise reason_of(error) from error
    told = json.loads(text)
    if "error" in told:
        raise error_from_json(told["status"], told["error"])
    return SegmentAnswer.model_validate(told)


def _running(task: SegmentTask) -> Callable[[Iterable[int]], Iterable[str]]:
    build = required_build()

    def run(items: Iterable[int]) -> Iterator[str]:
        context = begin_task(build)
        # Spark uses a worker again only when it has read all.
        deque(items, maxlen=0)
        try:
            text = rebuild_segment(task, f"t{context.taskAttemptId()}").model_dump_json()
        except AnewError as error:
            text = json.dumps({"status": error.http_status, "error": error.to_json()}, default=str)
        yield text

    return run


def rebuild_segment(task: SegmentTask, attempt: str) -> SegmentAnswer:
    """Prove that the bytes are right as they are, or make them again; in the task's process.

    Raises:
        Failed: ``checksum_mismatch``, ``file_missing``; what `anew.segments.tables.rebuild.rebuild_file` raises.
        Unreachable: The deep store does not answer.
    """
    store = open_deep_store(task.deep_store)
    with tempfile.TemporaryDirectory(prefix="anew-segment-", dir=scratch_folder()) as folder:
        source = Path(folder) / "source.parquet"
        store.download(task.source.path, source, task.source.sha256)
        known = task.source.contents
        lacking = shortfalls(source, known, task.source_config, task.wanted)
        if not lacking:
            contents = contents_of(source, task.wanted, known.filled)
            return SegmentAnswer(
                path=task.source.path,
                bytes=task.source.bytes,
                sha256=task.source.sha256,
                contents=contents,
                rows_read=contents.rows,
                rows_filtered=0,
            )
        target = Path(folder) / "target.parquet"
        rebuilt = rebuild_file(source, target, RebuildJob(task.wanted, task.source_config, known))
        path = build_path(task.directory, task.segment, attempt)
        put_file(store, target, path, rebuilt)
        return SegmentAnswer(
            path=path,
            bytes=rebuilt.bytes,
            sha256=rebuilt.sha256,
            contents=rebuilt.contents,
            rows_read=rebuilt.rows_read,
            rows_filtered=rebuilt.rows_filtered,
            why=lacking,
            attempt=attempt,
        )


def put_file(store: DeepStore, file: Path, path: str, rebuilt: Rebuilt) -> None:
    """Put a finished file to its fresh path, and read it back (case D2).

    Raises:
        Failed: ``checksum_mismatch``.
    """
    with file.open("rb") as content, store.write(path) as sink:
        shutil.copyfileobj(content, sink, 4 * 1024 * 1024)
    found = store.checksum(path)
    if found != rebuilt.sha256:
        raise Failed(
            "checksum_mismatch", f"{path} was not stored as it was written", found=found, expected=rebuilt.sha256
        )


def scratch_folder() -> str | None:
    """Where Spark keeps what it spills; what a task leaves there goes with the executor."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return folders[os.getpid() % len(folders)] or None
