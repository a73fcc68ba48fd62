"""The base through the log beside the base as files, each from a repush's plan to the reader that gets its version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from anew.api.location import LogLocation
from anew.runtime.connect import Cluster
from anew.spark.session import session_for_queries, spark_session
from bench.brokers import check_brokers, running_broker
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns
from bench.rebuilding import make_logged_store, running_cluster
from bench.synthetic import KEY_BYTES, PARTITIONS, SEED, VALUE_BYTES

_TRANSPORTS = ("files", "log")


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many records in the feed, on a broker and on the embedded log."""
    seconds: dict[int, dict[str, list[float]]] = {size: {} for size in sizes}
    with spark_session(None, {}) as started:
        spark = session_for_queries(started)
        for where in ("Kafka", "embedded"):
            at = folder / where
            at.mkdir()
            with _log(at, where) as log, running_cluster(at, log) as cluster:
                for size in sizes:
                    seconds[size] |= _measure(cluster, spark, where, size, repeats)
    figures = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": PARTITIONS}
    return [Measured(size, seconds[size], figures=figures) for size in sizes]


@contextmanager
def _log(folder: Path, where: str) -> Iterator[LogLocation | None]:
    if where == "embedded":
        yield None
        return
    with running_broker(folder) as log:
        yield log


def _measure(
    cluster: Cluster, spark: SparkSession, where: str, records: int, repeats: Repeats
) -> dict[str, list[float]]:
    stores = {
        transport: make_logged_store(cluster, spark, f"{transport}{records}", records, transport)
        for transport in _TRANSPORTS
    }
    found = take_turns(
        {f"{transport}, {where}": partial(store.repushed, spark) for transport, store in stores.items()}, repeats
    )
    for store in stores.values():
        cluster.controller.delete_store(store.name)
    return found


def _beside(where: str) -> Claim:
    return Claim(
        f"files ÷ log, seconds, {where}",
        lambda found: found[-1].median(f"files, {where}") / found[-1].median(f"log, {where}"),
    )


BENCHES = (
    Bench(
        "transport",
        "a repush until readers get the new version, its base through the log beside the same as files",
        "records",
        (250_000, 500_000, 1_000_000),
        (1_000,),
        (_beside("Kafka"), _beside("embedded")),
        run,
        SEED,
        check_brokers,
    ),
)
