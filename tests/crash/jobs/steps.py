"""The steps of a history, see `tests.crash.jobs.drawing`; each method of `Steps` that is public is one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from anew.core.errors import InvalidRequest, Refused
from tests.crash.halts import RECORD
from tests.crash.jobs.drawing import Step
from tests.crash.jobs.running import INPUT, JobRun, Wrong, await_that, ended_at
from tests.processes import drives, gone

_PASSES = frozenset({"not_caught_up", "not_served", "not_sealed"})
"""Refusals of a cut-over that pass with time."""


@dataclass
class Steps(JobRun):
    """A job to which things happen."""

    def take(self, step: Step) -> None:
        """Let a step happen."""
        self.tell(str(step))
        happen: Callable[[Step], None] = getattr(self, step.what)
        happen(step)
        self.counts[f"{step.what} {step.point}".strip()] += 1

    # Public methods from here on are steps.

    def write(self, step: Step) -> None:
        """Write events."""
        self.append(step.events)
        if step.settle:
            self.settle()

    def grow(self, step: Step) -> None:
        """The input gets one more partition, and events of which some lie there."""
        self.add_partition()
        self.append(step.events)
        if step.settle:
            self.settle()

    def kill(self, step: Step) -> None:
        """The driver of the live generation dies, or stands still until another one has done its work."""
        live = self.generation()
        if step.point == "any":
            pid = self._driver(live.rebuild)
            self.append(step.events)
            os.kill(pid, signal.SIGKILL)
            self._await_gone(pid)
        else:
            with self.place.halting:
                self._halted(live.rebuild, step)
        self.settle()

    def _halted(self, rebuild: str, step: Step) -> None:
        halt = self.place.halts.arm(RECORD, "after" if step.point == "record" else "before", rebuild)
        self.append(step.events)
        pid = halt.wait()
        if step.point != "still":
            halt.kill()
            self._await_gone(pid)
            return
        # Another driver does the batch over again; then this one wakes up, and must not count.
        self.settle()
        halt.go_on()
        self._await_gone(pid)

    def _driver(self, rebuild: str) -> int:
        """The process that drives the live generation, once there is one."""

        def pid() -> int | None:
            found = self.controller.rebuild(rebuild).driver.pid
            return found if found is not None and drives(found) else None

        await_that(lambda: pid() is not None, "a driver")
        found = pid()
        if found is None:
            raise Wrong("a driver ended by itself")
        return found

    def _await_gone(self, pid: int) -> None:
        await_that(lambda: gone(pid), f"the driver {pid} to end")

    def rest(self, step: Step) -> None:
        """The live generation is stopped, and goes on with what was written meanwhile."""
        number = self.generation().number
        self._stop(number)
        self.append(step.events)
        self.job.run(number)
        self.settle()

    def _stop(self, number: int) -> None:
        self.job.stop(number)
        await_that(lambda: not self.generation(number).driver, f"the driver of {number} to stop")

    def deploy(self, step: Step) -> None:
        """Other code goes on where the live generation ends."""
        live = self.generation().number
        code, number = self.code(step.function)
        self.append(step.events)
        self._stop(live)
        end = tuple(offset for _, offset in sorted(self.generation(live).positions[INPUT].items()))
        floor = self.account.eras[-1].floors[-1][1]
        # Less had arrived when there were fewer partitions.
        least = (*floor, *(0 for _ in self.account.ends[len(floor) :]))
        if not all(low <= at <= high for low, at, high in zip(least, end, self.account.ends, strict=True)):
            raise Wrong(f"generation {live} ended at {end}, between {floor} and {self.account.ends}")
        asked = time.monotonic()
        view = self.job.deploy(self.start_at(None), code)
        self.begun(number, step.function, end, ended_at(self.views[live], end))
        if view.live != number:
            raise Wrong(f"{view.live} is live, not {number}, which was deployed")
        self.served(number, floor, asked)
        self.settle()

    def rewind(self, step: Step) -> None:
        """A generation begins beside the live one."""
        code, number = self.code(step.function)
        start, at = self.start_of(step.start)
        found = self.job.rewind(self.job.plan_rewind(start, code))
        if found != number:
            raise Wrong(f"generation {found} was begun, not {number}")
        self.begun(number, step.function, at)
        self.job.run(number)

    def refuse(self, step: Step) -> None:
        """A rewind that does not read everything has no base: it is refused, and nothing is begun."""
        code, _ = self.code(step.function)
        start, _ = self.start_of("newest")
        before = [each.number for each in self.view().generations]
        try:
            self.job.rewind(self.job.plan_rewind(start, code))
        except (Refused, InvalidRequest) as error:
            if error.code != "base_would_be_missing":
                raise
        else:
            raise Wrong("a rewind from the newest record was begun into a store")
        if [each.number for each in self.view().generations] != before:
            raise Wrong("what was refused was begun")

    def cut_over(self, step: Step) -> None:
        """Readers go over to the generation beside, which has read at least what was there before the step."""
        self._cut(max(self.views), step)

    def cut_back(self, step: Step) -> None:
        """Readers go back to the generation that served before."""
        live = self.generation().number
        self._cut(max(number for number in self._going() if number < live), step)

    def _cut(self, number: int, step: Step) -> None:
        self.await_all(number)
        floor = self.account.ends
        # What is written now may not be there yet once readers are over, wherever it came to before.
        self.append(step.events)
        asked = [0.0]

        def cut() -> bool:
            asked[0] = time.monotonic()
            try:
                self.job.cut_over(number)
            except Refused as error:
                if error.code not in _PASSES:
                    raise
                return False
            return True

        await_that(cut, f"readers to go over to {number}")
        self.served(number, floor, asked[0])
        if self.generation().number != number:
            raise Wrong(f"{self.generation().number} is live after readers went over to {number}")
        self.settle()

    def reclaim(self, _step: Step) -> None:
        """The generation beside the live one goes, whatever it is for."""
        live = self.generation().number
        for number in self._going():
            if number == live:
                continue
            self.forget(number)
            self.job.drop(number, force=True)
            await_that(lambda of=number: not self.generation(of).driver, f"{number} to end")  # type: ignore[misc]  # bound at once
        self.settle()

    def _going(self) -> list[int]:
        return [each.number for each in self.view().generations if not each.over]

    def repush(self, _step: Step) -> None:
        """The store is repushed."""
        self.place.repush(self.output)
        self.settle()
