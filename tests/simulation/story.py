"""The story that a history's steps tell, then calm, then the question whether all is well."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from anew.api.models import Collect
from anew.codec.avro import encode_datum
from anew.core.errors import AnewError
from anew.testing.builders import FABRIC
from tests.simulation.comparing import same_text
from tests.simulation.history import HARD, KEYS, Step
from tests.simulation.parts import store_client
from tests.simulation.scene import KEY, STORE, NothingThere
from tests.simulation.steps import Steps
from tests.simulation.world import TooLong

_LONGEST_MS = 600_000.0
_CALM_MS = 240_000.0
_STEP_MS = 2_500.0
_CALM_PACE = 2.0
"""Most of a history is waiting until retention and graces are over, without use for rounds; nodes count as alive."""


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


class Story(Steps):
    """A history from its beginning to its end."""

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
        self._open()
        self._faults(self.history.trouble / 1000)
        self.world.spawn(self.reader, self._read_on)
        for step in self.history.steps:
            self._take(step)
            if self.checks.breaches:
                return
        self._calm_down()

    def _open(self) -> None:
        """Make what is there before the first step, while nothing goes wrong."""
        self._create()
        self.push(("k0", "k1", "k2"), None, False)
        self._until(self._has_version, 60_000)

    def _take(self, step: Step) -> None:
        self._say(f"— {step.what}{step.arguments}")
        act: Callable[..., None] = getattr(self, step.what)
        try:
            act(*step.arguments)
        except (AnewError, NothingThere) as error:
            self._count(f"{step.what} refused")
            self._say(f"refused: {error}")
        else:
            self._count(step.what)
        self.world.sleep(50 + step.wait_ms)
        self.checks.look()

    def _calm_down(self) -> None:
        """No more trouble: everything must arrive where it should be."""
        self._say("— calm")
        self.is_calm = True
        self.machines.pace = _CALM_PACE
        self._faults(0.0)
        self.machines.rocks.sick.clear()
        self.machines.network.doomed.clear()
        self.machines.network.halts.clear()
        self.machines.network.foul.clear()
        for topic in self.machines.topics.ever.values():
            for partition in topic.partitions:
                partition.damaged.clear()
        for process in self._processes():
            self.world.wake(process)
            process.cut_off_until_ms = process.deaf_until_ms = 0.0
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
            why = self._at_work() or self.checks.settled()
            arrived = arrived + 1 if why is None else 0
            if self.world.now_ms > until:
                self.checks.breach("everything arrives", str(why))
                return False
        return True

    def _at_work(self) -> str | None:
        """Who drives a rebuild still, perhaps one that has ended: what it writes then nobody has looked for yet."""
        working = [task.process.name for task in self.driving if not (task.done or task.process.dead)]
        return f"{working} at work" if working else None

    def _collected(self) -> bool:
        self.client.collect(Collect())
        return True

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
            self.world.sleep(5_000 if self.is_calm else 1_500)
            try:
                found = store.get_many(keys)
            except (AnewError, httpx.HTTPError) as error:
                self._count("reads failed")
                if self.calm_reads:
                    self.checks.breach("reads do not fail", str(error))
                continue
            self._count("reads")
            self.checks.check_read({encode_datum(KEY, key): one for key, one in zip(keys, found, strict=True)})

    @property
    def calm_reads(self) -> bool:
        """Whether nothing happens in this history that may keep a reader from an answer."""
        steps = self.history.steps
        return self.history.trouble == 0 and HARD.isdisjoint(step.what for step in steps)
