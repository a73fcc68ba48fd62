"""From the base files of a version to a replica that serves: sorted files and ingest beside record-by-record writes.

One partition after another, on one core. Sorted: the job of a node's loader, whole, and the opening by the node. Record
by record means what a user of RocksDB does without sorted files: the same verified base file, the same cells, one put
each.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict

from anew.codec.compression import compressor
from anew.core.arrow import bytes_list
from anew.core.cell import encode_cells
from anew.core.feed import NOWHERE
from anew.deepstore.open import open_deep_store
from anew.node.stores.loadjob import LoadJob
from anew.segments.manifest import BaseFile
from anew.segments.provenfile import read_proven
from anew.storage.applying import Floors
from anew.storage.memory import MIB, NodeMemory
from anew.storage.replica import Replica
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns, timed, times_as_fast
from bench.synthetic import KEY_BYTES, SEED, VALUE_BYTES, BenchStore, make_bench_store, partitions_for

_PROCESSOR = "sorted, processor seconds"
"""All threads of the process, RocksDB's too; what others do on the machine, and waiting for the disk, is not in it."""


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with bases of so many records."""
    return [_measure(folder / str(size), size, repeats) for size in sizes]


def _measure(folder: Path, records: int, repeats: Repeats) -> Measured:
    folder.mkdir()
    bench = make_bench_store(folder, records, updates_share=0.0, partitions=partitions_for(records))
    memory = NodeMemory()
    processor: list[float] = []

    def load_sorted() -> float:
        before = time.process_time()
        took = _each_partition(bench, folder / "sorted", partial(_sorted, memory))
        processor.append(time.process_time() - before)
        return took

    sides: dict[str, Callable[[], float]] = {
        "sorted": load_sorted,
        "records": lambda: _each_partition(bench, folder / "records", _record_by_record),
    }
    seconds = take_turns(sides, repeats)
    shutil.rmtree(folder)
    figures = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": partitions_for(records)}
    values = {_PROCESSOR: round(statistics.median(processor[-repeats.repetitions :]), 3)}
    return Measured(records, seconds, values, figures)


Load = Callable[[BenchStore, BaseFile, int, Path], None]


def _each_partition(bench: BenchStore, target: Path, load: Load) -> float:
    """The seconds to load all partitions, one file each; what was made goes afterwards, unmeasured."""
    target.mkdir()

    def work() -> None:
        for number, file in enumerate(bench.manifest.files):
            load(bench, file, number, target / str(number))

    took = timed(work)
    shutil.rmtree(target)
    return took


def _sorted(memory: NodeMemory, bench: BenchStore, file: BaseFile, partition: int, target: Path) -> None:
    """What a node's loader does, and then the node."""
    ref = bench.store.versions[0].manifest
    assert ref is not None
    folder = str(target.with_suffix(".loading"))
    LoadJob(bench.deep_store, bench.log, ref, partition, 0, NOWHERE, folder, str(target)).run()
    replica = Replica.open_existing(target, memory, ref.checksum)
    if replica is None:
        raise AssertionError("what was just made is not there")
    replica.use(compressor("none"), Floors())
    _check_served(file, replica.get)
    replica.close()


def _check_served(file: BaseFile, get: Callable[[bytes], object]) -> None:
    """Read the first and the last key: a load counts once it serves."""
    for key in (file.smallest_key, file.largest_key):
        if get(bytes.fromhex(key)) is None:
            raise AssertionError("the load lost a key")


def rocksdict_options() -> Options:
    """What `anew.storage.memory` sets, in the words of the binding that this side uses."""
    options, tables = Options(raw_mode=True), BlockBasedOptions()
    tables.set_bloom_filter(10, False)
    tables.set_format_version(5)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_compression_options(-14, -10, 0, 0)
    options.set_write_buffer_size(8 * MIB)
    options.set_max_total_wal_size(32 * MIB)
    return options


def _record_by_record(bench: BenchStore, file: BaseFile, _partition: int, target: Path) -> None:
    database = Rdict(str(target), rocksdict_options())
    for batch in read_proven(open_deep_store(bench.deep_store), file):
        # The loop runs in C, so that what is compared is RocksDB's own work.
        deque(map(database.__setitem__, bytes_list(batch.column("key")), bytes_list(encode_cells(batch))), maxlen=0)
    database.flush()
    _check_served(file, database.get)
    database.close()


BENCHES = (
    Bench(
        "load",
        "base files → serving replica, on one core: sorted ingest beside record-by-record writes",
        "records",
        (500_000, 1_000_000, 2_000_000),
        (1_000, 2_000),
        (
            times_as_fast("sorted ÷ record by record", "sorted", "records", 5.0),
            Claim("records/s per core", lambda found: found[-1].rate("sorted"), least=1_500_000),
            Claim("records per processor second", lambda found: found[-1].size / found[-1].values[_PROCESSOR]),
        ),
        run,
        SEED,
    ),
)
