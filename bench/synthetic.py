"""Seeded stores for the benches: a sealed version of random records, and a feed of updates on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.api.location import LogLocation
from anew.codec.compression import compressor
from anew.core.admission import admit, with_hashes
from anew.core.arrow import bytes_list, replaced
from anew.core.feed import Feed, Feeds, PositionMap
from anew.core.ledger import Entry, Ledger
from anew.core.partition import XxHash64Partitioner
from anew.core.reduce import sort_rows
from anew.core.rows import ROWS
from anew.core.stamp import BATCH
from anew.core.stores.plan import Plan
from anew.core.stores.planning import RepushRequest, Snapshot, plan_repush
from anew.core.stores.store import RebuildKind, Store, StoreConfig
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.log.embedded import EmbeddedLog
from anew.log.interface import APPEND_RECORDS, Log, TopicSpec, topic_partition
from anew.segments.basefile import BaseFileWriter
from anew.segments.layout import attempt_path, manifest_path
from anew.segments.manifest import Manifest, SubPartition
from anew.testing.builders import FABRIC, a_config, a_feed, a_store, a_version, append_records
from anew.testing.clock import NOON_MS, ManualClock

SEED = 20_260_101
KEY_BYTES, VALUE_BYTES = 16, 96
PARTITIONS, FEED_PARTITIONS = 8, 24
UPDATES_SHARE = 0.25
_STEP_RECORDS = 20_000
_FEW_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class BenchStore:
    """A store with one sealed version and a feed.

    Attributes:
        records: Base rows and feed records together.
        updates: Feed records, each of a key of the base.
    """

    store: Store
    manifest: Manifest
    deep_store: str
    log: LogLocation
    records: int
    updates: int

    @property
    def feed(self) -> Feed:
        """The store's one feed."""
        return self.store.feeds[0]

    @property
    def feeds(self) -> Feeds:
        """Its feed with the schemas of its values."""
        return Feeds(self.store.feeds, tuple(self.store.schemas))

    def plan(self, path: Literal["general", "copartitioned"], partitions: int) -> Plan:
        """The plan of a repush of everything into so many partitions, on the path that is named."""
        log = EmbeddedLog(Path(self.log.address), clock=ManualClock(), durable=False)
        ends = {at: log.offsets(topic_partition(self.feed, at.partition)).end for at in self.feed.feed_partitions()}
        log.close()
        wanted = self.store.config.model_copy(update={"partitions": partitions})
        store = self.store.model_copy(update={"config": wanted})
        plan = plan_repush(Snapshot(store, ends, {}, {}, None, NOON_MS), RepushRequest())
        return plan.model_copy(update={"path": path}).sealed()


def make_bench_store(
    folder: Path, records: int, updates_share: float = UPDATES_SHARE, partitions: int = PARTITIONS
) -> BenchStore:
    """Make the store below a folder: ``records``, a share of which are updates in the feed."""
    random = np.random.default_rng(SEED)
    updates = int(records * updates_share)
    keys = random_bytes(random, records - updates, KEY_BYTES)
    deep_store, log_folder = str(folder / "deep"), folder / "log"
    feed = a_feed(partitions=FEED_PARTITIONS)
    manifest = write_base(open_deep_store(deep_store), keys, random, bench_config(partitions))
    log = EmbeddedLog(log_folder, clock=ManualClock(), durable=False)
    log.create_topic(TopicSpec(feed.topic, feed.topic_uid, feed.partitions))
    chosen = taken(keys, random.permutation(len(keys))[:updates])
    append_all(log, feed, chosen, random_bytes(random, updates, VALUE_BYTES))
    log.close()
    ref = manifest.ref(manifest_path("v1"))
    version = a_version(
        config=manifest.config, config_hash=manifest.config_hash, feeds=(feed.id,), start=manifest.start, manifest=ref
    )
    store = a_store(
        config=bench_config(partitions), feeds=(feed,), versions=(version,), current={FABRIC: 1}, next_version=2
    )
    location = LogLocation(kind="embedded", address=str(log_folder))
    return BenchStore(store, manifest, deep_store, location, records, updates)


def partitions_for(records: int) -> int:
    """How many partitions a store of so many records gets; a few records are not worth many files."""
    return PARTITIONS if records >= _FEW_RECORDS else 2


def bench_config(partitions: int) -> StoreConfig:
    """The configuration of the store: uncompressed values, so that the codec's cost is not what is measured."""
    return a_config(partitions=partitions, rt_partitions=FEED_PARTITIONS, hybrid=True, compression="none")


