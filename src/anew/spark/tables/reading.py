"""A table as a DataFrame: one task per segment, read as nodes read it for queries."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from anew.core.tables.columns import Column
from anew.core.tables.segment import Build
from anew.deepstore.open import open_deep_store
from anew.spark.tables.segmenttask import scratch_folder
from anew.spark.worker import begin_task, required_build
from anew.sql.query import Limits, QueryEngine
from anew.sql.views import SegmentFile, TableView

_PLACE = "place"
_MEMORY_BYTES = 512 * 1024 * 1024
_SECONDS = 24 * 3_600.0


@dataclass(frozen=True, slots=True)
class TableSource:
    """What crosses to the executors.

    Attributes:
        deep_store: The root to open.
        builds: The builds of the table's segments.
    """

    name: str
    deep_store: str
    columns: tuple[Column, ...]
    builds: tuple[Build, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them; what an old segment lacks is its default, or null."""
        return pa.schema([pa.field(column.name, column.arrow_type) for column in self.columns])


def read_segments(spark: SparkSession, source: TableSource) -> DataFrame:
    """All rows of the segments, with the wanted columns in the wanted types.

    Evaluated lazily, from the builds that were named: a later refresh does not change what is read.
    """
    places = max(1, len(source.builds))
    frame = spark.range(0, places, 1, places).toDF(_PLACE)
    return frame.mapInArrow(_reading(source), from_arrow_schema(source.schema))


def _reading(source: TableSource) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    build = required_build()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(build)
        for batch in batches:
            numbers: list[int] = batch.column(0).to_numpy().tolist()
            for number in numbers:
                yield from rows_of(source, source.builds[number : number + 1])

    return run


def rows_of(source: TableSource, builds: Sequence[Build]) -> Iterator[pa.RecordBatch]:
    """The rows of builds, fetched and checked, in the task's process.

    Raises:
        Failed: ``checksum_mismatch``, ``file_missing``; ``query_failed``: a file is damaged.
        InvalidRequest: ``bad_query``: a value does not fit what the table wants now.
        Unreachable: The deep store does not answer.
    """
    store = open_deep_store(source.deep_store)
    limits = Limits(memory_bytes=_MEMORY_BYTES, seconds=_SECONDS, rows=2**62, threads=1)
    with tempfile.TemporaryDirectory(prefix="anew-read-", dir=scratch_folder()) as folder:
        for number, build in enumerate(builds):
            path = Path(folder) / f"{number}.parquet"
            store.download(build.path, path, build.sha256)
            view = TableView(source.name, source.columns, (_segment_file(build, path),))
            engine = QueryEngine([view], spill_directory=folder)
            try:
                for batch in engine.rows(source.name, limits):
                    yield from pa.Table.from_batches([batch]).cast(source.schema).to_batches()
            finally:
                engine.close()
            path.unlink()


def _segment_file(build: Build, path: Path) -> SegmentFile:
    stored = {name: stats for name, stats in build.contents.columns.items() if not stats.filled}
    return SegmentFile(
        str(path),
        {name: stats.type for name, stats in stored.items()},
        segment=build.path,
        nulls=frozenset(name for name, stats in stored.items() if stats.nulls),
        foreign=build.config_hash is None,
    )
