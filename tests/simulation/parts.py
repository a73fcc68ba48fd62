"""The parts as processes of the simulated world: the product's own code, with the world's clocks, network and disks."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx

from anew.api.http import ControllerClient
from anew.api.location import LogLocation
from anew.api.models import (
    BeginRebuild,
    ClusterInfo,
    Collect,
    DesiredState,
    EndRebuild,
    Heartbeat,
    HeartbeatAnswer,
    NodeReport,
    ResumeRebuild,
)
from anew.api.node_http import NodeClient
from anew.api.rebuilds import DriverStart, RebuildView, StoreRebuildView, view_as
from anew.api.stores.requests import CreateStore, HoldVersion, RollBack, Seal, Swap, UpdateStore
from anew.api.stores.routing import Routing, SnapshotView
from anew.api.stores.views import Deleted, StoreDetail, SwapAnswer
from anew.api.upkeep import Collected
from anew.client.routing import RoutingCache
from anew.client.store import Store as ReadStore
from anew.controller.engine import begin, fail, kill, lease, listing, resume
from anew.controller.engine.context import Context, Fabric, Limits
from anew.controller.engine.subjects import start_of
from anew.controller.nodes.reports import desired_state, take_report
from anew.controller.reconcile import Reconciler
from anew.controller.stores import changing, seal, swaps
from anew.controller.stores import routing as routing_of
from anew.controller.subjects import OUTPUTS, SUBJECTS
from anew.controller.upkeep import gc
from anew.core.errors import AnewError, Failed, Unreachable
from anew.core.rebuild import Stage
from anew.deepstore.arrow import ArrowDeepStore
from anew.deepstore.open import open_deep_store
from anew.log.open import open_log
from anew.loops.guarded import GuardedLoop, Loops
from anew.node.exchange import Answer, Request, error_answer
from anew.node.process import ControllerLink, NodeSettings
from anew.node.stores.engine import Collaborators, Engine, NodeIdentity
from anew.node.stores.reads import Reads
from anew.storage.memory import MIB, NodeMemory
from anew.testing.answers import a_store_detail
from anew.testing.builders import FABRIC
from anew.testing.memory.catalog import Database, MemoryCatalog
from anew.testing.memory.log import MemoryLog, Topics
from anew.testing.memory.rocks import RocksDisk
from tests.simulation.catalogs import FarCatalog
from tests.simulation.disks import FarDeepStore, FarLog, LogWatch
from tests.simulation.history import SKEW_LIMIT_SECONDS
from tests.simulation.network import Called, Network, is_injected
from tests.simulation.tasks import TaskLoader
from tests.simulation.world import Broken, Process, World

_T = TypeVar("_T")
_Start = TypeVar("_Start", bound=DriverStart[Any, Any])
_Made = TypeVar("_Made")

LIMITS = Limits(
    lease_seconds=8.0,
    node_alive_seconds=4.0,
    node_lost_seconds=12.0,
    ready_deadline_seconds=90.0,
    reclaim_grace_seconds=6.0,
    low_water_interval_seconds=4.0,
    repush_source_wait_seconds=8,
    scheduled_start_seconds=10.0,
)
"""Everything that takes hours in life, in seconds; in the same order of lengths."""

SKEW_LIMIT_MS = SKEW_LIMIT_SECONDS * 1000
_ROUND_MS = 700.0
_POLL_MS = 900.0
_REPORT_MS = 900.0
_IDLE_MS = 450.0
_ASKED = Called("the controller", "controller_unreachable", "answer_lost", changes=False)
_TOLD = Called("the controller", "controller_unreachable", "answer_lost", changes=True)
_READ = Called("a node", "node_unreachable", "node_unreachable", changes=False)


@dataclass(slots=True)
class Machines:
    """Everything that outlives processes, and the processes that run.

    Attributes:
        monotone: Whether append times never run backwards.
        root: Where deep store and nodes' directories are: a disk in memory.
        controllers: Those that run, by name; ``nodes`` likewise.
        pace: How much longer than usual parts rest between their rounds.
        launch: Starts a driver: (kind of subject, its name, request id).
    """

    world: World
    network: Network
    root: Path
    topics: Topics = field(default_factory=Topics)
    database: Database = field(default_factory=Database)
    rocks: RocksDisk = field(default_factory=RocksDisk)
    controllers: dict[str, ControllerPart] = field(default_factory=dict)
    nodes: dict[str, NodePart] = field(default_factory=dict)
    log_watch: LogWatch = field(default_factory=LogWatch)
    on_delete: Callable[[str], None] = lambda _path: None
    monotone: bool = True
    pace: float = 1.0
    launch: Callable[[str, str, str], None] = lambda _kind, _name, _request_id: None
    ids: Any = field(default_factory=lambda: itertools.count(1))
    _opened: ArrowDeepStore | None = None

    def new_id(self) -> str:
        """An id that nobody had."""
        return f"id{next(self.ids):05d}"

    def clock_of(self, process: Process) -> Callable[[], int]:
        """A process's clock, ms since the epoch."""
        return lambda: int(self.world.now_ms) + process.skew_ms

    def seconds(self) -> float:
        """A monotonic clock."""
        return self.world.now_ms / 1000

    def log(self, clock: Callable[[], int]) -> FarLog:
        """The log as a process with that clock reaches it."""
        log = MemoryLog(self.topics, clock=clock, skew_limit_ms=SKEW_LIMIT_MS, monotone=self.monotone)
        return FarLog(self.network, log, self.log_watch)

    @property
    def real_deep_store(self) -> ArrowDeepStore:
        """The deep store without the network."""
        if self._opened is None:
            opened = _OPEN_DEEP_STORE(str(self.root / "deep"))
            if not isinstance(opened, ArrowDeepStore):
                raise TypeError("a local directory is opened by Arrow")
            self._opened = opened
        return self._opened

    def replacements(self) -> dict[Any, Any]:
        """How the product's own ways to the outside lead into the world instead."""

        def deep_store(_root_uri: str) -> FarDeepStore:
            return FarDeepStore(self.network, self.real_deep_store, self.on_delete)

        def log(_location: object, *, clock: Callable[[], int], **_options: Any) -> FarLog:
            return self.log(clock)

        return {open_deep_store: deep_store, open_log: log}


