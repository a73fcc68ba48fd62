"""Running a history: the story that its steps tell, then calm, then the question whether all is well."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import structlog

from anew.api.models import CreateStore, HoldVersion, RollBack, Swap, UpdateStore
from anew.codec.avro import encode_datum, parse_schema
from anew.core.errors import AnewError, OutcomeUnknown, Unreachable
from anew.core.merge import Cell
from anew.core.planning import PushOptions, RepushRequest
from anew.core.properties import RepushProperties, parse_properties
from anew.core.rebuild import RebuildStatus
from anew.core.stamp import Stamp
from anew.core.store import SERVABLE
from anew.log.interface import APPEND_RECORDS, TopicPartition
from anew.rebuild.executor import Run, resume_rebuild, run_plan
from anew.rebuild.inputs import PushRequest
from anew.rebuild.observer import LogObserver
from anew.rebuild.planner import make_checked_repush_plan, make_push_plan
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.memory.rocks import rocks_in_memory
from anew.testing.simulation.disks import rebinding
from anew.testing.simulation.history import KEYS, History, Step
from anew.testing.simulation.invariants import Invariants, same_text
from anew.testing.simulation.minispark import build_in, spark_replacements, task_context
from anew.testing.simulation.network import Faults, Network
from anew.testing.simulation.parts import ControllerPart, Machines, NodePart, SimulatedClient, TaskLease, store_client
from anew.testing.simulation.world import Process, TooLong, World

STORE = "flights"
_KEY, _VALUE = parse_schema(KEY_SCHEMA), parse_schema(VALUE_SCHEMA)
_LONGEST_MS = 600_000.0
_CALM_MS = 240_000.0
_STEP_MS = 4_000.0
_DISK_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a history came to.

    Attributes:
        breaches: (invariant, what was seen); none when all held.
        log: What happened, for people.
        counts: How often what was done, to see that histories do something.
    """

    breaches: tuple[tuple[str, str], ...]
    log: tuple[str, ...]
    counts: dict[str, int]


def run(history: History, root: Path | None = None) -> Outcome:
    """Run a history to its end; the same one gives the same outcome."""
    with ExitStack() as stack:
        parent = root
        if parent is None:
            shared = Path("/dev/shm")  # noqa: S108 - a disk in memory, where there is one
            parent = Path(tempfile.mkdtemp(prefix="anew-sim-", dir=shared if shared.is_dir() else None))
            stack.callback(shutil.rmtree, parent, ignore_errors=True)
        world = World(history.seed)
        machines = Machines(world, Network(world), parent, monotone=history.monotone)
        stack.enter_context(rebinding({**machines.replacements(), **spark_replacements()}))
        stack.enter_context(rocks_in_memory(machines.rocks))
        stack.enter_context(patch.object(pyspark.TaskContext, "get", task_context(machines)))
        stack.enter_context(_quietly())
        return Story(history, machines).tell()


