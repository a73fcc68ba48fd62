"""A controller over a real catalog, log and deep store, reached through its HTTP face; nodes are reports made here."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from anew.api.http import ControllerClient
from anew.api.location import LogLocation
from anew.api.models import BeginRebuild, Heartbeat, NodeReport
from anew.api.rebuilds import StoreRebuildView, StoreStart
from anew.api.security import NOBODY, OPEN_SERVER, Credentials, ServerSecurity
from anew.api.stores.replicas import DeadLetter, DesiredStore, DesiredVersion, ReplicaReport, ReplicaState
from anew.api.stores.requests import CreateStore, Seal, Swap, UpdateStore
from anew.api.stores.routing import SnapshotView
from anew.api.stores.views import StoreDetail, SwapAnswer
from anew.catalog.database import DatabaseCatalog
from anew.codec.compression import compressor
from anew.controller.engine.context import Context, Fabric, Limits
from anew.controller.engine.watch import Watch
from anew.controller.reconcile import Reconciler
from anew.controller.subjects import OUTPUTS, SUBJECTS
from anew.core.errors import AnewError
from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.hashing import total
from anew.core.ledger import ZERO, Entry, Ledger
from anew.core.partition import XxHash64Partitioner
from anew.core.rebuild import Stage
from anew.core.stores.feedreads import feed_partitions_applied, stop_of
from anew.core.stores.plan import Plan, PushInput
from anew.core.stores.planning import (
    NO_OPTIONS,
    PushOptions,
    RepushRequest,
    Snapshot,
    plan_push,
    plan_repush,
    push_start_ms,
)
from anew.core.stores.rebuild import Fingerprints, StoreRebuild
from anew.core.stores.store import ManifestRef, RebuildKind, Store, Version, VersionInFabric
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.log.embedded import EmbeddedLog
from anew.log.interface import Log, TopicPartition, topic_partition
from anew.registry.interface import SchemaRegistry
from anew.segments.baserange import BaseRangeWriter, start_of_push
from anew.segments.layout import attempt_name, attempt_path, manifest_path, version_path
from anew.segments.manifest import BaseFile, BaseRange, Manifest, SubPartition
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA, append_records
from anew.testing.clock import NOON_MS, ManualClock
from anew.testing.range_contract import some_rows
from tests.component.controller.serving import AppTransport, served

LIMITS = Limits(
    lease_seconds=20,
    node_alive_seconds=6,
    node_lost_seconds=60,
    ready_deadline_seconds=300,
    reclaim_grace_seconds=600,
    low_water_interval_seconds=1,
)
_LISTENS_MS = 5_000
"""Between two rounds of a controller that is well there is less than half a lease."""
_ROW_HASH = total(some_rows(1).column("hash").to_numpy())
_ACCOUNT = Entry(count=1, hash=_ROW_HASH)

Change = Callable[[ReplicaReport], ReplicaReport | None]
"""What a node says of a replica instead of that it is whole; None: nothing."""


@dataclass
class Cluster:
    """A controller with one fabric, and what nodes and drivers do to it, step by step."""

    context: Context
    clock: ManualClock
    client: ControllerClient
    app: FastAPI
    watch: Watch
    reconciler: Reconciler
    log: Log
    deep: DeepStore
    nodes: tuple[str, ...] = ("node-1", "node-2")
    launched: list[tuple[str, str]] = field(default_factory=list)
    _requests: Iterator[int] = field(default_factory=itertools.count)

    # -- stores ------------------------------------------------------------------------------------------------------

    def create(self, name: str = "flights", **settings: Any) -> Store:
        """A hybrid store with 4 RT partitions, 2 partitions and 1 replica, unless told otherwise."""
        values = {"hybrid": True, "rt_partitions": 4, "partitions": 2, "replicas": 1, **settings}
        self.client.create_store(
            CreateStore(name=name, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA, settings=values)
        )
        return self.store(name)

    def store(self, name: str = "flights") -> Store:
        """The aggregate as the catalog holds it."""
        store = self.context.catalog.store(name)
        assert store is not None
        return store

    def version(self, number: int, name: str = "flights") -> Version:
        """A version of it, also one that has left."""
        store = self.store(name)
        version = store.version(number)
        if version is None:
            (version,) = self.context.catalog.past_versions(store.uid, 1, number=number)
        return version

    def there(self, number: int, name: str = "flights") -> VersionInFabric:
        """A version's life in `FABRIC`."""
        return self.version(number, name).fabrics[FABRIC]

    def status(self, number: int, name: str = "flights") -> str:
        """Where a version stands."""
        return self.version(number, name).status.value

    def write(self, feed: Feed, count: int, prefix: str = "key") -> list[tuple[FeedPartition, int]]:
        """Append that many nearline writes where their keys belong; where each was acknowledged."""
        partitioner, acknowledged = XxHash64Partitioner(feed.partitions), []
        for number in range(count):
            key = f"{prefix}-{number}".encode()
            at = TopicPartition(feed.topic, feed.topic_uid, partitioner.of(key))
            appended = self.log.append(at, append_records([key], [b"value"]))
            acknowledged.append((FeedPartition(feed.id, at.partition), appended.first_offset))
        return acknowledged

    def update(self, name: str = "flights", **settings: Any) -> StoreDetail:
        """Change settings; the store's view."""
        return self.client.update_store(name, UpdateStore(settings=settings))

    def ends(self, feed: Feed) -> PositionMap:
        """The ends of a feed's partitions."""
        return PositionMap(
            {
                at: self.context.fabrics[feed.fabric].log.offsets(topic_partition(feed, at.partition)).end
                for at in feed.feed_partitions()
            }
        )

    # -- drivers -----------------------------------------------------------------------------------------------------

    def push_plan(self, name: str = "flights", as_of_ms: int | None = None, options: PushOptions = NO_OPTIONS) -> Plan:
        """The plan of a push made now."""
        as_of = self.clock() if as_of_ms is None else as_of_ms
        files = PushInput(paths=("/in.csv",), format="csv", key=("key",), as_of_ms=as_of)
        at_ms = push_start_ms(self.store(name), as_of, self.clock())
        view = self.client.snapshot(name, at_ms)
        snapshot = _snapshot(view)
        return plan_push(snapshot, files, 1_000, view.at_time, options)

    def empty_push_plan(self, name: str = "flights") -> Plan:
        """The plan of a push of nothing, which needs no Spark."""
        files = PushInput(paths=(), format="csv", key=("key",), as_of_ms=self.clock())
        view = self.client.snapshot(name, self.clock())
        return plan_push(_snapshot(view), files, 0, view.at_time)

    def repush_plan(self, name: str = "flights", request: RepushRequest | None = None) -> Plan:
        """The plan of a repush made now."""
        view = self.client.snapshot(name)
        snapshot = _snapshot(view)
        return plan_repush(snapshot, RepushRequest() if request is None else request)

    def begin(self, plan: Plan, request_id: str | None = None) -> StoreRebuild:
        """Begin a plan."""
        chosen = f"request-{next(self._requests)}" if request_id is None else request_id
        begin = BeginRebuild(plan=plan, request_id=chosen, driver="test")
        return self.client.begin_rebuild(begin, StoreStart).rebuild

    def beat(self, rebuild: StoreRebuild, stage: Stage = Stage.BUILD) -> bool:
        """A sign of life of the rebuild's driver; whether it is told to stop."""
        return self.client.heartbeat(rebuild.id, Heartbeat(epoch=rebuild.epoch, stage=stage)).kill_asked

    def _file(self, rebuild: StoreRebuild, directory: str) -> BaseFile:
        """A base file; nobody here reads what is in it."""
        content = f"rows of {rebuild.id}".encode()
        path = attempt_path(directory, 0, 0, "attempt-0")
        self.deep.put(path, content)
        return BaseFile(
            path=path,
            rows=1,
            tombstones=0,
            bytes=len(content),
            checksum=hashlib.sha256(content).hexdigest(),
            smallest_key="00",
            largest_key="00",
            fingerprint=_ROW_HASH,
        )

    def _range(self, rebuild: StoreRebuild, directory: str) -> BaseRange:
        """A row in the version topic."""
        topic, attempt = self.there(rebuild.version).topic, attempt_name(directory, "attempt-0")
        assert topic is not None
        start = start_of_push(rebuild.plan.target.config, None, attempt)
        place = TopicPartition(topic.name, topic.uid, 0)
        writer = BaseRangeWriter(self.log, place, attempt, start, compressor("none"))
        writer.write(some_rows(1))
        part = writer.close()
        assert part is not None
        return part

    def manifest_of(self, rebuild: StoreRebuild, *, empty: bool = False) -> ManifestRef:
        """Write a base of one row, or of none, and the manifest that names it, as a driver does."""
        store = self.store(rebuild.store)
        directory = version_path(store.uid, rebuild.version, rebuild.id, rebuild.epoch)
        goes_to_log = rebuild.plan.target.config.transport == "log"
        part = self._range(rebuild, directory) if goes_to_log else self._file(rebuild, directory)
        plan, account = rebuild.plan, ZERO if empty else _ACCOUNT
        manifest = Manifest(
            store=store.name,
            store_uid=store.uid,
            version=rebuild.version,
            kind=RebuildKind(plan.kind),
            rebuild=rebuild.id,
            epoch=rebuild.epoch,
            key_schema=store.key_schema,
            schemas=store.schemas,
            config=plan.target.config,
            config_hash=plan.target.config.hash,
            created_at_ms=self.clock(),
            ledger=Ledger(read=account, written=account),
            sub_partitions=(SubPartition(partition=0, sub_partition=0, runs=() if empty else ((part,),)),),
        )
        target = manifest_path(directory)
        self.deep.put(target, manifest.to_bytes())
        return manifest.ref(target)

    def seal_of(self, rebuild: StoreRebuild, **changes: Any) -> Seal:
        """A seal that balances; ``changes`` replace its fields."""
        seal = Seal(
            epoch=rebuild.epoch,
            manifest=self.manifest_of(rebuild),
            ledger=Ledger(read=_ACCOUNT, written=_ACCOUNT),
            fingerprint=Fingerprints(source=_ROW_HASH, target=_ROW_HASH),
            records_per_s=100.0,
        )
        return seal.model_copy(update=changes)

    def seal(self, rebuild: StoreRebuild) -> StoreRebuildView:
        """Build and seal."""
        return self.client.seal(rebuild.id, self.seal_of(rebuild))

    def serve(self, plan: Plan) -> int:
        """Take a plan all the way: begin, build, seal, load, swap; the version's number."""
        rebuild = self.begin(plan)
        self.seal(rebuild)
        self.settle(3)
        self.until(lambda: self.client.rebuild(rebuild.id).status != "running")
        return rebuild.version

    # -- nodes -------------------------------------------------------------------------------------------------------

    def report(self, node: str, change: Change | None = None, fabric: str = FABRIC) -> None:
        """The node says that it holds all that it should, caught up to the log's end; ``change`` says otherwise."""
        desired = self.client.desired(node, fabric)
        assert desired is not None
        replicas = [
            self._replica(store, version, partition, sub_partition)
            for store in desired.stores
            for version in store.versions
            for partition in version.partitions
            for sub_partition in range(version.config.amplification_factor)
        ]
        told = [replica if change is None else change(replica) for replica in replicas]
        self.client.report(node_report(node, *(replica for replica in told if replica is not None), fabric=fabric))

    def _replica(
        self, store: DesiredStore, version: DesiredVersion, partition: int, sub_partition: int
    ) -> ReplicaReport:
        applied = feed_partitions_applied(version, store.feeds, partition)
        ends = {feed.id: self.ends(feed) for feed, _ in applied}
        position = {}
        for feed, at in applied:
            stop = stop_of(version, at)
            position[at] = ends[feed.id][at] if stop is None else min(ends[feed.id][at], stop)
        return ReplicaReport(
            store_uid=store.uid,
            version=version.number,
            partition=partition,
            sub_partition=sub_partition,
            state=ReplicaState.APPLYING,
            store_revision=store.revision,
            position=PositionMap(position),
        )

    def start_over(self) -> None:
        """The controller dies and comes back: whatever it had in memory is gone."""
        self.reconciler = Reconciler(self.context, self.clock.seconds)

    def until(self, reached: Callable[[], bool], rounds: int = 12) -> None:
        """Rounds with reports in between until a state is reached, and not one more."""
        for _ in range(rounds):
            if reached():
                return
            self.settle(1)
        assert reached(), "the state was not reached"

    def round(self) -> None:
        """One round of the reconciler."""
        self.reconciler.round()

    def settle(self, rounds: int = 5) -> None:
        """Rounds with reports of all nodes in between: enough for whatever can happen without time passing."""
        for _ in range(rounds):
            for node in self.nodes:
                self.report(node)
            self.round()

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass; the nodes stay alive."""
        self.listen_on(seconds)
        for node in self.nodes:
            self.report(node)

    def listen_on(self, seconds: float) -> None:
        """Let time pass in which the controller listens, and hears nobody."""
        left_ms = int(seconds * 1000)
        while left_ms > 0:
            step_ms = min(left_ms, _LISTENS_MS)
            self.clock.advance(step_ms)
            self.reconciler._listen()
            left_ms -= step_ms

    def acting(self, actor: str, credentials: Credentials = NOBODY) -> ControllerClient:
        """A connection of somebody else."""
        return ControllerClient(
            "http://localhost", actor=actor, transport=AppTransport(self.app), credentials=credentials
        )

    @property
    def http(self) -> httpx.Client:
        """A client that asks whatever a test likes."""
        return httpx.Client(base_url="http://localhost", transport=AppTransport(self.app))

    def swap(self, number: int, name: str = "flights") -> SwapAnswer:
        """Somebody swaps."""
        return self.client.swap(name, Swap(version=number))

    def files(self, prefix: str = "") -> list[str]:
        """Paths in the deep store."""
        return [file.path for file in self.deep.list(prefix if prefix else "stores")]


def _snapshot(view: SnapshotView) -> Snapshot:
    return Snapshot(
        view.store,
        view.ends,
        view.unreachable,
        view.base_files,
        view.pace,
        view.now_ms,
        view.read_until_ms,
        view.to_come_ms,
    )


def node_report(
    node: str, *replicas: ReplicaReport, dead_letters: tuple[DeadLetter, ...] = (), fabric: str = FABRIC
) -> NodeReport:
    """A node's report."""
    return NodeReport(
        node=node,
        fabric=fabric,
        url=f"http://{node}:1",
        started_at_ms=NOON_MS,
        replicas=replicas,
        dead_letters=dead_letters,
    )