_OPEN_DEEP_STORE = open_deep_store
LOCATION = LogLocation(kind="embedded", address="simulated")


class ControllerPart:
    """A controller process: answers calls, and reconciles."""

    def __init__(self, machines: Machines, name: str) -> None:
        world = machines.world
        self.process = world.process(name, "controller")
        clock = machines.clock_of(self.process)
        deep_store = FarDeepStore(machines.network, machines.real_deep_store, machines.on_delete)
        fabric = Fabric(FABRIC, machines.log(clock), LOCATION, deep_store)
        self.context = Context(
            catalog=FarCatalog(machines.network, MemoryCatalog(machines.database)),
            fabrics={FABRIC: fabric},
            clock=clock,
            new_id=machines.new_id,
            limits=LIMITS,
            loops=Loops(clock, clock_seconds=machines.seconds),
            subjects=SUBJECTS,
            outputs=OUTPUTS,
            launch=lambda kind, name, request_id: machines.launch(kind, name, request_id),
            pause=lambda seconds: world.sleep(seconds * 1000),
        )
        self._reconciler = Reconciler(self.context, machines.seconds)
        self._machines, self._world = machines, world
        world.spawn(self.process, self._reconcile)

    def _reconcile(self) -> None:
        loop = self.context.loops.loop("reconciler")
        while True:
            self._world.sleep(self._machines.pace * _ROUND_MS * (0.5 + self._world.random.random()))
            _turn(self._machines, self.process, loop, self._reconciler.round)

    def answer(self, act: Callable[[Context], _T]) -> _T:
        """What the controller answers, as its server does: what an injected fault breaks is an error of its own."""
        try:
            return act(self.context)
        except AnewError:
            raise
        except Exception as error:
            if is_injected(error):
                raise Failed("internal_error", "the controller failed over the request") from error
            raise


def _turn(machines: Machines, process: Process, loop: GuardedLoop, act: Callable[[], object]) -> bool:
    """One step of a loop under the product's guard; whether it succeeded. What nobody foresaw and nobody did is noted.

    After an error of this project the loops pause as long as between two steps, and the guard's own pause is left out.
    """
    foul = failed = False

    def step() -> None:
        nonlocal foul, failed
        try:
            act()
        except AnewError:
            failed = True
            raise
        except Exception as error:
            foul = failed = True
            if not is_injected(error):
                machines.world.broken.append(Broken(process, error))
            raise

    pause_seconds = loop.turn(step)
    if foul:
        machines.world.sleep(pause_seconds * 1000)
    return not failed