def random_bytes(random: np.random.Generator, count: int, size_bytes: int) -> pa.BinaryArray:
    """Random values of one size, binary of shape (count,)."""
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size_bytes), count, [None, pa.py_buffer(random.bytes(count * size_bytes))]
    )
    cast: Any = fixed.cast(pa.binary())
    result: pa.BinaryArray = cast
    return result


def write_base(store: DeepStore, keys: pa.BinaryArray, random: np.random.Generator, config: StoreConfig) -> Manifest:
    """The base files of a version whose rows have these keys and random values."""
    partitions = XxHash64Partitioner(config.partitions).of_all(keys)
    parts = []
    for partition in range(config.partitions):
        mine = taken(keys, (partitions == partition).nonzero()[0])
        rows = sort_rows(batch_rows(mine, random_bytes(random, len(mine), VALUE_BYTES)))
        writer = BaseFileWriter.open(store, attempt_path("v1", partition, 0, "bench"), compressor("none"))
        for first in range(0, rows.num_rows, _STEP_RECORDS):
            writer.write(rows.slice(first, _STEP_RECORDS))
        file = writer.close()
        parts.append(SubPartition(partition=partition, sub_partition=0, runs=() if file is None else ((file,),)))
    count = sum(file.rows for part in parts for file in part.files)
    frozen = config.frozen
    manifest = Manifest(
        store="flights",
        store_uid="uid-flights",
        version=1,
        kind=RebuildKind.FULL_PUSH,
        rebuild="bench",
        epoch=1,
        key_schema='"bytes"',
        schemas={1: '"bytes"'},
        config=frozen,
        config_hash=frozen.hash,
        start=PositionMap(dict.fromkeys(a_feed(partitions=FEED_PARTITIONS).feed_partitions(), 0)),
        created_at_ms=NOON_MS,
        ledger=Ledger(read=Entry(count=count), written=Entry(count=count)),
        sub_partitions=tuple(parts),
    )
    store.put(manifest_path("v1"), manifest.to_bytes())
    return manifest


def batch_rows(keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
    """Rows of a push: batch-stamped, columns `ROWS`, with their hashes."""
    count = len(keys)
    columns: dict[str, Any] = {
        "key": keys,
        "value": values,
        "schema_id": np.ones(count, np.int32),
        "time": np.zeros(count, np.int64),
        "origin": pa.repeat(pa.scalar(BATCH.encoded, pa.binary()), count),
        "append_timed": pa.array(np.zeros(count, np.bool_)),
        "incarnation": np.zeros(count, np.int32),
        "feed_partition": np.zeros(count, np.int32),
        "offset": np.zeros(count, np.int64),
        "hash": np.zeros(count, np.int64),
    }
    return with_hashes(pa.RecordBatch.from_pydict(columns, schema=ROWS))


def append_all(log: Log, feed: Feed, keys: pa.BinaryArray, values: pa.BinaryArray, schema_id: int = 1) -> None:
    """Append records to the feed partitions that their keys belong to, in order, as the feed's own fabric would."""
    origin, field = pa.scalar(bytes.fromhex(feed.origin), pa.binary()), APPEND_RECORDS.field("origin")
    partitions = XxHash64Partitioner(feed.partitions).of_all(keys)
    for partition in range(feed.partitions):
        mine = (partitions == partition).nonzero()[0]
        for first in range(0, mine.size, _STEP_RECORDS):
            chosen = mine[first : first + _STEP_RECORDS]
            records = append_records(bytes_list(taken(keys, chosen)), bytes_list(taken(values, chosen)))
            records = records.set_column(1, field, pa.repeat(origin, records.num_rows))
            schemas: pa.Array[Any] = pa.array(np.full(chosen.size, schema_id, np.int32))
            log.append(topic_partition(feed, partition), replaced(records, "schema_id", schemas))


def taken(column: pa.BinaryArray, indices: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """The values at indices."""
    taken: Any = column.take(indices)
    result: pa.BinaryArray = taken
    return result


def feed_rows(bench: BenchStore) -> Iterator[pa.RecordBatch]:
    """The feed's records as a scan gives them, columns `ROWS`."""
    log = EmbeddedLog(Path(bench.log.address), clock=ManualClock(), durable=False)
    for partition in range(bench.feed.partitions):
        at = topic_partition(bench.feed, partition)
        end, offset = log.offsets(at).end, 0
        while offset < end:
            read = log.read(at, offset, _STEP_RECORDS)
            offset = read.next_offset
            yield with_hashes(admit(bench.feed, partition, 0, read.records, bench.store.schemas).rows)
    log.close()
