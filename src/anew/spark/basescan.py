"""The base of a version as a Spark scan."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anew.core.rows import ROWS
from anew.deepstore.interface import DeepStore
from anew.segments.basefile import ROW_GROUP_ROWS
from anew.segments.manifest import Manifest
from anew.spark.frames import Kind, no_rows, spark_schema

_SPLIT_BYTES = "spark.sql.files.maxPartitionBytes"
_OPEN_COST = "spark.sql.files.openCostInBytes"


def scan_base(spark: SparkSession, store: DeepStore, manifest: Manifest, max_records: int) -> DataFrame:
    """The rows of a version's base files, columns `SCANNED`.

    A task reads whole row groups, about ``max_records`` rows of them: Spark cuts files by bytes, so that the limit is
    turned into bytes by the files' own density. Less than a row group is never asked for: it would only make tasks
    that find nothing to read.
    """
    files = manifest.files
    if not files:
        return no_rows(spark)
    rows = sum(file.rows + file.tombstones for file in files)
    largest_group = min(ROW_GROUP_ROWS, max(file.rows + file.tombstones for file in files))
    bytes_per_row = sum(file.bytes for file in files) / max(rows, 1)
    wanted = max(1, int(bytes_per_row * max(max_records, largest_group)))
    present = int(str(spark.conf.get(_SPLIT_BYTES, "134217728")).removesuffix("b"))
    spark.conf.set(_SPLIT_BYTES, str(min(present, wanted)))
    # An open file costs as much as a split, so that files are not packed together beyond the limit.
    spark.conf.set(_OPEN_COST, str(min(wanted, 4 * 1024 * 1024)))
    paths = [store.absolute(file.path) for file in files]
    scanned = spark.read.schema(spark_schema(ROWS)).parquet(*paths)
    return scanned.withColumn("kind", F.lit(int(Kind.BASE)).cast("tinyint"))