@cache
def _empty_catalog() -> bytes:
    """A catalog's file, its schema made: once, because that takes longer than many a test."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "catalog.sqlite"
        DatabaseCatalog(f"sqlite:///{path}", timeout_seconds=5.0).close()
        return path.read_bytes()


@contextmanager
def opened_cluster(
    directory: Path,
    limits: Limits = LIMITS,
    security: ServerSecurity = OPEN_SERVER,
    registry: SchemaRegistry | None = None,
    others: tuple[str, ...] = (),
) -> Iterator[Cluster]:
    """A cluster of two live nodes and no store; ``others`` are further fabrics, with a log and a deep store each."""
    clock = ManualClock()
    ids = itertools.count()
    database = directory / "catalog.sqlite"
    if not database.exists():
        directory.mkdir(exist_ok=True)
        database.write_bytes(_empty_catalog())
    catalog = DatabaseCatalog(f"sqlite:///{database}", timeout_seconds=0.5)
    fabrics = {name: _fabric(directory, name, clock) for name in (FABRIC, *others)}
    launched: list[tuple[str, str]] = []
    context = Context(
        catalog,
        fabrics,
        clock,
        lambda: f"id-{next(ids):04d}",
        limits,
        "0.1",
        lambda _kind, store, request_id: launched.append((store, request_id)),
        SUBJECTS,
        OUTPUTS,
        registry=registry,
        pause=lambda seconds: _pass(clock, seconds),
    )
    with served(context, security) as app:
        own = NOBODY if security.tokens is None else Credentials(security.tokens.cluster)
        client = ControllerClient("http://localhost", actor="tester", transport=AppTransport(app), credentials=own)
        here, reconciler = fabrics[FABRIC], Reconciler(context, clock.seconds)
        cluster = Cluster(
            context, clock, client, app, context.watch, reconciler, here.log, here.deep_store, launched=launched
        )
        for node in cluster.nodes:
            client.report(node_report(node))
        yield cluster
        client.close()
    for fabric in fabrics.values():
        fabric.log.close()
    catalog.close()


def _pass(clock: ManualClock, seconds: float) -> None:
    clock.advance(int(seconds * 1000))


def _fabric(directory: Path, name: str, clock: ManualClock) -> Fabric:
    beside = directory if name == FABRIC else directory / name
    beside.mkdir(exist_ok=True)
    location = LogLocation(kind="embedded", address=str(beside / "log"))
    log = EmbeddedLog(beside / "log", clock=clock, durable=False)
    return Fabric(name, log, location, open_deep_store(str(beside / "deep")))


def plain(answer: BaseModel | Iterable[BaseModel]) -> Any:
    """An answer, or several, as JSON has them."""
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json", by_alias=True)
    return [plain(each) for each in answer]


def refused(kind: type[AnewError], act: Callable[[], object]) -> AnewError:
    """The error of that very class that an act ends in."""
    with pytest.raises(kind) as caught:
        act()
    assert type(caught.value) is kind
    return caught.value
