"""A controller over years of virtual time: what it keeps must depend on what lives, not on how long it has run.

Controller, catalog and retention are the product's own code. Drivers and nodes are reduced to what the controller hears
of them, and bases to their manifests: so that a year of hourly repushes takes seconds, and none is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anew.api.location import LogLocation
from anew.api.models import BeginRebuild, NodeReport
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.stores.requests import CreateStore, Seal, UpdateStore
from anew.catalog.change import Change, PutRebuild, PutSegment, PutTable
from anew.controller.engine import begin
from anew.controller.engine.context import Context, Fabric, Limits
from anew.controller.nodes.reports import desired_state, take_report
from anew.controller.reconcile import Reconciler
from anew.controller.stores import changing, routing, seal
from anew.controller.subjects import SUBJECTS
from anew.core.errors import AnewError, Unreachable
from anew.core.feed import NOWHERE, PositionMap
from anew.core.ledger import Entry, Ledger
from anew.core.rebuild import RebuildStatus
from anew.core.rowretention import RowRetention
from anew.core.stores.feedreads import feed_partitions_applied
from anew.core.stores.plan import Plan, PushInput
from anew.core.stores.planning import RepushRequest, Snapshot, plan_push, plan_repush
from anew.core.stores.rebuild import Fingerprints, StoreRebuild
from anew.core.stores.store import ManifestRef, Store, Version
from anew.deepstore.interface import StoredFile
from anew.log.interface import TopicSpec
from anew.segments.layout import manifest_path
from anew.segments.manifest import BaseFile, Manifest, SubPartition
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.clock import ManualClock
from anew.testing.memory.catalog import Database, MemoryCatalog
from anew.testing.memory.log import MemoryLog, Topics
from anew.testing.table_builders import a_segment, a_table, a_table_rebuild
from tests.simulation.keeping import Keeping

HOUR_SECONDS = 3_600
_KEPT_HOURS = 7 * 24
_A_WEEK = RowRetention(*[_KEPT_HOURS * HOUR_SECONDS] * 6)
_NODE = "node-1"
_ROUNDS = 3
"""Enough for a version that is sealed to become current: its aim, ready, the swap."""
_LEDGER = Ledger(read=Entry(count=1, hash=1), written=Entry(count=1, hash=1))


@dataclass
class NamedFiles:
    """A deep store in memory, of records and manifests alone."""

    clock: ManualClock
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def root_uri(self) -> str:
        """See `DeepStore.root_uri`."""
        return "memory:"

    def check(self) -> None:
        """See `DeepStore.check`."""

    def put(self, path: str, content: bytes) -> None:
        """See `DeepStore.put`."""
        self.files[path] = content

    def stat(self, path: str) -> StoredFile | None:
        """See `DeepStore.stat`."""
        return StoredFile(path, len(self.files[path]), self.clock()) if path in self.files else None

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """See `DeepStore.list`."""
        found = sorted(path for path in self.files if path.startswith(f"{prefix}/"))
        return iter([StoredFile(path, len(self.files[path]), self.clock()) for path in found])

    def delete(self, path: str) -> None:
        """See `DeepStore.delete`."""
        self.files.pop(path, None)

    def delete_tree(self, prefix: str) -> int:
        """See `DeepStore.delete_tree`."""
        found = [path for path in self.files if path.startswith(f"{prefix}/")]
        for path in found:
            del self.files[path]
        return len(found)

    def absolute(self, path: str) -> str:
        """Nobody outside reads it."""
        raise NotImplementedError(path)

    def write(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """Nobody writes bases."""
        raise NotImplementedError(path)

    def open(self, path: str) -> pa.NativeFile:
        """Nobody reads bases."""
        raise NotImplementedError(path)

    def get(self, path: str) -> bytes:
        """See `DeepStore.get`."""
        return self.files[path]

    def checksum(self, path: str) -> str:
        """Nobody asks."""
        raise NotImplementedError(path)

    def download(self, path: str, target: Path, expected_checksum: str) -> None:
        """Nodes are only heard of."""
        raise NotImplementedError(path, target, expected_checksum)


class LogThatFails(MemoryLog):
    """A log that may be away when it is told what it accepts."""

    is_away = False

    def set_open(self, spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        """See `Log.set_open`."""
        if self.is_away:
            raise Unreachable("log_unreachable", "the log is away")
        super().set_open(spec, is_open=is_open, epoch=epoch)


@dataclass
class Years:
    """A controller that time passes for.

    Attributes:
        breaches: What was larger than what lives allows.
        retention: For how long the catalog keeps what nothing depends on; a week of everything.
        begun: Each rebuild, with the request that began it.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    database: Database = field(default_factory=Database)
    breaches: list[str] = field(default_factory=list)
    retention: RowRetention = _A_WEEK
    begun: list[tuple[BeginRebuild, StoreRebuild]] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        """Start the controller; a node is there."""
        self.deep = NamedFiles(self.clock)
        self.log = LogThatFails(Topics(), clock=self.clock)
        self.keeping = Keeping(
            lambda path: [stored.path for stored in self.deep.list(path)], self.retention.request * 1000
        )
        self.database.watch = self.keeping.on_commit
        fabric = Fabric(FABRIC, self.log, LogLocation(kind="embedded", address="memory"), self.deep)
        self.context = Context(
            MemoryCatalog(self.database),
            {FABRIC: fabric},
            self.clock,
            self.new_id,
            Limits(
                node_lost_seconds=1e9,
                node_alive_seconds=1e9,
                low_water_interval_seconds=HOUR_SECONDS,
                lease_seconds=1e9,
                row_retention=self.retention,
            ),
            subjects=SUBJECTS,
        )
        self._reconciler = Reconciler(self.context, self.clock.seconds)
        self._report()

    def new_id(self) -> str:
        """An id that nobody had."""
        return f"id-{next(self._ids):07d}"

    def create(self, name: str, **settings: str | int | bool | None) -> None:
        """A store with a first version."""
        request = CreateStore(
            name=name,
            key_schema=KEY_SCHEMA,
            value_schema=VALUE_SCHEMA,
            settings={"partitions": 1, "replicas": 1, **settings},
            request_id=self.new_id(),
        )
        changing.create_store(self.context, request, "test")
        self._seal(self.begin(name))

    def begin(self, name: str) -> StoreRebuild:
        """Begin a push, whose driver is at it from then on."""
        data = PushInput(paths=("/in",), format="csv", key=("key",), as_of_ms=self.clock())
        return self._begin(plan_push(self._snapshot(name), data, 1, NOWHERE))

    def repush(self, name: str) -> None:
        """A repush from its begin to its end."""
        self._seal(self._begin(plan_repush(self._snapshot(name), RepushRequest())))

    def update(self, name: str, **settings: str | int | bool | None) -> None:
        """Change settings of a store."""
        changing.update_store(self.context, name, UpdateStore(settings=settings), "test")

    def load(self, name: str) -> None:
        """A table with a segment of an earlier release: the load that made it says which prefix it belongs to."""
        table, rebuild = a_table(name), self.new_id()
        ended_at_ms = self.clock()
        load = a_table_rebuild(
            table,
            rebuild,
            status=RebuildStatus.SUCCEEDED,
            created_at_ms=ended_at_ms,
            ended_at_ms=ended_at_ms,
        )
        segment = a_segment(table_uid=table.uid)
        build = segment.build.model_copy(update={"rebuild": rebuild})
        made = PutSegment(segment.model_copy(update={"build": build}), None)
        operation = self.context.operation("load", name, "test")
        self.context.catalog.commit(Change(operation, (PutTable(table, None), PutRebuild(load, None), made)))

    def ask_again(self, asked: BeginRebuild, begun: StoreRebuild) -> None:
        """A driver that did not hear the answer asks again: what it began is what it is told of (rule R22)."""
        try:
            told = begin.begin(self.context, asked, "test").id
        except AnewError as error:
            told = f"{error}"
        if told != begun.id:
            self.keeping.breach("a request begins once", f"{asked.request_id} began {begun.id}, then: {told} (R22)")

    def rounds(self, count: int = _ROUNDS) -> None:
        """The node reports, the reconciler goes on."""
        self._report()
        for _ in range(count):
            self._reconciler.round()

    def check(self, stores_count: int, per_hour: int) -> None:
        """The catalog holds no more than its retention of what happens, and documents are as large as what lives."""
        tables, hours = self.database.tables, _KEPT_HOURS + 2
        for store in tables.stores.values():
            most = 6_000 + 3_000 * len([version for version in store.versions if not version.reclaimed])
            if len(store.versions) > 6 or len(store.model_dump_json()) > most:
                self._breach(f"{store.name} is {len(store.model_dump_json())} bytes, {len(store.versions)} versions")
        rows = {
            "past versions": (len(tables.past_versions), hours * per_hour),
            "requests": (len(tables.requests), hours * per_hour + 2 * stores_count),
            "rebuilds": (len(tables.rebuilds), hours * per_hour + 6 * stores_count),
            "history": (len(self.database.history), hours * (per_hour * 14 + stores_count + 4)),
            "reclaims": (len(tables.reclaims), 8 * stores_count),
            "files": (len(self.deep.files), 12 * stores_count),
        }
        for what, (found, most) in rows.items():
            if found > most:
                self._breach(f"{found} {what}, at most {most} are kept")

    def store(self, name: str) -> Store:
        """A store as the catalog holds it."""
        store = self.context.catalog.store(name)
        if store is None:
            raise LookupError(name)
        return store

    def _breach(self, what: str) -> None:
        self.breaches.append(f"after {self.clock()}: {what}")

    def _begin(self, plan: Plan) -> StoreRebuild:
        request = BeginRebuild(plan=plan, request_id=self.new_id(), driver="test")
        begun = begin.begin(self.context, request, "test")
        if not isinstance(begun, StoreRebuild):
            raise TypeError(begun.kind)
        self.begun.append((request, begun))
        return begun

    def _seal(self, begun: StoreRebuild) -> None:
        version = self.store(begun.store).version(begun.version)
        if version is None:
            raise LookupError(begun.version)
        request_of_seal = Seal(
            epoch=begun.epoch,
            manifest=self._manifest(begun, version),
            ledger=_LEDGER,
            fingerprint=Fingerprints(source=1, target=1),
            records_per_s=1.0,
        )
        seal.seal(self.context, begun.id, request_of_seal)

    def _manifest(self, rebuild: StoreRebuild, version: Version) -> ManifestRef:
        """The manifest of a base of one row, which is not there."""
        file = BaseFile(
            path=f"{version.path}/base",
            rows=1,
            tombstones=0,
            bytes=1,
            checksum="0",
            smallest_key="00",
            largest_key="00",
            fingerprint=1,
        )
        manifest = Manifest(
            store=rebuild.store,
            store_uid=rebuild.store_uid,
            version=version.number,
            kind=version.kind,
            rebuild=rebuild.id,
            epoch=rebuild.epoch,
            key_schema=KEY_SCHEMA,
            schemas={1: VALUE_SCHEMA},
            config=version.config,
            config_hash=version.config_hash,
            created_at_ms=self.clock(),
            ledger=_LEDGER,
            sub_partitions=(SubPartition(partition=0, sub_partition=0, runs=((file,),)),),
        )
        path = manifest_path(version.path)
        self.deep.put(path, manifest.to_bytes())
        return manifest.ref(path)

    def _snapshot(self, name: str) -> Snapshot:
        view = routing.snapshot(self.context, name, None)
        return Snapshot(
            view.store, view.ends, {}, view.base_files, view.pace, view.now_ms, view.read_until_ms, view.to_come_ms
        )

    def _report(self) -> None:
        desired = desired_state(self.context, _NODE, self.context.fabrics[FABRIC])
        replicas = tuple(
            ReplicaReport(
                store_uid=store.uid,
                version=version.number,
                partition=partition,
                sub_partition=0,
                state=ReplicaState.APPLYING,
                store_revision=store.revision,
                # Nobody writes.
                position=PositionMap({at: 0 for _, at in feed_partitions_applied(version, store.feeds, partition)}),
            )
            for store in desired.stores
            for version in store.versions
            for partition in version.partitions
        )
        url, now_ms = f"http://{_NODE}:1", self.clock()
        report = NodeReport(node=_NODE, fabric=FABRIC, url=url, started_at_ms=now_ms, replicas=replicas)
        take_report(self.context, report)