@dataclass
class Story:
    """The steps of a history, by name, over one world."""

    history: History
    machines: Machines
    counts: dict[str, int] = field(default_factory=dict)
    drivers: list[Process] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.world = self.machines.world
        self.checks = Invariants(self.machines)
        self.operator = self.world.process("operator", "operator")
        self.writer = self.world.process("writer", "writer")
        self.reader = self.world.process("reader", "reader")
        self.machines.rocks.point = self._disk_point
        self.client = SimulatedClient(self.machines, "operator")

    def tell(self) -> Outcome:
        """Run it all."""
        task = self.world.spawn(self.operator, self._script, background=False)
        try:
            self.world.run_until(task, _LONGEST_MS)
        except TooLong as error:
            self.checks.breach("histories end", str(error))
        except Exception:  # noqa: BLE001 - a story must not fail; whatever it is, it is shown
            self.checks.breach("nothing unexpected is raised", traceback.format_exc())
        for part in self.world.broken:
            shown = "".join(traceback.format_exception(part.error)) if part.error else ""
            self.checks.breach("nothing unexpected is raised", f"{part.process.name}: {shown}")
        return Outcome(tuple(self.checks.breaches), tuple(self.machines.network.log), dict(self.counts))

    def _script(self) -> None:
        for number in range(self.history.controllers):
            self._start_controller(f"controller-{number}")
        for number in range(self.history.nodes):
            self._start_node(f"node-{number}")
        self._until(lambda: len(self.machines.database.nodes) == self.history.nodes, 20_000)
        self._create()
        self.push(("k0", "k1", "k2"), None, False)
        self._until(self._has_version, 60_000)
        self._faults(self.history.trouble / 1000)
        self.world.spawn(self.reader, self._read_on)
        for step in self.history.steps:
            self._take(step)
            if self.checks.breaches:
                return
        self._calm_down()

    def _take(self, step: Step) -> None:
        self._say(f"— {step.what}{step.arguments}")
        act: Callable[..., None] = getattr(self, step.what)
        try:
            act(*step.arguments)
        except (AnewError, _NothingThere) as error:
            self._count(f"{step.what} refused")
            self._say(f"refused: {error}")
        else:
            self._count(step.what)
        self.world.sleep(50 + step.wait_ms)
        self.checks.look()

    def _calm_down(self) -> None:
        """No more trouble: everything must arrive where it should be."""
        self._say("— calm")
        self._faults(0.0)
        for process in self._processes():
            process.cut_off_until_ms = process.stopped_until_ms = 0.0
            process.skew_ms = 0
        for name in [n for n, part in self.machines.controllers.items() if part.process.dead]:
            self._start_controller(name)
        for name in [n for n, part in self.machines.nodes.items() if part.process.dead]:
            self._start_node(name)
        # What a zombie wrote when its directory had been reclaimed is found by `anew gc`.
        if self._settle() and self._collected() and self._settle():
            self.checks.final()
            self._read_all()

    def _settle(self) -> bool:
        """Wait until everything is where it should be."""
        until, arrived = self.world.now_ms + _CALM_MS, 0
        while arrived < 2:
            self.world.sleep(_STEP_MS)
            why = self.checks.settled()
            arrived = arrived + 1 if why is None else 0
            if self.world.now_ms > until:
                self.checks.breach("everything arrives", str(why))
                return False
        return True

    def _collected(self) -> bool:
        self.client.collect(None)
        return True

    # -- steps: data ---------------------------------------------------------------------------------------------------

    def write(self, keys: tuple[str, ...], ago_ms: int | None) -> None:
        """Nearline writes, with a given time or the log's."""
        self._append([(key, f"{key}-w{next(self._numbers)}") for key in keys], ago_ms)

    def delete(self, keys: tuple[str, ...], ago_ms: int | None) -> None:
        """Nearline deletes."""
        self._append([(key, None) for key in keys], ago_ms)

    def _append(self, pairs: list[tuple[str, str | None]], ago_ms: int | None) -> None:
        self._check_log_is_whole()
        written_at = None if ago_ms is None else int(self.world.now_ms) - ago_ms
        store = store_client(self.machines, self.writer, STORE)

        def act() -> None:
            with store.writer() as writer:
                for key, text in pairs:
                    if text is None:
                        writer.delete(key, written_at=written_at)
                    else:
                        writer.put(key, {"text": text}, written_at=written_at)

        self._as(self.writer, act)

    def foreign(self) -> None:
        """A producer of somebody's own puts a record where nobody looks for it (rule R8)."""
        self._check_log_is_whole()
        store = self._store()
        if not store.feeds:
            raise _NothingThere("there is no feed")
        feed = store.feeds[-1]
        row = {"written_ms": [None], "origin": [feed.origin_bytes], "key": [encode_datum(_KEY, "k0")]}
        value = [encode_datum(_VALUE, {"text": "foreign"})]
        records = pa.RecordBatch.from_pydict(
            {**row, "schema_id": [min(store.schemas)], "value": value}, schema=APPEND_RECORDS
        )
        for partition in range(feed.partitions):
            at = TopicPartition(feed.topic, feed.topic_uid, partition)
            self._as(self.writer, lambda at=at: self.machines.log(lambda: int(self.world.now_ms)).append(at, records))  # type: ignore[misc]

    def _check_log_is_whole(self) -> None:
        """Nothing is appended where records were lost, until everybody has noticed: offsets would come again unseen."""
        if self.checks.lost_tail:
            raise _NothingThere("the log lost records")

    def evolve(self) -> None:
        """A new value schema, which nodes learn of at different times (rule R21)."""
        name = f"f{next(self._numbers)}"
        schema = json.loads(next(iter(sorted(self._store().schemas.items())))[1])
        schema["fields"].append({"name": name, "type": ["null", "string"], "default": None})
        self.client.update_store(STORE, UpdateStore(value_schema=json.dumps(schema)))

    def lose_tail(self, count: int) -> None:
        """The log loses its last records (rule R3): what was built from them must go as well.

        Not while something is made from them: that is refused, or fails, in its own way.
        """
        store = self._store()
        if not store.feeds or store.in_the_making() is not None:
            raise _NothingThere("no feed, or a version is made")
        feed = store.feeds[-1]
        topic = self.machines.topics.present.get(feed.topic)
        for at in feed.feed_partitions() if topic is not None else ():
            partition = topic.partitions[at.partition]
            needed = [v.start.get(at, 0) for v in store.versions] + [partition.begin]
            needed += [v.stop.get(at, 0) for v in store.versions if v.stop is not None]
            keep = max(len(partition.rows) - count, *needed)
            del partition.rows[keep:]
            self.checks.lost_tail = True
            self.checks.account.lose(feed.topic_uid, at.partition, keep)

    # -- steps: rebuilds -----------------------------------------------------------------------------------------------

    def push(self, keys: tuple[str, ...], times_ago_ms: int | None, defer: bool) -> None:  # noqa: FBT001 - drawn
        """A full push from a file."""
        number = next(self._numbers)
        path = self.machines.root / f"input-{number}.parquet"
        texts = {key: f"{key}-p{number}" for key in dict.fromkeys(keys)}
        at_ms = 0 if times_ago_ms is None else int(self.world.now_ms) - times_ago_ms
        columns = {"id": list(texts), "text": list(texts.values())}
        if at_ms:
            columns["at"] = [at_ms] * len(texts)  # type: ignore[list-item]
        pq.write_table(pa.table(columns), path)
        self.checks.account.pushed[str(path)] = {
            encode_datum(_KEY, key): Cell(Stamp(at_ms), encode_datum(_VALUE, {"text": text}), 0)
            for key, text in texts.items()
        }
        request = PushRequest(
            (str(path),), ("id",), written_at="at" if at_ms else None, as_of_ms=int(self.world.now_ms)
        )

        def act(driver: SimulatedClient) -> None:
            options = PushOptions(allow_undying=True, defer_swap=defer)
            plan = make_push_plan(driver, STORE, request, RepushProperties(), options)
            run_plan(plan, self._run(driver))

        self._drive("push", act)

    def repush(self, option: str) -> None:
        """A repush."""
        asked = {
            "combiner": {"kafka.input.combiner.enabled": "true"},
            "few": {"kafka.input.max.records.per.mapper": "2"},
            "ttl": {"repush.ttl.enable": "true", "repush.ttl.seconds": "10"},
        }.get(option, {})
        properties = parse_properties({"source.kafka": "true", **asked})

        def act(driver: SimulatedClient) -> None:
            plan = make_checked_repush_plan(driver, STORE, RepushRequest(properties, defer_swap=option == "defer"))
            run_plan(plan, self._run(driver))

        self._drive("repush", act)

    def configure(self, change: tuple[str, object]) -> None:
        """A setting."""
        name, value = change
        shown = str(value).lower() if isinstance(value, bool) else value
        self.client.update_store(STORE, UpdateStore(settings={name: shown}))

    def reconfigure(self, change: tuple[str, object]) -> None:
        """A setting, and the repush that makes it so."""
        self.configure(change)
        self.repush("")

    def resume(self) -> None:
        """Somebody takes a rebuild over."""
        running = [r for r in self.machines.database.tables.rebuilds.values() if r.status is RebuildStatus.RUNNING]
        if not running:
            raise _NothingThere("no rebuild runs")
        self._drive("resume", lambda driver: resume_rebuild(running[0].id, self._run(driver)))

    def kill(self) -> None:
        """Somebody ends the newest rebuild."""
        rebuilds = self.machines.database.tables.rebuilds.values()
        newest = max(rebuilds, key=lambda rebuild: (rebuild.created_at_ms, rebuild.id))
        self.client.kill_rebuild(newest.id)

    def roll_back(self) -> None:
        """``anew store rollback``."""
        self.client.roll_back(STORE, RollBack())

    def swap(self, which: int) -> None:
        """``anew store swap``."""
        self.client.swap(STORE, Swap(version=self._version(which)))

    def hold(self, which: int) -> None:
        """A long read begins."""
        self.client.hold_version(STORE, HoldVersion(version=self._version(which), seconds=10))

    def collect(self) -> None:
        """``anew gc``."""
        self.client.collect(None)

    def recreate(self) -> None:
        """The store is deleted, and another one gets its name."""
        self.client.delete_store(STORE)
        self._create()
        self.push(("k0", "k3"), None, False)

    # -- steps: breaks -------------------------------------------------------------------------------------------------

    def crash(self, kind: str, which: int) -> None:
        """SIGKILL; nodes and controllers come back after a while."""
        process = self._one(kind, which)
        self._say(f"{process.name} is killed")
        self.world.kill(process)
        if kind in ("node", "controller"):
            self.world.spawn(self.operator, lambda: self._come_back(kind, process.name))

    def _come_back(self, kind: str, name: str) -> None:
        self.world.sleep(self.world.random.random() * 8_000)
        parts: dict[str, ControllerPart] | dict[str, NodePart]
        parts = self.machines.controllers if kind == "controller" else self.machines.nodes
        part = parts.get(name)
        if part is None or not part.process.dead:
            return
        if kind == "controller":
            self._start_controller(name)
        else:
            self._start_node(name)

    def stop(self, kind: str, which: int, ms: int) -> None:
        """SIGSTOP, and SIGCONT later."""
        self._one(kind, which).stopped_until_ms = self.world.now_ms + ms

    def cut_off(self, kind: str, which: int, ms: int) -> None:
        """The network between a process and the others is gone for a while."""
        self._one(kind, which).cut_off_until_ms = self.world.now_ms + ms

    def clock_back(self, kind: str, ms: int) -> None:
        """Somebody sets a clock back."""
        process = self.writer if kind == "writer" else self._one(kind, 0)
        process.skew_ms -= ms

    def lose_node(self, which: int) -> None:
        """A node and its disk are gone for good."""
        running = [part for part in self.machines.nodes.values() if not part.process.dead]
        if len(running) < 2:
            raise _NothingThere("the last node stays")
        part = running[which % len(running)]
        self.world.kill(part.process)
        part.wipe()
        del self.machines.nodes[part.name]

    def add_node(self) -> None:
        """A fresh node joins."""
        self._start_node(f"node-{next(self._numbers) + 100}")

    # -- how -----------------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        settings = {k: str(v).lower() if isinstance(v, bool) else v for k, v in self.history.settings.items()}
        request = CreateStore(
            name=STORE,
            key_schema=KEY_SCHEMA,
            value_schema=VALUE_SCHEMA,
            settings=settings,
            request_id=self.machines.new_id(),
        )
        for attempt in range(10):
            try:
                self.client.create_store(request)
            except (Unreachable, OutcomeUnknown):
                if attempt == 9:
                    raise
                self.world.sleep(500)
            else:
                return

    def _drive(self, what: str, act: Callable[[SimulatedClient], None]) -> None:
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

        self.world.spawn(driver, run)

    def _run(self, driver: SimulatedClient) -> Run:
        return Run(
            controller=driver,
            build=build_in(self.machines),
            observer=LogObserver(),
            request_id=self.machines.new_id(),
            driver="driver",
            clock=lambda: int(self.world.now_ms),
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
            for kind, parts in (("controller", self.machines.controllers), ("node", self.machines.nodes)):
                for name in [name for name, part in parts.items() if part.process.dead]:
                    self._come_back(kind, name)

    def _disk_point(self, what: str) -> None:
        if self.world.current is not None:
            self.machines.network.point(what)
            if self.world.random.random() < _DISK_PAUSE:
                self.world.sleep(self.world.random.random() * 100)

    def _processes(self) -> list[Process]:
        parts = [*self.machines.controllers.values(), *self.machines.nodes.values()]
        return [*(part.process for part in parts), *self.drivers, self.writer]

    def _one(self, kind: str, which: int) -> Process:
        found = [p for p in self._processes() if p.kind == kind and not p.dead]
        if kind == "driver":
            found = found[-1:]
        if not found:
            raise _NothingThere(f"no {kind} runs")
        return found[which % len(found)]

    def _store(self):  # type: ignore[no-untyped-def]
        store = next((s for s in self.machines.database.tables.stores.values() if s.deleted_at_ms is None), None)
        if store is None:
            raise _NothingThere("there is no store")
        return store

    def _version(self, which: int) -> int:
        numbers = [v.number for v in self._store().versions if v.statuses.get(FABRIC) in SERVABLE]
        if not numbers:
            raise _NothingThere("there is no version")
        return int(numbers[-1 - which % len(numbers)])

    def _has_version(self) -> bool:
        return bool(self._store().current.get(FABRIC, 0))

    def _until(self, holds: Callable[[], bool], most_ms: float) -> None:
        until = self.world.now_ms + most_ms
        while not holds() and self.world.now_ms < until:
            self.world.sleep(300)
        if not holds():
            self.checks.breach("the beginning works", "not within its time")

    def _read_all(self) -> None:
        """In the end a reader sees just what must be there."""
        store = next((s for s in self.machines.database.tables.stores.values() if s.deleted_at_ms is None), None)
        if store is None or not store.current.get(FABRIC, 0):
            return
        number = store.current[FABRIC]
        ends = {
            at: len(self.machines.topics.ever[feed.topic_uid].partitions[at.partition].rows)
            for feed in store.feeds
            for at in feed.feed_partitions()
        }
        expected = self.checks.oracle.served(store.uid, number, ends)
        reader = store_client(self.machines, self.operator, STORE)
        keys = sorted({key for path in self.checks.account.pushed.values() for key in path} | set(expected))
        decoded = [key[1:].decode() for key in keys]
        found = reader.get_many(decoded)
        for key, one in zip(keys, found, strict=True):
            if not same_text(one, expected.get(key)):
                self.checks.breach("readers see it", f"{key!r}: {one}, expected {expected.get(key)!r}")

    def _read_on(self) -> None:
        """A reader who asks for everything again and again; it must be answered, from one version, with what was."""
        store = store_client(self.machines, self.reader, STORE)
        keys = list(KEYS)
        while True:
            self.world.sleep(1_500)
            try:
                found = store.get_many(keys)
            except (AnewError, httpx.HTTPError) as error:
                self._count("reads failed")
                if self.calm_reads:
                    self.checks.breach("reads do not fail", str(error))
                continue
            self._count("reads")
            self.checks.check_read({encode_datum(_KEY, key): one for key, one in zip(keys, found, strict=True)})

    @property
    def calm_reads(self) -> bool:
        """Whether nothing happens in this history that may keep a reader from an answer."""
        hard = {"crash", "stop", "cut_off", "lose_node", "recreate", "lose_tail", "configure"}
        return (
            self.history.trouble == 0
            and self.history.controllers >= 1
            and hard.isdisjoint(step.what for step in self.history.steps)
        )

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _say(self, what: str) -> None:
        self.machines.network.say(what)


class _NothingThere(Exception):
    """A step that has nothing to act on."""


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the events of the parts, of which thousands of histories would make millions."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
