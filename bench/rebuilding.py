"""Whole rebuilds: a cluster of processes as ``anew up`` starts it, and stores whose records are all in the log.

The first version of such a store is empty, so that each repush reads every record from the log; afterwards the store is
rolled back to it. A repush is over when a reader that begins then gets the new version.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import structlog.testing
from pyspark.sql import SparkSession

from anew.api.location import LogLocation
from anew.api.stores.requests import CreateStore, RollBack
from anew.client.store import Store
from anew.core.arrow import bytes_list, join_binary
from anew.core.feed import Feed
from anew.log.open import open_log
from anew.rebuild.inputs import PushRequest
from anew.runtime.connect import Cluster, connect
from bench.measuring import timed
from bench.serving import now_ms, wait_until
from bench.synthetic import KEY_BYTES, PARTITIONS, SEED, UPDATES_SHARE, VALUE_BYTES, append_all, random_bytes, taken

_LENGTHS = {KEY_BYTES: b"\x20", VALUE_BYTES: b"\xc0\x01"}
"""How Avro writes the length of such a key or value."""
_SAMPLE = 1_000
_PATIENCE_SECONDS = 300.0
_COMMAND_SECONDS = 120.0


@contextmanager
def running_cluster(folder: Path, log: LogLocation | None, nodes: int = 1) -> Iterator[Cluster]:
    """A controller and nodes as processes, on a log of brokers or an embedded one; they end with the block."""
    home = folder / "home"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ANEW_")}
    environment = {**plain, "ANEW_HOME": str(home), "ANEW_PORT": str(_free_ports(1 + nodes)), "ANEW_NODES": str(nodes)}
    if log is not None:
        environment["ANEW_LOG"] = f"kafka://{log.address}"
    try:
        _command(environment, "up", "--detach")
        with connect(home=str(home)) as cluster:
            yield cluster
    finally:
        _command(environment, "down")


def _command(environment: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anew.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"anew {' '.join(arguments)}: {done.stdout}{done.stderr}")


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        with contextlib.ExitStack() as bound:
            first = bound.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                for following in range(port + 1, port + count):
                    bound.enter_context(socket.socket()).bind(("127.0.0.1", following))
                return port


@dataclass(frozen=True, slots=True)
class LoggedStore:
    """A store whose records are all in its feed.

    Attributes:
        keys: How many different keys they have.
        sample: Keys of records that replaced others, as a reader names them, with the values that they have now.
    """

    cluster: Cluster
    name: str
    feed: Feed
    keys: int
    sample: dict[bytes, bytes]

    def repushed(self, spark: SparkSession) -> float:
        """Seconds from the plan of a repush until a reader gets its version, which is then rolled back."""
        with structlog.testing.capture_logs():
            found: list[int] = []
            took = timed(lambda: found.append(self._repush(spark)))
        self.check(found[0])
        self.cluster.controller.roll_back(self.name, RollBack(to=1))
        return took

    def check(self, version: int) -> None:
        """Readers get the newest records, of that version."""
        cells = self._reader().get_many(list(self.sample))
        if any(cell is None or cell.version != version for cell in cells):
            raise AssertionError("a reader gets another version, or a key is missing")
        if [None if cell is None else cell.value for cell in cells] != list(self.sample.values()):
            raise AssertionError("a reader gets something else than the newest record")

    def _repush(self, spark: SparkSession) -> int:
        outcome = self.cluster.run(self.cluster.plan_repush(self.name), spark=spark)
        written = None if outcome.ledger is None else outcome.ledger["written"]
        if (outcome.status, written) != ("succeeded", self.keys):
            raise AssertionError(f"the repush {outcome.status}, and wrote {written} of {self.keys} keys")
        key = next(iter(self.sample))

        def is_there() -> bool:
            cell = self._reader().get(key)
            return cell is not None and cell.version == outcome.version

        wait_until(is_there)
        return outcome.version

    def _reader(self) -> Store:
        return self.cluster.store(self.name)


def make_logged_store(cluster: Cluster, spark: SparkSession, name: str, records: int, transport: str) -> LoggedStore:
    """Make a store of so many records, a quarter of which replace others; its node has applied all of them."""
    settings: dict[str, str | int | bool | None] = {
        "partitions": PARTITIONS,
        "rt_partitions": PARTITIONS,
        "replicas": 1,
        "hybrid": True,
        "transport": transport,
    }
    request = CreateStore(name=name, key_schema='"bytes"', value_schema='"bytes"', settings=settings)
    cluster.controller.create_store(request)
    wait_until(lambda: _feed(cluster, name).ready)
    with structlog.testing.capture_logs():
        cluster.run(cluster.plan_push(name, PushRequest((), ())), spark=spark)
    feed = _feed(cluster, name)
    # Schemas are numbered over all stores.
    (schema_id,) = cluster.controller.routing(name).schemas
    random = np.random.default_rng(SEED)
    count = records - int(records * UPDATES_SHARE)
    keys = random_bytes(random, count, KEY_BYTES)
    chosen = taken(keys, random.permutation(count)[: records - count])
    values = random_bytes(random, records - count, VALUE_BYTES)
    with contextlib.closing(open_log(cluster.controller.routing(name).log, clock=now_ms)) as log:
        append_all(log, feed, _avro(keys), _avro(random_bytes(random, count, VALUE_BYTES)), schema_id)
        append_all(log, feed, _avro(chosen), _avro(values), schema_id)
    replaced = zip(bytes_list(chosen[-_SAMPLE:]), bytes_list(values[-_SAMPLE:]), strict=True)
    store = LoggedStore(cluster, name, feed, count, dict(replaced))

    def is_applied() -> bool:
        try:
            store.check(1)
        except AssertionError:
            return False
        return True

    wait_until(is_applied, _PATIENCE_SECONDS)
    return store


def _feed(cluster: Cluster, name: str) -> Feed:
    feed = cluster.controller.routing(name).feed
    if feed is None:
        raise AssertionError("a hybrid store has a feed")
    return feed


def _avro(column: pa.BinaryArray) -> pa.BinaryArray:
    """The Avro bodies of bytes that are all of one size."""
    length: bytes = _LENGTHS[len(column[0].as_py())]
    lengths = pa.repeat(pa.scalar(length, pa.binary()), len(column))
    return join_binary(lengths, column)
