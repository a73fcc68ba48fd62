"""Avro container files as a Spark data source, one task per file; no jar is needed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from anew.codec.container import read_container


class AvroSource(DataSource):
    """Options: ``files`` (URIs), ``columns`` (names), ``schema`` (Spark's JSON of the output)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "anew_avro"

    def schema(self) -> StructType:
        """The columns as text (nested values as JSON), then file, row number and no parse error."""
        names = json.loads(self.options["columns"])
        fields = [StructField(name, StringType()) for name in names]
        place = [StructField("__file", StringType()), StructField("__block", LongType())]
        return StructType([*fields, *place, StructField("__corrupt", StringType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        """One reader per query."""
        return AvroSourceReader(json.loads(self.options["files"]), json.loads(self.options["columns"]))


class AvroSourceReader(DataSourceReader):
    """Reads whole files."""

    def __init__(self, files: list[str], columns: list[str]) -> None:
        """Read these columns of these files."""
        self._files, self._columns = files, columns

    def partitions(self) -> list[InputPartition]:
        """One Spark partition per file."""
        return [InputPartition(index) for index in range(len(self._files))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        uri, first = self._files[partition.value], 0
        with Path(unquote(urlparse(uri).path)).open("rb") as source:
            for batch in read_container(source, self._columns):
                texts: list[Any] = [
                    pa.array([_text(v) for v in column.to_pylist()], pa.string()) for column in batch.columns
                ]
                count = batch.num_rows
                place: list[Any] = [
                    pa.repeat(uri, count),
                    pa.array(range(first, first + count), pa.int64()),
                    pa.nulls(count, pa.string()),
                ]
                first += count
                yield pa.RecordBatch.from_arrays(
                    [*texts, *place], names=[*self._columns, "__file", "__block", "__corrupt"]
                )


def _text(value: Any) -> str | None:
    """A value as the text that `anew.codec.vector.cast_columns` reads."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return json.dumps(value, default=str)
