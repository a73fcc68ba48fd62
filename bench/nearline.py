"""From the log onto a node's replicas: what applying costs beside reading the log alone, and beside bare RocksDB.

The node's own engine, replicas and log run in this process, and its rounds are called one after another: the clock
starts with the first record that is read and stops with the last that is applied, and nobody reads meanwhile. Bare
RocksDB means what somebody writes who needs no order between writers: the same records, read from the same log, as
batches of puts that overwrite what is there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import structlog.testing

from anew.api.location import LogLocation
from anew.api.stores.replicas import ReplicaState
from anew.core.arrow import bytes_list
from anew.core.errors import AnewError
from anew.core.feed import PositionMap
from anew.log.interface import Log
from anew.node.loader import Job
from anew.node.stores.engine import Collaborators, Engine, NodeIdentity
from anew.node.stores.feeds import READ_RECORDS
from anew.storage.memory import NodeMemory
from anew.storage.rocks import Database
from anew.testing.builders import FABRIC
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns, timed
from bench.serving import STORE, ServedStore, append_updates, make_served_store, now_ms
from bench.synthetic import KEY_BYTES, SEED, VALUE_BYTES

_BASE_SHARE = 2
"""So many records of the log per key of the base."""

_Made = TypeVar("_Made")


class _Here:
    """Does the loader's jobs at once, in this process."""

    def submit(self, job: Job[_Made]) -> Future[_Made]:
        """See `anew.node.loader.Submits`."""
        future: Future[_Made] = Future()
        try:
            future.set_result(job.run())
        except AnewError as error:
            future.set_exception(error)
        return future


def run(folder: Path, sizes: Sequence[int], repeats: Repeats, log: LogLocation | None = None) -> list[Measured]:
    """Measure with so many records in the log; None: in an embedded one."""
    with structlog.testing.capture_logs():
        return [_measure(folder / str(size), size, repeats, log) for size in sizes]


def _measure(folder: Path, records: int, repeats: Repeats, location: LogLocation | None) -> Measured:
    store = make_served_store(folder, max(records // _BASE_SHARE, 1), location)
    with contextlib.closing(store.open_log(durable=False)) as log:
        append_updates(store, log, records, np.random.default_rng(SEED))
    sides: dict[str, Callable[[], float]] = {
        "applied": lambda: _applied(store, records),
        "log alone": lambda: _read_alone(store, records),
        "bare RocksDB": lambda: _overwritten(store, records),
    }
    seconds = take_turns(sides, repeats)
    shutil.rmtree(folder)
    figures = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": store.feed.partitions}
    return Measured(records, seconds, figures=figures)


def _applied(store: ServedStore, records: int) -> float:
    """The seconds of a node's rounds until every record of the log is applied to a fresh base."""
    ends = store.ends()
    with _engine(store) as engine:

        def apply() -> None:
            while engine.applied < records:
                if not engine.step():
                    raise AssertionError(f"the node stopped at {engine.applied} of {records} records")

        took = timed(apply)
        replicas = [holding.replica for holding in engine.holdings() if holding.replica is not None]
        if any(max(replica.position.get(at, 0) for replica in replicas) != end for at, end in ends.items()):
            raise AssertionError("the node does not stand at the end of the log")
        _check_last(store, engine)
    shutil.rmtree(store.folder / "node")
    return took


@contextmanager
def _engine(store: ServedStore) -> Iterator[Engine]:
    """An engine whose replicas are loaded, have applied nothing, and are to apply everything now."""
    (store.folder / "node").mkdir()
    identity = NodeIdentity("n1", FABRIC, "http://x", store.folder / "node", 1)

    def opened(_location: LogLocation) -> Log:
        return store.open_log(durable=False)

    engine = Engine(identity, Collaborators(NodeMemory(), _Here(), opened, now_ms))
    version = store.version(1, PositionMap(dict.fromkeys(store.feed.feed_partitions(), 0)))
    try:
        engine.accept(store.desired(1, 1, [version.model_copy(update={"feeds": ()})]))
        while engine.step():
            pass
        if any(holding.state is not ReplicaState.APPLYING for holding in engine.holdings()):
            raise AssertionError("a base was not loaded")
        engine.accept(store.desired(2, 1, [version]))
        yield engine
    finally:
        engine.stop()


def _check_last(store: ServedStore, engine: Engine) -> None:
    """Each feed partition's last record is what its key holds."""
    served = engine.picture.store(STORE, None).version("1")
    for key, value in _last_records(store):
        live = served.replica_of(served.place_of(key)).get(key)
        if live is None or live.body != value:
            raise AssertionError("the node serves something else than the last record")


def _last_records(store: ServedStore) -> Iterator[tuple[bytes, bytes]]:
    with contextlib.closing(store.open_log()) as log:
        for at, end in store.ends().items():
            records = log.read(store.topic(at.partition), end - 1, 1, end).records
            yield records.column("key")[0].as_py(), records.column("value")[0].as_py()


def _read_alone(store: ServedStore, records: int) -> float:
    """The seconds to read the log as a node does."""

    def read() -> None:
        if sum(batch.num_rows for _, batch in _log_batches(store)) != records:
            raise AssertionError("the log does not hold what was appended")

    return timed(read)


def _log_batches(store: ServedStore) -> Iterator[tuple[int, pa.RecordBatch]]:
    with contextlib.closing(store.open_log()) as log:
        log.fetch_ahead({store.topic(partition): 0 for partition in range(store.feed.partitions)})
        for partition in range(store.feed.partitions):
            at, offset = store.topic(partition), 0
            end = log.offsets(at).end
            while offset < end:
                read = log.read(at, offset, READ_RECORDS, end)
                offset = read.next_offset
                yield partition, read.records


def _overwritten(store: ServedStore, records: int) -> float:
    """The seconds to put the log's records into empty databases, one per partition, in the batches they are read in."""
    target, memory = store.folder / "bare", NodeMemory()
    target.mkdir()
    databases = [
        Database(str(target / str(partition)), memory.options(), memory.small_options())
        for partition in range(store.feed.partitions)
    ]

    def write() -> None:
        count = 0
        for partition, batch in _log_batches(store):
            databases[partition].write(bytes_list(batch.column("key")), bytes_list(batch.column("value")))
            count += batch.num_rows
        if count != records:
            raise AssertionError("the log does not hold what was appended")

    took = timed(write)
    for database in databases:
        database.close()
    shutil.rmtree(target)
    return took


def _share(found: Sequence[Measured]) -> float:
    """How much of the speed of bare puts is left; without a target."""
    return found[-1].median("bare RocksDB") / found[-1].median("applied")


BENCHES = (
    Bench(
        "nearline",
        "log → applied on a node's replicas; beside reading the log alone, and bare RocksDB puts of its records",
        "records",
        (100_000, 200_000, 400_000),
        (1_000, 2_000),
        (
            Claim("records/s applied", lambda found: found[-1].rate("applied"), least=150_000),
            Claim("applied ÷ bare puts", _share),
        ),
        run,
        SEED,
    ),
)
