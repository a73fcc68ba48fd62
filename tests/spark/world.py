"""A store with a log and a deep store, and nothing else: what pushes and repushes need, without a controller."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import zstandard

from anew.api.http import ControllerClient
from anew.api.location import LogLocation
from anew.api.models import ClusterInfo
from anew.codec.compression import Compressor, compressor
from anew.core.admission import admit, with_hashes
from anew.core.arrow import replaced
from anew.core.feed import NOWHERE, FeedPartition, Feeds, PositionMap
from anew.core.ledger import Entry, Ledger
from anew.core.merge import Cell
from anew.core.partition import XxHash64Partitioner
from anew.core.reduce import sort_rows
from anew.core.rows import ROWS
from anew.core.stores.plan import Plan
from anew.core.stores.planning import PushOptions, RepushRequest, Snapshot, plan_push, plan_repush
from anew.core.stores.properties import RepushProperties
from anew.core.stores.store import RebuildKind, Store, VersionStatus, VersionTopic
from anew.deepstore.open import open_deep_store
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicPartition, TopicSpec
from anew.rebuild.inputs import PushRequest, find_input
from anew.rebuild.lease import Lease
from anew.rebuild.observer import LogObserver
from anew.rebuild.stores.build import Building, build
from anew.segments.base import BaseReader
from anew.segments.basefile import BaseFileWriter
from anew.segments.dictionary import codec_of, store_dictionary
from anew.segments.layout import attempt_path, manifest_path
from anew.segments.manifest import BaseFile, Manifest, SubPartition
from anew.spark.session import SparkSession
from anew.spark.stores.build import Built, Place
from anew.spark.stores.outputs import BaseTarget
from anew.testing.builders import FABRIC, a_config, a_feed, a_store, a_version, append_records, cells_of
from anew.testing.clock import NOON_MS, ManualClock

_SETTINGS: dict[str, Any] = {"partitions": 4, "rt_partitions": 2, "hybrid": True}


class World:
    """One hybrid store in one fabric; versions are sealed here as the executor seals them."""

    def __init__(self, spark: SparkSession, folder: Path, settings: Mapping[str, Any]) -> None:
        self.spark = spark
        self.folder = folder
        self.clock = ManualClock()
        self.deep_store = str(folder / "deep")
        self.log = EmbeddedLog(folder / "log", clock=self.clock, durable=False)
        config = a_config(**{**_SETTINGS, **settings})
        self.feed = a_feed(partitions=config.rt_partitions, partitioner=config.rt_partitioner)
        self.log.create_topic(TopicSpec(self.feed.topic, self.feed.topic_uid, self.feed.partitions))
        self.store: Store = a_store(config=config, feeds=(self.feed,))
        self.manifests: dict[int, Manifest] = {}
        # What is known of the job whose feed it is, see `anew.core.stores.floors.tombstone_cut_ms`.
        self.to_come_ms: dict[str, int] = {}
        self._directories = itertools.count()

    # -- the log -----------------------------------------------------------------------------------------------------

    def write(
        self,
        key: bytes,
        value: bytes | None,
        written_ms: int | None = None,
        partition: int | None = None,
        schema_id: int = 1,
    ) -> int:
        """Append one record where its key belongs, or where it is told to; its offset."""
        at = XxHash64Partitioner(self.feed.partitions).of(key) if partition is None else partition
        records = append_records([key], [value], [written_ms])
        if value is not None:
            schemas: Any = pa.array([schema_id], pa.int32())
            records = replaced(records, "schema_id", schemas)
        return self.log.append(self.topic_partition(at), records).first_offset

    def tamper(self, partition: int, column: str, values: Mapping[int, int]) -> None:
        """Put times into records (by offset) that the embedded log itself would refuse, as another log may hold."""
        (path,) = (self.folder / "log").rglob(f"p-{partition:05d}-*.sqlite")
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            for offset, value in values.items():
                # Each was appended alone; a write time is laid out as in `anew.log.packing`.
                put = value.to_bytes(8, "little", signed=True) if column == "written_ms" else value
                where = "WHERE first_offset = ? AND record_count = 1"
                changed = connection.execute(f"UPDATE batches SET {column} = ?, checksum = NULL {where}", (put, offset))
                assert changed.rowcount == 1

    def topic_partition(self, partition: int) -> TopicPartition:
        """A partition of the feed's topic."""
        return TopicPartition(self.feed.topic, self.feed.topic_uid, partition)

    @property
    def feeds(self) -> Feeds:
        """The store's feeds with the schemas of its values."""
        return Feeds(self.store.feeds, tuple(self.store.schemas))

    def ends(self) -> dict[FeedPartition, int]:
        """Where each feed partition ends now."""
        return {at: self.log.offsets(self.topic_partition(at.partition)).end for at in self.feed.feed_partitions()}

    def history(self, start: PositionMap, end: Mapping[FeedPartition, int]) -> list[tuple[bytes, Cell]]:
        """The admitted records in [start, end), each feed partition in order."""
        found: list[tuple[bytes, Cell]] = []
        for at, stop in end.items():
            first = start.get(at, 0)
            if stop > first:
                read = self.log.read(self.topic_partition(at.partition), first, stop - first)
                found += cells_of(admit(self.feed, at.partition, first, read.records, self.store.schemas).rows)
        return found

    # -- making versions ---------------------------------------------------------------------------------------------

    def configure(self, **settings: Any) -> None:
        """Change settings for the next version."""
        self.store = self.store.model_copy(update={"config": self.store.config.model_copy(update=settings)})

    def repush_plan(self, max_records: int = 5_000_000, path: str | None = None, **asked: Any) -> Plan:
        """The plan of a repush of the current version, up to the log's present end; on a path if one is named."""
        now_ms = self.clock()
        snapshot = Snapshot(self.store, self.ends(), {}, {}, None, now_ms, now_ms, self.to_come_ms)
        request = RepushRequest(RepushProperties(max_records_per_mapper=max_records, **asked))
        plan = plan_repush(snapshot, request)
        return plan if path is None else plan.model_copy(update={"path": path}).sealed()

    def build_repush(self, plan: Plan) -> tuple[Built, str]:
        """Run a repush's Spark stage; what it built and in which directory."""
        directory = f"d{next(self._directories)}"
        building = self.building(plan, directory)
        return build(self.spark, building, self.lease(), LogObserver()).built, directory

    def repush(self, max_records: int = 5_000_000, path: str | None = None, **asked: Any) -> Manifest:
        """Plan, run and seal a repush; the new version becomes current."""
        plan = self.repush_plan(max_records, path, **asked)
        built, directory = self.build_repush(plan)
        return self.seal(plan, built, directory)

    def build_push(self, *inputs: Path, key: Sequence[str] = ("id",), **options: Any) -> tuple[Plan, Built, str]:
        """Run a full push's build stage with the checks of its caller."""
        found = find_input(PushRequest(tuple(str(path) for path in inputs), tuple(key), **options))
        plan = plan_push(
            Snapshot(self.store, self.ends(), {}, {}, None, self.clock()), found.push, found.bytes, NOWHERE
        )
        directory = f"d{next(self._directories)}"
        building = self.building(plan, directory)
        return plan, build(self.spark, building, self.lease(), LogObserver()).built, directory

    def cluster(self) -> ClusterInfo:
        """Where log and deep store are."""
        location = LogLocation(kind="embedded", address=str(self.folder / "log"))
        return ClusterInfo(fabric=FABRIC, log=location, deep_store=self.deep_store, release="")

    def lease(self) -> Lease:
        """A lease that nobody answers."""
        return Lease(_silent_controller(), "r", 1)

    def push(self, *inputs: Path, key: Sequence[str] = ("id",), **options: Any) -> Manifest:
        """Run and seal a full push; the new version becomes current."""
        return self.seal(*self.build_push(*inputs, key=key, **options))

    def building(self, plan: Plan, directory: str) -> Building:
        """What a plan's build works on, with the version topic where its base goes through one."""
        topic = None
        config = plan.target.config
        if config.transport == "log":
            name = f"{self.store.name}_v{plan.target.version}"
            made = self.log.create_topic(TopicSpec(name, f"uid of {name}", config.sub_partitions))
            topic = VersionTopic(name=name, uid=made.uid, ready=True)
        return Building(plan, self.store, self.cluster(), self.cluster(), directory, topic)

    def base_reader(self) -> BaseReader:
        """Reads bases."""
        return BaseReader(open_deep_store(self.deep_store), lambda: self.log)

    def place(self, directory: str) -> Place:
        """Source and target of a build."""
        location = LogLocation(kind="embedded", address=str(self.folder / "log"))
        return Place(self.deep_store, location, BaseTarget(self.deep_store, directory))

    def base(
        self,
        cells: Mapping[bytes, Cell],
        start: PositionMap = NOWHERE,
        dictionary: bytes | None = None,
        plain: Mapping[bytes, Cell] | None = None,
    ) -> Manifest:
        """A version whose base holds these cells, values as they are; made without Spark.

        Hashes are those of the cells, or of ``plain`` where the values are compressed.
        """
        directory, config = f"d{next(self._directories)}", self.store.config.frozen
        keys = list(cells)
        partitions = XxHash64Partitioner(config.partitions).of_all(pa.array(keys, pa.binary()))
        parts, codec = [], compressor("none") if plain is None else compressor(config.compression, dictionary)
        for partition in range(config.partitions):
            mine = {keys[index]: cells[keys[index]] for index in np.flatnonzero(partitions == partition)}
            file = self._write_file(attempt_path(directory, partition, 0, "t0"), mine, plain, codec)
            parts.append(SubPartition(partition=partition, sub_partition=0, runs=() if file is None else ((file,),)))
        count = Entry(count=len(cells))
        plan = plan_repush_free(self.store, PositionMap({**dict.fromkeys(self.ends(), 0), **start}))
        path = None
        if dictionary is not None:
            path = store_dictionary(open_deep_store(self.deep_store), directory, dictionary)
        built = Built(tuple(parts), Ledger(read=count, written=count), dictionary=path)
        return self.seal(plan, built, directory)

    def seal(self, plan: Plan, built: Built, directory: str) -> Manifest:
        """Commit what was built as a version that is current."""
        manifest = Manifest(
            store=self.store.name,
            store_uid=self.store.uid,
            version=plan.target.version,
            kind=plan.kind,
            rebuild=directory,
            epoch=1,
            source_version=plan.source.version,
            key_schema=self.store.key_schema,
            schemas=self.store.schemas,
            config=plan.target.config,
            config_hash=plan.target.config.hash,
            dictionary=None if built.dictionary is None else built.dictionary.path,
            dictionary_checksum=None if built.dictionary is None else built.dictionary.checksum,
            feeds=self.store.feeds,
            start=plan.target.start,
            ttl_floor_ms=plan.target.ttl_floor_ms,
            tombstone_floor_ms=plan.target.tombstone_floor_ms,
            created_at_ms=self.clock(),
            ledger=built.ledger,
            sub_partitions=built.sub_partitions,
        )
        path = manifest_path(directory)
        open_deep_store(self.deep_store).put(path, manifest.to_bytes())
        self.manifests[manifest.version] = manifest
        version = a_version(
            manifest.version,
            VersionStatus.CURRENT,
            config=manifest.config,
            config_hash=manifest.config_hash,
            feeds=(self.feed.id,),
            start=manifest.start,
            ttl_floor_ms=manifest.ttl_floor_ms,
            tombstone_floor_ms=manifest.tombstone_floor_ms,
            timed=plan.target.timed,
            manifest=manifest.ref(path),
        )
        self.store = self.store.model_copy(
            update={
                "versions": (*self.store.versions, version),
                "current": {FABRIC: version.number},
                "next_version": version.number + 1,
            }
        )
        return manifest

    # -- what a version holds ------------------------------------------------------------------------------------------

    def stored(self, manifest: Manifest) -> dict[int, list[tuple[bytes, Cell]]]:
        """Each partition's cells in the order of its files, values as they are stored."""
        base = self.base_reader()
        return {
            sub.partition: [cell for part in sub.parts for rows in base.rows(part) for cell in cells_of(rows)]
            for sub in manifest.sub_partitions
        }

    def units(self, manifest: Manifest) -> dict[tuple[int, int], list[dict[str, Any]]]:
        """Each sub-partition's rows in the order of its files, as they lie there: hashes too."""
        base = self.base_reader()
        return {
            (sub.partition, sub.sub_partition): [
                row for part in sub.parts for rows in base.rows(part) for row in rows.to_pylist()
            ]
            for sub in manifest.sub_partitions
        }

    def cells(self, manifest: Manifest) -> dict[bytes, Cell]:
        """All cells of a version, values decoded; no key comes twice."""
        codec = codec_of(open_deep_store(self.deep_store), manifest)
        base = self.base_reader()
        pairs = [pair for part in manifest.parts for rows in base.rows(part) for pair in cells_of(rows)]
        found = {key: _decoded(cell, codec.decompress) for key, cell in pairs}
        assert len(found) == len(pairs)
        return found

    def values(self, manifest: Manifest) -> dict[bytes, bytes | None]:
        """Key → decoded value; None for a kept tombstone."""
        return {key: cell.value for key, cell in self.cells(manifest).items()}

    def files(self, directory: str) -> list[str]:
        """The paths below a version's directory."""
        return [file.path for file in open_deep_store(self.deep_store).list(directory)]

    def _write_file(
        self, path: str, cells: Mapping[bytes, Cell], plain: Mapping[bytes, Cell] | None, codec: Compressor
    ) -> BaseFile | None:
        writer = BaseFileWriter.open(open_deep_store(self.deep_store), path, codec)
        if cells:
            rows = rows_of(cells)
            if plain is not None:
                rows = replaced(rows, "hash", rows_of({key: plain[key] for key in cells}).column("hash"))
            writer.write(sort_rows(rows))
        return writer.close()