class SimulatedClient(ControllerClient):
    """The controller as another process asks it: any that answers."""

    def __init__(self, machines: Machines, actor: str) -> None:
        """Ask as somebody."""
        self._machines = machines
        self._actor = actor

    def _any(self) -> ControllerPart | None:
        running = [part for part in self._machines.controllers.values() if not part.process.dead]
        return self._machines.world.random.choice(running) if running else None

    def _ask(self, called: Called, act: Callable[[Context], _T]) -> _T:
        part = self._any()
        if part is None:
            raise Unreachable(called.unreachable, "no controller runs")
        return self._machines.network.between(part.process, called, lambda: part.answer(act))

    def create_store(self, request: CreateStore) -> StoreDetail:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: a_store_detail(changing.create_store(c, request, self._actor)))

    def update_store(self, name: str, request: UpdateStore) -> StoreDetail:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: a_store_detail(changing.update_store(c, name, request, self._actor)))

    def delete_store(self, name: str) -> Deleted:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: Deleted(deleted=changing.delete_store(c, name, self._actor).name))

    def snapshot(self, name: str, at_ms: int | None = None) -> SnapshotView:
        """See `ControllerClient`."""
        return self._ask(_ASKED, lambda c: routing_of.snapshot(c, name, at_ms))

    def routing(self, name: str, fabric: str | None = None) -> Routing:
        """See `ControllerClient`."""
        return self._ask(_ASKED, lambda c: routing_of.routing(c, name, fabric))

    def hold_version(self, name: str, request: HoldVersion) -> None:
        """See `ControllerClient`."""
        self._ask(_TOLD, lambda c: changing.hold_version(c, name, request, self._actor))

    def cluster(self, fabric: str | None = None) -> ClusterInfo:
        """See `ControllerClient`."""
        info = ClusterInfo(fabric=FABRIC, log=LOCATION, deep_store=str(self._machines.root / "deep"), release="0")
        return self._ask(_ASKED, lambda _: info)

    def swap(self, name: str, request: Swap) -> SwapAnswer:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: swaps.swap(c, name, request, self._actor))

    def roll_back(self, name: str, request: RollBack) -> SwapAnswer:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: swaps.roll_back(c, name, request, self._actor))

    def begin_rebuild(self, request: BeginRebuild, of: type[_Start]) -> _Start:
        """See `ControllerClient`."""
        return cast("_Start", self._ask(_TOLD, lambda c: start_of(c, begin.begin(c, request, self._actor))))

    def rebuild(self, rebuild_id: str, *, after: Stage | None = None, wait_seconds: float = 0.0) -> RebuildView:
        """See `ControllerClient`; nothing is waited for."""
        return self._ask(_ASKED, lambda c: listing.view(c, rebuild_id))

    def heartbeat(self, rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: lease.heartbeat(c, rebuild_id, request))

    def seal(self, rebuild_id: str, request: Seal) -> StoreRebuildView:
        """See `ControllerClient`."""
        sealed = self._ask(_TOLD, lambda c: listing.rebuild_view(c, seal.seal(c, rebuild_id, request)))
        return view_as(sealed, StoreRebuildView)

    def fail_rebuild(self, rebuild_id: str, request: EndRebuild) -> RebuildView:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: listing.rebuild_view(c, fail.fail(c, rebuild_id, request)))

    def kill_rebuild(self, rebuild_id: str) -> RebuildView:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: listing.rebuild_view(c, kill.kill(c, rebuild_id, self._actor)))

    def resume_rebuild(self, rebuild_id: str, request: ResumeRebuild, of: type[_Start]) -> _Start:
        """See `ControllerClient`."""
        asked = partial(resume.resume, rebuild_id=rebuild_id, request=request, actor=self._actor)
        return cast("_Start", self._ask(_TOLD, lambda c: start_of(c, asked(c))))

    def collect(self, request: Collect) -> Collected:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: gc.gc(c, request.store, self._actor, dry_run=request.dry_run))

    def desired(self, node: str, fabric: str, after: int = -1, wait_seconds: float = 0.0) -> DesiredState | None:
        """See `ControllerClient`; nothing is waited for."""

        def act(context: Context) -> DesiredState | None:
            is_news = context.catalog.revision() > after
            return desired_state(context, node, context.fabrics[fabric]) if is_news else None

        return self._ask(_ASKED, act)

    def report(self, request: NodeReport) -> None:
        """See `ControllerClient`."""
        self._ask(_TOLD, lambda c: take_report(c, request))


