"""From the base files of a version to a replica that serves: sorted files and ingest beside record-by-record writes.

Both sides read the same verified base files of one partition after another, on one core. Record by record means what a
user of RocksDB does without sorted files: the same cells, one put each.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict

from anew.codec.compression import compressor
from anew.core.arrow import bytes_list
from anew.core.cell import encode_cells
from anew.core.feed import NOWHERE
from anew.deepstore.open import open_deep_store
from anew.segments.basefile import read_rows
from anew.segments.manifest import BaseFile
from anew.storage.applying import Floors
from anew.storage.memory import MIB, NodeMemory
from anew.storage.replica import Base, Replica
from anew.storage.sst import Promised, build_sst
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
        took = _each_file(bench, folder / "sorted", memory, _sorted)
        processor.append(time.process_time() - before)
        return took

    sides: dict[str, Callable[[], float]] = {
        "sorted": load_sorted,
        "records": lambda: _each_file(bench, folder / "records", memory, _record_by_record),
    }
    seconds = take_turns(sides, repeats)
    shutil.rmtree(folder)
    figures = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": partitions_for(records)}
    values = {_PROCESSOR: round(statistics.median(processor[-repeats.repetitions :]), 3)}
    return Measured(records, seconds, values, figures)


Load = Callable[[Iterator[pa.RecordBatch], BaseFile, Path, NodeMemory], None]


def _each_file(bench: BenchStore, target: Path, memory: NodeMemory, load: Load) -> float:
    """The seconds to download, verify and load all base files; what was made goes afterwards, unmeasured."""
    target.mkdir()
    store = open_deep_store(bench.deep_store)

    def work() -> None:
        for number, file in enumerate(bench.manifest.files):
            copy = target / f"{number}.parquet"
            store.download(file.path, copy, file.checksum)
            load(read_rows(str(copy)), file, target / str(number), memory)

    took = timed(work)
    shutil.rmtree(target)
    return took


def _sorted(rows: Iterator[pa.RecordBatch], file: BaseFile, target: Path, memory: NodeMemory) -> None:
    promised = Promised(file.path, file.rows, file.tombstones, file.fingerprint)
    sst = build_sst(target.with_suffix(".sst"), rows, promised)
    if sst is None:
        raise AssertionError("a bench's partition holds rows")
    # As the loader's process and then the node do it.
    Replica.create(target, memory, [[sst.path]], Base("bench", file.rows, 0, NOWHERE)).close()
    replica = Replica.open_existing(target, memory, "bench")
    if replica is None:
        raise AssertionError("what was just made is not there")
    _serve(replica, file)


def _serve(replica: Replica, file: BaseFile) -> None:
    """Answer the first and the last key, then close: a load counts once it serves."""
    replica.use(compressor("none"), Floors())
    for key in (file.smallest_key, file.largest_key):
        if replica.get(bytes.fromhex(key)) is None:
            raise AssertionError("the load lost a key")
    replica.close()


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


def _record_by_record(rows: Iterator[pa.RecordBatch], file: BaseFile, target: Path, _memory: NodeMemory) -> None:
    database = Rdict(str(target), rocksdict_options())
    for batch in rows:
        # The loop runs in C, so that what is compared is RocksDB's own work.
        deque(map(database.__setitem__, bytes_list(batch.column("key")), bytes_list(encode_cells(batch))), maxlen=0)
    database.flush()
    for key in (file.smallest_key, file.largest_key):
        if database.get(bytes.fromhex(key)) is None:
            raise AssertionError("the load lost a key")
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