def plan_repush_free(store: Store, start: PositionMap) -> Plan:
    """The plan under which a version that no Spark job made is sealed."""
    snapshot = Snapshot(store, {}, {}, {}, None, NOON_MS)
    files = find_input(PushRequest((__file__,), ("id",), input_format="csv")).push
    plan = plan_push(snapshot, files, 0, NOWHERE, PushOptions(supersede_job=True))
    target = plan.target.model_copy(update={"start": start})
    return plan.model_copy(update={"kind": RebuildKind.FULL_PUSH, "target": target})


def rows_of(cells: Mapping[bytes, Cell]) -> pa.RecordBatch:
    """The rows of cells, with hashes, unsorted."""
    rows = [
        {
            "key": key,
            "value": cell.value,
            "schema_id": cell.schema_id,
            "time": cell.stamp.time_ms,
            "origin": cell.stamp.origin,
            "append_timed": cell.stamp.append_timed,
            "incarnation": cell.stamp.incarnation,
            "feed_partition": cell.stamp.partition,
            "offset": cell.stamp.offset,
            "hash": 0,
        }
        for key, cell in cells.items()
    ]
    return with_hashes(pa.RecordBatch.from_pylist(rows, schema=ROWS))


def _decoded(cell: Cell, decompress: Callable[[bytes], bytes]) -> Cell:
    return cell if cell.value is None else Cell(cell.stamp, decompress(cell.value), cell.schema_id)


def _silent_controller() -> ControllerClient:
    """The lease of these builds is never started, so that nobody is asked."""
    return ControllerClient("http://nobody", transport=httpx.MockTransport(lambda _: httpx.Response(500)))


def otherwise_compressed(value: bytes) -> bytes:
    """A zstd frame of a value that `anew.codec.compression` reads and would not write: with a checksum."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(value)
