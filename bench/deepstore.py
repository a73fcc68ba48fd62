"""Base files in S3: read and written through our own deep store in Spark's Python tasks, beside Spark's own s3a.

The server is a MinIO on the same machine, so that its work is in every figure. Spark's s3a needs jars that PySpark does
not bring; they are fetched with Maven into the cache. In a process whose Spark runs already, or without Maven, there is
no such side.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession, functions

from anew.codec.compression import compressor
from anew.core.rows import ROWS
from anew.deepstore.open import open_deep_store
from anew.deepstore.s3client import s3_client
from anew.segments.basefile import BaseFileWriter
from anew.segments.manifest import BaseFile
from anew.segments.provenfile import read_proven
from anew.spark.session import session_for_queries, spark_session
from anew.spark.stores.frames import spark_schema
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns, timed, times_as_fast
from bench.synthetic import KEY_BYTES, SEED, VALUE_BYTES, BenchStore, make_bench_store, partitions_for
from tests.minio import MinioServer, cached_binary, running_minio

_MAVEN_SECONDS = 300
_S3A = {
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    # Otherwise it keeps what it read inside the JVM, and repetitions read nothing.
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
    # The keys come from the environment, as ours do.
    "spark.hadoop.fs.s3a.aws.credentials.provider": (
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
    ),
}


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with bases of so many records."""
    jars = _jars() if SparkSession.getActiveSession() is None else ()
    with running_minio() as server:
        before = dict(os.environ)
        os.environ.update(server.environment())
        s3_client.cache_clear()
        try:
            conf = {**_S3A, "spark.hadoop.fs.s3a.endpoint": server.url, "spark.jars": ",".join(jars)} if jars else {}
            with spark_session(None, conf) as started:
                spark = session_for_queries(started)
                return [_measure(folder / str(size), size, repeats, (spark, server, bool(jars))) for size in sizes]
        finally:
            os.environ.clear()
            os.environ.update(before)
            s3_client.cache_clear()


def _jars() -> tuple[str, ...]:
    folder = cached_binary().parent.parent / "s3a-3.5.0"
    if not folder.is_dir() and shutil.which("mvn") is not None:
        begun = folder.with_suffix(".begun")
        pom = Path(__file__).with_name("s3a.xml")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={begun}"]
        subprocess.run(command, check=True, timeout=_MAVEN_SECONDS)
        begun.rename(folder)
    return tuple(str(jar) for jar in sorted(folder.glob("*.jar")))


def _measure(folder: Path, records: int, repeats: Repeats, at: tuple[SparkSession, MinioServer, bool]) -> Measured:
    spark, server, has_s3a = at
    folder.mkdir()
    partitions = partitions_for(records)
    bench = make_bench_store(folder, records, updates_share=0.0, partitions=partitions)
    local, remote = open_deep_store(bench.deep_store), f"s3://{server.new_bucket()}/base"
    files = bench.manifest.files
    for path in (file.path for file in files):
        open_deep_store(remote).put(path, local.get(path))
    sides: dict[str, Callable[[], float]] = {
        "read, local": lambda: _counted(_ours(spark, bench.deep_store, files, {}), records),
        "read, S3": lambda: _counted(_ours(spark, remote, files, server.environment()), records),
    }
    if has_s3a:
        schema, s3a = spark_schema(ROWS), [f"s3a{remote.removeprefix('s3')}/{file.path}" for file in files]
        sides["read, s3a"] = lambda: _counted(spark.read.schema(schema).parquet(*s3a), records)
    sides |= {"write, local": lambda: _written(bench, bench.deep_store), "write, S3": lambda: _written(bench, remote)}
    seconds = take_turns(sides, repeats)
    shutil.rmtree(folder)
    figures = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": partitions, "server": "MinIO, here"}
    return Measured(records, seconds, figures=figures)


def _ours(spark: SparkSession, root: str, files: Sequence[BaseFile], environment: Mapping[str, str]) -> DataFrame:
    """The rows of base files as tasks of ours read them."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not environment.items() <= os.environ.items():
            # Where Spark runs already, its workers have the environment of before.
            os.environ.update(environment)
            s3_client.cache_clear()
        store = open_deep_store(root)
        for batch in batches:
            for number in batch.column("id"):
                yield from read_proven(store, files[int(number.as_py())])

    return spark.range(len(files), numPartitions=len(files)).mapInArrow(read, spark_schema(ROWS))


def _counted(rows: DataFrame, expected: int) -> float:
    """Seconds until every row with all columns was in the JVM, and counted there."""
    seen = Observation()
    counted = rows.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    took = timed(lambda: counted.write.format("noop").mode("overwrite").save())
    if seen.get["rows"] != expected:
        raise AssertionError("the sides read other rows")
    return took


def _written(bench: BenchStore, root: str) -> float:
    """Seconds to write, read back and check all base files, one after another."""
    source, target = open_deep_store(bench.deep_store), open_deep_store(root)
    batches = [list(read_proven(source, file)) for file in bench.manifest.files]

    def write() -> None:
        for number, rows in enumerate(batches):
            writer = BaseFileWriter.open(target, f"written/{number}", compressor("none"))
            for batch in rows:
                writer.write(batch)
            writer.close()

    took = timed(write)
    target.delete_tree("written")
    return took


def _writing(found: Sequence[Measured]) -> float:
    """How many times as fast; without a target, because the server works on the same cores."""
    return found[-1].median("write, local") / found[-1].median("write, S3")


BENCHES = (
    Bench(
        "deepstore",
        "base files in S3 (MinIO on this machine) and in a directory; and Spark's own s3a",
        "records",
        (500_000, 1_000_000, 2_000_000),
        (1_000, 2_000),
        (
            times_as_fast("reading, S3 ÷ directory", "read, S3", "read, local", 0.5),
            Claim("writing with its check, S3 ÷ directory", _writing),
        ),
        run,
        SEED,
    ),
)