class NodePart:
    """A node process, over a directory that outlives it."""

    def __init__(self, machines: Machines, name: str) -> None:
        world = self._world = machines.world
        self._machines = machines
        self.name = name
        self.process = world.process(name, "node")
        self.directory = machines.root / name
        self.directory.mkdir(exist_ok=True)
        clock = machines.clock_of(self.process)
        self.url = f"http://{name}"
        identity = NodeIdentity(name, FABRIC, self.url, self.directory, clock(), removal_grace_seconds=2.0)
        collaborators = Collaborators(
            NodeMemory(MIB, MIB),
            TaskLoader(world, self.process),
            lambda _location: machines.log(clock),
            clock,
            machines.seconds,
        )
        self.engine = Engine(identity, collaborators)
        self.reads = Reads(lambda: self.engine.picture, name)
        settings = NodeSettings(name, FABRIC, self.directory, "", "", 0, clock)
        self._link = ControllerLink(SimulatedClient(machines, name), self.engine, settings)
        self.process.ends.append(lambda: _unlock(machines.rocks, self.directory))
        world.spawn(self.process, self._work)
        world.spawn(self.process, lambda: self._again("desired state", _POLL_MS, lambda: self._link.poll(0.0)))
        world.spawn(self.process, lambda: self._again("report", _REPORT_MS, self._link.report))

    def _work(self) -> None:
        self._link.take_kept()
        loop = self.engine.loops.loop("applier")
        while True:
            busy = False

            def step() -> None:
                nonlocal busy
                busy = self.engine.step()

            _turn(self._machines, self.process, loop, step)
            rest_ms = 40.0 if busy else self._machines.pace * _IDLE_MS
            self._world.sleep(rest_ms * (0.5 + self._world.random.random()))

    def _again(self, name: str, every_ms: float, act: Callable[[], None]) -> None:
        loop = self.engine.loops.loop(name)
        while True:
            away = False

            def step() -> None:
                nonlocal away
                try:
                    act()
                except AnewError:
                    # No trouble of the loop's: the controller is away.
                    away = True

            _turn(self._machines, self.process, loop, step)
            if away:
                self._world.sleep(every_ms)
            self._world.sleep(self._machines.pace * every_ms * (0.5 + self._world.random.random()))

    def wipe(self) -> None:
        """Lose the disk."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _unlock(rocks: RocksDisk, directory: Path) -> None:
    """What the system does for a dead process: its locks are free."""
    for instance in rocks.instances.values():
        holder = instance.open_in
        if holder is not None and Path(holder.directory).is_relative_to(directory):
            instance.open_in = None


class NodeTransport(httpx.BaseTransport):
    """Carries a client's reads to nodes of the world."""

    def __init__(self, machines: Machines) -> None:
        """Reach any node."""
        self._machines = machines

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Ask the node that the URL names."""
        part = self._machines.nodes.get(request.url.host)
        if part is None or part.process.dead:
            raise httpx.ConnectError("refused")
        asked = Request(request.method, request.url.path, dict(request.url.params), request.headers.get, request.read())
        try:
            answer = self._machines.network.between(part.process, _READ, lambda: _answered(part, asked))
        except Unreachable as error:
            raise httpx.ReadTimeout(error.message) from error
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)


def _answered(part: NodePart, asked: Request) -> Answer:
    """What a node answers, as its server does: whatever a read fails over, there is an answer."""
    try:
        return part.reads.answer(asked)
    except Exception:  # noqa: BLE001 - as `anew.node.http1`
        return error_answer(Failed("internal_error", "the node failed over the request"), [])


def store_client(machines: Machines, process: Process, name: str) -> ReadStore:
    """A store as a client's process sees it."""
    client = SimulatedClient(machines, process.name)
    return ReadStore(
        RoutingCache(client, name, None, machines.seconds),
        NodeClient(transport=NodeTransport(machines)),
        lambda _routing: machines.log(machines.clock_of(process)),
        machines.seconds,
        lambda seconds: machines.world.sleep(seconds * 1000),
    )
