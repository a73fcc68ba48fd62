"""A version's base, a log and a node's engine, all real, in one process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anew.api.location import LogLocation
from anew.api.models import DesiredState
from anew.api.stores.replicas import DesiredStore, DesiredVersion
from anew.codec.avro import encode_datum, parse_schema
from anew.codec.compression import Compressor, compressor
from anew.core.admission import with_hashes
from anew.core.errors import AnewError
from anew.core.feed import Feed, Feeds, PositionMap
from anew.core.ledger import Ledger
from anew.core.partition import XxHash64Partitioner, sub_partition_of
from anew.core.partitioning import partitioner_of
from anew.core.rows import ROWS
from anew.core.stamp import BATCH, fabric_origin
from anew.core.stores.store import Frozen, RebuildKind
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.log.interface import APPEND_RECORDS, Log, TopicPartition, TopicSpec
from anew.log.open import open_log
from anew.node.loader import Loader
from anew.node.stores.engine import Collaborators, Engine, NodeIdentity
from anew.node.stores.holding import Holding
from anew.segments.basefile import BaseFileWriter
from anew.segments.baserange import BaseRangeWriter, start_of_push
from anew.segments.manifest import BaseFile, BaseRange, Manifest, SubPartition
from anew.storage.memory import NodeMemory

KEY_SCHEMA, VALUE_SCHEMA = '"string"', '"string"'
PARTITIONS = 2
NOW_MS = 1_700_000_000_000


def clock() -> int:
    """The tests' time: it advances like any other, from a fixed instant."""
    return NOW_MS + int(time.monotonic() * 1000)


def key_of(text: str) -> bytes:
    """A key's body."""
    return encode_datum(parse_schema(KEY_SCHEMA), text)


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true answer of ``condition``."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        threading.Event().wait(0.005)
    return answer


def config(compression: str = "zstd", partitions: int = PARTITIONS, **changes: Any) -> Frozen:
    """A version's configuration."""
    frozen = Frozen(
        partitions=partitions,
        partitioner="xxhash64",
        amplification_factor=1,
        compression=compression,
        transport="files",
        replicas=1,
        hybrid=True,
        rewind_seconds=0,
        rewind_from="sop",
        lag_limit_records=1000,
        lag_limit_seconds=60,
    )
    return frozen.model_copy(update=changes)


def base_rows(entries: dict[str, str | None], codec: Compressor | None = None) -> pa.RecordBatch:
    """Rows of a base, sorted, values compressed (zstd by default); None is a tombstone."""
    count = len(entries)
    keys = [key_of(text) for text in entries]
    values = [None if value is None else key_of(value) for value in entries.values()]
    columns: list[pa.Array[Any]] = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array([0 if value is None else 1 for value in values], pa.int32()),
        pa.array([50 if value is None else 0 for value in values], pa.int64()),
        pa.array([BATCH.encoded] * count, pa.binary()),
        pa.array([False] * count),
        pa.array(np.zeros(count, dtype=np.int32)),
        pa.array(np.zeros(count, dtype=np.int32)),
        pa.array(np.zeros(count, dtype=np.int64)),
        pa.array(np.zeros(count, dtype=np.int64)),
    ]
    rows = with_hashes(pa.RecordBatch.from_arrays(columns, schema=ROWS))
    packed_values = (compressor("zstd") if codec is None else codec).compress_array(rows.column("value"))
    packed = rows.set_column(1, ROWS.field("value"), packed_values)
    return packed.take(sorted(range(count), key=keys.__getitem__))


def place_of(frozen: Frozen, text: str) -> tuple[int, int]:
    """The partition and sub-partition of a key."""
    key = key_of(text)
    return partitioner_of(frozen).of(key), sub_partition_of(key, frozen.amplification_factor)


