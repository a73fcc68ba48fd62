"""What steps act upon: a world with its parts, the checks that watch it, and those who act in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anew.api.stores.requests import CreateStore
from anew.codec.avro import parse_schema
from anew.core.errors import AnewError, OutcomeUnknown, Unreachable
from anew.core.stores.store import SERVABLE, Store
from anew.rebuild.observer import LogObserver
from anew.rebuild.stores.making import StoreRun
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA
from tests.simulation.history import History
from tests.simulation.invariants import Invariants
from tests.simulation.minispark import build_in
from tests.simulation.network import Faults
from tests.simulation.parts import ControllerPart, Machines, NodePart, SimulatedClient
from tests.simulation.tasks import TaskLease
from tests.simulation.world import Process, Task

STORE = "flights"
KEY, VALUE = parse_schema(KEY_SCHEMA), parse_schema(VALUE_SCHEMA)
_DISK_PAUSE = 0.1
_TRIES = 6

_T = TypeVar("_T")


class NothingThere(Exception):
    """A step that has nothing to act on."""


@dataclass
class Scene:
    """One world, and what all steps have in common."""

    history: History
    machines: Machines
    counts: dict[str, int] = field(default_factory=dict)
    drivers: list[Process] = field(default_factory=list)
    driving: list[Task] = field(default_factory=list)
    is_calm: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.world = self.machines.world
        self.checks = Invariants(self.machines)
        self.operator = self.world.process("operator", "operator")
        self.writer = self.world.process("writer", "writer")
        self.reader = self.world.process("reader", "reader")
        self.machines.rocks.point = self._disk_point
        self.client = SimulatedClient(self.machines, "operator")

    def _create(self) -> None:
        request = CreateStore(
            name=STORE,
            key_schema=KEY_SCHEMA,
            value_schema=VALUE_SCHEMA,
            settings=self._settings(),
            request_id=self.machines.new_id(),
        )
        self._again(lambda: self.client.create_store(request))

    def _settings(self) -> dict[str, Any]:
        """What the store is made with."""
        return {k: str(v).lower() if isinstance(v, bool) else v for k, v in self.history.settings.items()}

    def _again(self, act: Callable[[], _T]) -> _T:
        """Ask as a person does, who tries again when nobody answers."""
        for attempt in range(_TRIES):
            try:
                return act()
            except (Unreachable, OutcomeUnknown):
                if attempt == _TRIES - 1:
                    raise
                self.world.sleep(500)
        raise AssertionError("it was returned or raised")

    def _drive(self, what: str, act: Callable[[SimulatedClient], object]) -> None:
        """A driver process of its own; the story goes on meanwhile."""
        driver = self.world.process(f"driver-{len(self.drivers)}", "driver")
        self.drivers.append(driver)

        def run() -> None:
            try:
                act(SimulatedClient(self.machines, driver.name))
            except AnewError as error:
                self._count(f"{what} failed")
                self._say(f"{driver.name} ({what}): {error}")
            else:
                self._count(f"{what} done")

        self.driving.append(self.world.spawn(driver, run))

    def _run(self, driver: SimulatedClient) -> StoreRun:
        return StoreRun(
            controller=driver,
            build=build_in(self.machines),
            observer=LogObserver(),
            request_id=self.machines.new_id(),
            driver="driver",
            clock=lambda: int(self.world.now_ms),
            patience_seconds=15.0,
            clock_seconds=self.machines.seconds,
            pause=lambda seconds: self.world.sleep(seconds * 1000),
            lease=lambda controller, rebuild_id, epoch: TaskLease(self.world, controller, rebuild_id, epoch),
        )

    def _as(self, process: Process, act: Callable[[], object]) -> None:
        task = self.world.spawn(process, act, background=False)
        self.world.join(task, 30_000)
        if task.error is not None:
            raise task.error

    def _start_controller(self, name: str) -> None:
        self.machines.controllers[name] = ControllerPart(self.machines, name)

    def _start_node(self, name: str) -> None:
        self.machines.nodes[name] = NodePart(self.machines, name)

    def _faults(self, rate: float) -> None:
        faults = Faults(fail=rate, lose=rate, twice=rate, delay=rate, crash=rate / 10)
        gentle = Faults(fail=rate, lose=rate, twice=rate, delay=rate)
        table = {"controller": faults, "node": faults, "driver": faults, "executor": faults, "operator": gentle}
        self.machines.network.faults = table | {"writer": gentle}
        if rate:
            self.world.spawn(self.operator, self._mend)

    def _mend(self) -> None:
        """Processes that died of a fault are started again, as supervisors do."""
        while self.machines.network.faults["node"].fail:
            self.world.sleep(2_000)
            self._mend_dead()

    def _mend_dead(self) -> None:
        self.world.sleep(5_000)
        for name in [n for n, part in self.machines.controllers.items() if part.process.dead]:
            self._come_back("controller", name)
        for name in [n for n, part in self.machines.nodes.items() if part.process.dead]:
            self._come_back("node", name)

    def _come_back(self, kind: str, name: str) -> None:
        """Start a process again that died, after a while, as a supervisor does."""
        self.world.sleep(self.world.random.random() * 8_000)
        parts: Mapping[str, ControllerPart | NodePart]
        parts = self.machines.controllers if kind == "controller" else self.machines.nodes
        part = parts.get(name)
        if part is None or not part.process.dead:
            return
        if kind == "controller":
            self._start_controller(name)
        else:
            self._start_node(name)

    def _disk_point(self, what: str) -> None:
        if self.world.current is not None:
            self.machines.network.point(what)
            if self.world.random.random() < _DISK_PAUSE:
                self.world.sleep(self.world.random.random() * 100)

    def _processes(self) -> list[Process]:
        parts: list[ControllerPart | NodePart]
        parts = [*self.machines.controllers.values(), *self.machines.nodes.values()]
        return [*(part.process for part in parts), *self.drivers, self.writer]

    def _one(self, kind: str, which: int) -> Process:
        found = [p for p in self._processes() if p.kind == kind and not p.dead]
        if kind == "driver":
            found = found[-1:]
        if not found:
            raise NothingThere(f"no {kind} runs")
        return found[which % len(found)]

    def _store(self) -> Store:
        store = next((s for s in self.machines.database.tables.stores.values() if s.deleted_at_ms is None), None)
        if store is None:
            raise NothingThere("there is no store")
        return store

    def _version(self, which: int) -> int:
        numbers = [v.number for v in self._store().versions if v.statuses.get(FABRIC) in SERVABLE]
        if not numbers:
            raise NothingThere("there is no version")
        return int(numbers[-1 - which % len(numbers)])

    def _has_version(self) -> bool:
        return bool(self._store().current.get(FABRIC, 0))

    def _until(self, holds: Callable[[], bool], most_ms: float) -> None:
        until = self.world.now_ms + most_ms
        while not holds() and self.world.now_ms < until:
            self.world.sleep(300)
        if not holds():
            self.checks.breach("the beginning works", "not within its time")

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _say(self, what: str) -> None:
        self.machines.network.say(what)
