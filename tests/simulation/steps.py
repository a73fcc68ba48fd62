"""What can happen in a history, by name: writes, rebuilds, decisions and breaks."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anew.api.models import Collect
from anew.api.stores.requests import HoldVersion, RollBack, Swap, UpdateStore
from anew.codec.avro import encode_datum
from anew.core.merge import Cell
from anew.core.rebuild import RebuildStatus
from anew.core.stamp import Stamp
from anew.core.stores.plan import Plan
from anew.core.stores.planning import PushOptions, RepushRequest
from anew.core.stores.properties import RepushProperties, parse_properties
from anew.log.interface import APPEND_RECORDS, TopicPartition
from anew.rebuild.driving import resume_rebuild, run_plan
from anew.rebuild.inputs import PushRequest
from anew.rebuild.stores.making import making
from anew.rebuild.stores.planner import make_checked_repush_plan, make_push_plan
from anew.segments.manifest import parse_manifest
from anew.storage.rocks import RocksError
from anew.testing.builders import FABRIC
from tests.simulation.damage import one_bit_off, one_bit_over, silent_about_damage
from tests.simulation.network import Foul, Halt
from tests.simulation.parts import SimulatedClient, store_client
from tests.simulation.scene import KEY, STORE, VALUE, NothingThere, Scene
from tests.simulation.telling import untold, yet_silent

_SICKNESSES: dict[str, Callable[[], Exception]] = {
    "full": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "failing": lambda: OSError(errno.EIO, "Input/output error"),
    "damaged": lambda: RocksError("Corruption: block checksum mismatch"),
    "no memory": lambda: MemoryError("no memory is left"),
    "unforeseen": lambda: ZeroDivisionError("nobody foresaw this"),
}
_STEP_BACK_MS = 500
_CONVERTED_AFTER = 8
"""So many seconds a conversion may take; usually it is half as long."""
_ASLEEP_MS = 4_450
_TAKEN_AFTER_MS = 4_350
"""A driver may be taken over when it was silent for half a lease, and is still asleep then."""
_DAMAGED_MS = 3_000
_HALTED_MS, _HALTED_BESIDE_MS = 4_900, 900


class Steps(Scene):
    """Each public method is a step (`tests.simulation.history.Step`)."""

    # -- steps: data ---------------------------------------------------------------------------------------------------

    def write(self, keys: tuple[str, ...], ago_ms: int | None) -> None:
        """Nearline writes, with a given time or the log's."""
        self._append([(key, f"{key}-w{next(self._numbers)}") for key in keys], ago_ms)

    def write_back(self, keys: tuple[str, ...]) -> None:
        """Writes, and again after the clock that times them stepped back (rule R6)."""
        self.write(keys, None)
        self.writer.skew_ms -= _STEP_BACK_MS
        try:
            self.write(keys, None)
        finally:
            self.writer.skew_ms += _STEP_BACK_MS

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
            raise NothingThere("there is no feed")
        feed = store.feeds[-1]
        row: dict[str, Any] = {"written_ms": [None], "origin": [feed.origin_bytes], "key": [encode_datum(KEY, "k0")]}
        value = [encode_datum(VALUE, {"text": "foreign"})]
        records = pa.RecordBatch.from_pydict(
            {**row, "schema_id": [min(store.schemas)], "value": value}, schema=APPEND_RECORDS
        )
        for partition in range(feed.partitions):
            at = TopicPartition(feed.topic, feed.topic_uid, partition)
            log = self.machines.log(lambda: int(self.world.now_ms))
            self._as(self.writer, partial(log.append, at, records))

    def _check_log_is_whole(self) -> None:
        """Nothing is appended where records were lost, until everybody has noticed: offsets would come again unseen."""
        if self.checks.lost_tail:
            raise NothingThere("the log lost records")

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
            raise NothingThere("no feed, or a version is made")
        feed = store.feeds[-1]
        topic = self.machines.topics.present.get(feed.topic)
        if topic is None:
            raise NothingThere("the topic is gone")
        for at in feed.feed_partitions():
            partition = topic.partitions[at.partition]
            needed = [v.fabrics[FABRIC].start.get(at, 0) for v in store.versions] + [partition.begin]
            needed += [v.stop.get(at, 0) for v in store.versions if v.stop is not None]
            keep = max(len(partition.rows) - count, *needed)
            del partition.rows[keep:]
            self.checks.lost_tail = True
            self.checks.account.lose(feed.topic_uid, at.partition, keep)

    # -- steps: rebuilds -----------------------------------------------------------------------------------------------

    def push(
        self,
        keys: tuple[str, ...],
        times_ago_ms: int | None,
        defer: bool,  # noqa: FBT001 - drawn
        *,
        supersede_job: bool = False,
    ) -> None:
        """A full push from a file."""
        number = next(self._numbers)
        path = self.machines.root / f"input-{number}.parquet"
        texts = {key: f"{key}-p{number}" for key in dict.fromkeys(keys)}
        at_ms = 0 if times_ago_ms is None else int(self.world.now_ms) - times_ago_ms
        columns: dict[str, list[Any]] = {"id": list(texts), "text": list(texts.values())}
        if at_ms:
            columns["at"] = [at_ms] * len(texts)
        pq.write_table(pa.table(columns), path)
        self.checks.account.pushed[str(path)] = {
            encode_datum(KEY, key): Cell(Stamp(at_ms), encode_datum(VALUE, {"text": text}), 0)
            for key, text in texts.items()
        }
        request = PushRequest(
            (str(path),), ("id",), written_at="at" if at_ms else None, as_of_ms=int(self.world.now_ms)
        )

        def act(driver: SimulatedClient) -> None:
            options = PushOptions(allow_undying=True, defer_swap=defer, supersede_job=supersede_job)
            plan = make_push_plan(driver, STORE, request, RepushProperties(), options)
            self._run_plan(plan, driver)

        self._drive("push", act)

    def repush(self, option: str) -> None:
        """A repush."""
        asked = {
            "combiner": {"kafka.input.combiner.enabled": "true"},
            "few": {"kafka.input.max.records.per.mapper": "2"},
            "ttl": {"repush.ttl.enable": "true", "repush.ttl.seconds": "3"},
        }.get(option, {})
        properties = parse_properties({"source.kafka": "true", **asked})

        def act(driver: SimulatedClient) -> None:
            plan = make_checked_repush_plan(driver, STORE, RepushRequest(properties, defer_swap=option == "defer"))
            self._run_plan(plan, driver)

        self._drive("repush", act)

    def configure(self, change: tuple[str, str | int]) -> None:
        """A setting."""
        name, value = change
        shown = str(value).lower() if isinstance(value, bool) else value
        self.client.update_store(STORE, UpdateStore(settings={name: shown}))

    def reconfigure(self, change: tuple[str, str | int]) -> None:
        """A setting, and the repush that makes it so."""
        self.configure(change)
        self.repush("")

    def convert(self, keys: tuple[str, ...]) -> None:
        """Nearline writes begin, or end, with the next version; who began them wants to go back at once (rule R9)."""
        before = self._store()
        self.reconfigure(("hybrid", not before.config.hybrid))
        for _ in range(_CONVERTED_AFTER):
            if self._store().current != before.current:
                break
            self.world.sleep(1_000)
        if before.config.hybrid:
            return
        self.write(keys, None)
        self.roll_back()

    def resume(self) -> None:
        """Somebody takes a rebuild over."""
        running = [r for r in self.machines.database.tables.rebuilds.values() if r.status is RebuildStatus.RUNNING]
        if not running:
            raise NothingThere("no rebuild runs")
        self._drive("resume", lambda driver: self._resume(running[0].id, driver))

    def _run_plan(self, plan: Plan, driver: SimulatedClient) -> None:
        run = self._run(driver)
        run_plan(plan, run, making(run))

    def _resume(self, rebuild_id: str, driver: SimulatedClient) -> None:
        run = self._run(driver)
        resume_rebuild(rebuild_id, run, making(run))

    def take_over(self, begun_ms: int, appends: tuple[int, int]) -> None:
        """A driver falls asleep in a repush, another one takes it over, and the first wakes up beside it.

        So does a task of each that appends: both may be about the same partition of a base in the log.
        """
        halts = self.machines.network.halts
        halts["executor"] = Halt(appends[0], _HALTED_MS)
        self.repush("")
        self.world.sleep(begun_ms)
        self.drivers[-1].stopped_until_ms = self.world.now_ms + _ASLEEP_MS
        self.world.sleep(_TAKEN_AFTER_MS)
        halts["executor"] = Halt(appends[1], _HALTED_BESIDE_MS)
        self.resume()

    def repush_unheard(self, which: int, keys: tuple[str, ...]) -> None:
        """A repush, and writes on top of it that a node cannot read while it loads."""
        self._one("node", which).deaf_until_ms = self.world.now_ms + 12_000
        self.repush("")
        self.world.sleep(1_500)
        self.write(keys, None)

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
        self.client.collect(Collect())

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

    def doom(self, kind: str, at: str) -> None:
        """The next process of a kind that comes there dies there; it comes back, if such do, after a while."""
        self.machines.network.doomed[kind] = at
        self.world.spawn(self.operator, self._mend_dead)

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

    def damage(self, kind: str, which: int) -> None:
        """A disk of the deep store gives other bytes than were written, for as long as a repush takes."""
        store = self._store()
        version = store.version(store.current[FABRIC])
        if version is None or version.manifest is None:
            raise NothingThere("nothing serves")
        real = self.machines.real_deep_store
        files = parse_manifest(real.get(version.manifest.path), version.manifest).files
        if not files:
            raise NothingThere("the base is in the log")
        path, other = (Path(real.absolute(files[(which + n) % len(files)].path)) for n in range(2))
        before, beside = path.read_bytes(), other.read_bytes()
        if kind == "swapped" and path == other:
            raise NothingThere("there is one file")
        flipped = one_bit_over(before, self.world.random.random())
        path.write_bytes({"cut": before[:-30], "swapped": beside}.get(kind, flipped))
        if kind == "swapped":
            other.write_bytes(before)
        self._say(f"{path.name} is damaged: {kind}")
        try:
            for seen in silent_about_damage(store, version, self.machines):
                self.checks.breach("damage is told", seen)
            self.repush("")
            self.world.sleep(_DAMAGED_MS)
        finally:
            # A repush that nodes have loaded since may have reclaimed them.
            for place, content in ((path, before), (other, beside)):
                if place.exists():
                    place.write_bytes(content)

    def damage_log(self, which: int, percent: int, ms: int) -> None:
        """A disk of the log gives other bytes in a record's place, until the file is restored."""
        store = self._store()
        readable = [
            (at, partition)
            for feed in store.feeds[-1:]
            if (topic := self.machines.topics.present.get(feed.topic)) is not None
            for at in feed.feed_partitions()
            if (partition := topic.partitions[at.partition]).begin < len(partition.rows)
        ]
        if not readable:
            raise NothingThere("the log holds nothing")
        at, partition = readable[which % len(readable)]
        offset = partition.begin + percent * (len(partition.rows) - partition.begin) // 100
        partition.damaged[offset] = one_bit_off(partition.rows[offset])
        self._say(f"the record {at.partition}@{offset} of the log is damaged")

        def mend() -> None:
            seen = yet_silent(self.machines, at, offset, ms)
            partition.damaged.pop(offset, None)
            for name in seen:
                self.checks.breach("what is broken is told", f"{name} waits for a damaged record and says nothing")

        self.world.spawn(self.operator, mend)

    def foul(self, kind: str, sickness: str, what: str | None, which: int, ms: int) -> None:
        """Calls of a process raise for a while what somebody listed or nobody did; it is told, and all else goes on."""
        process = self._one(kind, which)
        foul = self.machines.network.foul[process.name] = Foul(_SICKNESSES[sickness], what)
        self._say(f"calls of {process.name} to {what or 'anything'} are foul: {sickness}")

        def mend() -> None:
            self.world.sleep(ms)
            if self.machines.network.foul.get(process.name) is foul:
                del self.machines.network.foul[process.name]
                seen = untold(self.machines, process, foul)
                if seen is not None:
                    self.checks.breach("what is broken is told", seen)

        self.world.spawn(self.operator, mend)

    def sick_disk(self, kind: str, which: int, ms: int) -> None:
        """Every touch of a node's replicas fails for a while, in a way that somebody listed or nobody did."""
        part = self.machines.nodes[self._one("node", which).name]
        sick, place = self.machines.rocks.sick, str(part.directory)
        sick[place] = _SICKNESSES[kind]()
        self._say(f"the disk of {part.name} is sick: {kind}")

        def mend() -> None:
            self.world.sleep(ms)
            sick.pop(place, None)

        self.world.spawn(self.operator, mend)

    def lose_node(self, which: int) -> None:
        """A node and its disk are gone for good."""
        running = [part for part in self.machines.nodes.values() if not part.process.dead]
        if len(running) < 2:
            raise NothingThere("the last node stays")
        part = running[which % len(running)]
        self.world.kill(part.process)
        part.wipe()
        del self.machines.nodes[part.name]

    def add_node(self) -> None:
        """A fresh node joins."""
        self._start_node(f"node-{next(self._numbers) + 100}")