@dataclass
class World:
    """A deep store, a log and a store `words` with one hybrid feed; makes versions and desired states."""

    folder: Path
    deep: DeepStore
    log: Log
    feed: Feed
    revision: int = 1
    versions: dict[int, DesiredVersion] = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=lambda: {1: VALUE_SCHEMA})
    current: int = 1

    @property
    def feeds(self) -> Feeds:
        """The feed with the schemas of its values."""
        return Feeds((self.feed,), tuple(self.schemas))

    def version(self, number: int, entries: dict[str, str | None], **changes: Any) -> DesiredVersion:
        """Write a base and its manifest; the version holds all partitions on this node.

        ``codec`` compresses the base's values, and its dictionary is the version's.
        """
        frozen, codec = changes.pop("config", config()), changes.pop("codec", None)
        if codec is not None and codec.dictionary is not None:
            changes["dictionary"] = f"v{number}/dictionary"
            self.deep.put(changes["dictionary"], codec.dictionary)
        places: dict[tuple[int, int], dict[str, str | None]] = {
            divmod(unit, frozen.amplification_factor): {} for unit in range(frozen.sub_partitions)
        }
        for text, value in entries.items():
            places[place_of(frozen, text)][text] = value
        subs = []
        for (partition, sub), mine in places.items():
            path = f"v{number}/p{partition}-s{sub}.parquet"
            file = self.write_base(path, base_rows(mine, codec) if mine else None, codec)
            subs.append(SubPartition(partition=partition, sub_partition=sub, runs=((file,),) if file else ()))
        return self.seal(number, tuple(subs), frozen, changes)

    def append_base(self, number: int, frozen: Frozen, entries: dict[str, str | None]) -> BaseRange:
        """The base of a version of one partition, in its version topic."""
        made = self.log.create_topic(TopicSpec(f"words_v{number}", f"topic-{number}", 1))
        at, attempt = TopicPartition(made.name, made.uid, 0), "r-e1-t1"
        writer = BaseRangeWriter(self.log, at, attempt, start_of_push(frozen, None, attempt), compressor("zstd"))
        writer.write(base_rows(entries))
        part = writer.close()
        assert part is not None
        return part

    def write_base(self, path: str, rows: pa.RecordBatch | None, codec: Compressor | None = None) -> BaseFile | None:
        """A base file of rows as `base_rows` makes them; None for no rows."""
        if rows is None:
            return None
        writer = BaseFileWriter.open(self.deep, path, compressor("zstd") if codec is None else codec)
        writer.write(rows)
        return writer.close()

    def seal(
        self, number: int, subs: tuple[SubPartition, ...], frozen: Frozen, changes: dict[str, Any]
    ) -> DesiredVersion:
        """Write the manifest of a version."""
        start = changes.get("start", PositionMap(dict.fromkeys(self.feed.feed_partitions(), 0)))
        manifest = Manifest(
            store="words",
            store_uid="u1",
            version=number,
            kind=RebuildKind.FULL_PUSH,
            rebuild="r",
            epoch=1,
            key_schema=KEY_SCHEMA,
            schemas=self.schemas,
            config=frozen,
            config_hash="h",
            dictionary=changes.pop("dictionary", None),
            created_at_ms=1,
            ledger=Ledger(),
            sub_partitions=subs,
        )
        path = f"v{number}/manifest.json"
        self.deep.put(path, manifest.to_bytes())
        fields: dict[str, Any] = {
            "number": number,
            "config": frozen,
            "feeds": (self.feed.id,),
            "start": start,
            "stop": None,
            "ttl_floor_ms": 0,
            "tombstone_floor_ms": 0,
            "manifest": manifest.ref(path),
            "partitions": tuple(range(frozen.partitions)),
        }
        self.versions[number] = DesiredVersion(**{**fields, **changes})
        return self.versions[number]

    def desired(self, **store_changes: Any) -> DesiredState:
        """The desired state of now, newer than the last."""
        self.revision += 1
        fields: dict[str, Any] = {
            "uid": "u1",
            "name": "words",
            "revision": self.revision,
            "current": self.current,
            "key_schema": KEY_SCHEMA,
            "schemas": self.schemas,
            "feeds": (self.feed,),
            "reads": True,
            "versions": tuple(self.versions.values()),
        }
        return DesiredState(
            revision=self.revision,
            fabric="dc-0",
            log=LogLocation(kind="embedded", address=str(self.folder / "log")),
            deep_store=self.deep.root_uri,
            stores=(DesiredStore(**{**fields, **store_changes}),),
        )

    def ends(self) -> PositionMap:
        """Where the log ends now."""
        topic, uid = self.feed.topic, self.feed.topic_uid
        parts = self.feed.feed_partitions()
        return PositionMap({at: self.log.offsets(TopicPartition(topic, uid, at.partition)).end for at in parts})

    def write(self, text: str, value: str | None, **changes: Any) -> int:
        """Append one record where its key belongs; its offset."""
        key = key_of(text)
        partition = changes.get("partition", XxHash64Partitioner(self.feed.partitions).of(key))
        record = {
            "written_ms": changes.get("written_ms"),
            "origin": fabric_origin("dc-0").encoded,
            "key": key,
            "schema_id": changes.get("schema_id", 0 if value is None else 1),
            "value": None if value is None else key_of(value),
        }
        at = TopicPartition(self.feed.topic, self.feed.topic_uid, partition)
        return self.log.append(at, pa.RecordBatch.from_pylist([record], schema=APPEND_RECORDS)).first_offset


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """A world in a folder."""
    log = open_log(LogLocation(kind="embedded", address=str(folder / "log")), clock=clock, durable=False)
    feed = Feed(
        fabric="dc-0",
        topic="words_rt",
        topic_uid="t1",
        incarnation=1,
        partitions=4,
        origin=fabric_origin("dc-0").encoded.hex(),
        skew_limit_ms=60_000,
        low_water=(0, 0, 0, 0),
        ready=True,
    )
    log.create_topic(TopicSpec("words_rt", "t1", 4))
    try:
        yield World(folder, open_deep_store(str(folder / "deep")), log, feed)
    finally:
        log.close()


def engine_at(folder: Path, loader: Loader, log: Log | None = None) -> Engine:
    """An engine that does not run yet, whose node directory is below ``folder``."""

    def opened(location: LogLocation) -> Log:
        return open_log(location, clock=clock) if log is None else log

    identity = NodeIdentity("n1", "dc-0", "http://x", folder / "node", 1, removal_grace_seconds=0.05)
    return Engine(identity, Collaborators(NodeMemory(), loader, opened, clock))


@contextmanager
def engine_in(folder: Path, *, log: Log | None = None, loader: Loader | None = None) -> Iterator[Engine]:
    """A running engine whose node directory is below ``folder``."""
    own = Loader() if loader is None else loader
    engine = engine_at(folder, own, log)
    engine.start()
    try:
        yield engine
    finally:
        own.close()
        engine.stop()


def damage_files(replicas: Path) -> None:
    """Write over half of what RocksDB keeps of the replicas below a directory."""
    for path in replicas.rglob("*.sst"):
        with path.open("r+b") as file:
            file.seek(2_000)
            file.write(os.urandom(path.stat().st_size // 2))


def value_of(engine: Engine, text: str, version: str = "current") -> str | None:
    """What the node serves for a key; None when absent, the error's code when it is not served."""
    try:
        served = engine.picture.store("words", None).version(version)
        live = served.replica_of(served.place_of(key_of(text))).get(key_of(text))
    except AnewError as error:
        return error.code
    return None if live is None else live.body[1:].decode()


def caught_up(engine: Engine) -> bool:
    """Whether all replicas apply, stand at the ends that were seen, and are read."""
    replicas = engine.report().replicas
    at_ends = all(r.state == "applying" and r.lag_records == 0 and r.position for r in replicas)
    return bool(replicas) and at_ends and all(_is_read(engine, holding) for holding in engine.holdings())


def _is_read(engine: Engine, holding: Holding) -> bool:
    """Whether readers find a replica; one that leaves need not be found."""
    store = engine.picture.stores.get(holding.store.name)
    version = None if store is None else store.versions.get(holding.key.version)
    return version is None or holding.place in version.replicas
