"""Spark's batch loop for a job, by tasks of the simulated world: a checkpoint, batches in order, tasks and attempts.

What reads, decodes, encodes and appends is the product's own (`anew.spark.jobs`); a frame here is what of Spark's these
parts ask for. A process may die at each numbered point. A task's attempt is a process of its own: one that dies, fails
or is not heard of for a while is followed by another, and what is not heard of may go on appending.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.core.errors import Failed
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import Span
from anew.spark.jobs.source import INPUT, Reading, _Reader, _shared_out
from tests.simulation.jobs.functions import Event, outputs
from tests.simulation.minispark import CONTEXTS, TaskContext
from tests.simulation.parts import Machines
from tests.simulation.world import Process, ProcessDied, Task

POINTS = ("1: plan", "1: planned", "3: append", "3: appended", "5: commit", "5: committed")
"""Where a driver may die beside its calls to the controller and its tasks' calls to the log."""
_ATTEMPTS = 4
_LOST_MS = 7_000.0
"""An executor that is not heard of for so long is given up."""
_IDLE_MS = 700.0
_STOP_MS = 10_000.0
_VALUE = pa.struct([pa.field("text", pa.string())])

Batches = Iterator[pa.RecordBatch]
Start = dict[str, dict[str, Any]]
"""Input → what Spark keeps of it: partition → offset, and the input's name."""


class QueryFailed(Exception):
    """What a query ended with, as text, as it comes out of Spark."""


class Interrupted(Exception):
    """The query was stopped in the middle of a batch."""


@dataclass(slots=True)
class Sessions:
    """What all drivers of a history share.

    Attributes:
        executors: The processes of task attempts that are under way.
        stalls: Numbered point → for how long the next driver that comes there stands still, with all its threads.
    """

    executors: list[Process] = field(default_factory=list)
    stalls: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class MiniFrame:
    """A generation's frame: what its function makes of its inputs.

    Attributes:
        readers: Input → the product's own reader.
        function, tag: What the function is, see `tests.simulation.jobs.functions`.
        sessions: What all drivers share.
        attempts: How many task attempts there were in this session.
    """

    machines: Machines
    readers: Mapping[str, Any]
    function: str
    tag: str
    sessions: Sessions
    attempts: int = 0
    loop: MiniLoop | None = None

    def batch(self, start: Start, end: Start, loop: MiniLoop) -> MiniBatch:
        """The rows of a batch."""
        parts = [
            partial(self._rows, reader, part)
            for name, reader in sorted(self.readers.items())
            for part in reader.partitions(start[name], end[name])
        ]
        return MiniBatch(self, loop, parts)

    def part(self, spans: Sequence[Span]) -> MiniBatch:
        """The rows of parts of the inputs, while the loop runs."""
        assert self.loop is not None
        of = {name: [span for span in spans if span.input == name] for name in self.readers}
        parts = [
            partial(self._rows, reader, part)
            for name, reader in sorted(self.readers.items())
            for part in _shared_out(of[name])
        ]
        return MiniBatch(self, self.loop, parts)

    def _rows(self, reader: Any, part: Any) -> Batches:
        for rows in reader.read(part):
            yield applied(self.function, self.tag, rows)


def frame_of(
    machines: Machines, generation: Generation, readings: Mapping[str, Reading], sessions: Sessions
) -> MiniFrame:
    """The frame of a generation."""
    readers = {name: _Reader(reading, None) for name, reading in readings.items()}
    return MiniFrame(machines, readers, generation.code.function, generation.code.params["tag"], sessions)


def applied(function: str, tag: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """What a function gives for rows of an input's frame."""
    keys: list[Any] = rows.column("key").to_pylist()
    values: list[Any] = rows.column("value").to_pylist()
    times: list[Any] = rows.column("timestamp").cast(pa.int64()).to_pylist()
    made = [
        event
        for key, value, us in zip(keys, values, times, strict=True)
        for event in outputs(function, tag, Event(key, None if value is None else value["text"], us // 1000))
    ]
    columns: list[Any] = [
        pa.array([event.key for event in made], pa.string()),
        pa.array([None if event.text is None else {"text": event.text} for event in made], _VALUE),
        pa.array([event.time_ms * 1000 for event in made], pa.timestamp("us", tz="UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "written_at"])


@dataclass(slots=True)
class MiniBatch:
    """The frame of one batch: a task for each part of the inputs; evaluated by `mapInArrow` and `collect`."""

    frame: MiniFrame
    loop: MiniLoop
    parts: Sequence[Callable[[], Batches]]

    def mapInArrow(self, function: Callable[[Batches], Batches], _schema: object) -> MiniBatch:  # noqa: N802
        """A function over each part."""
        return MiniBatch(self.frame, self.loop, [partial(_mapped, function, part) for part in self.parts])

    def collect(self) -> list[dict[str, Any]]:
        """All rows: each part by a task of its own, all of them at once."""
        self.loop.point("3: append")
        running = [self._attempt(index) for index in range(len(self.parts))]
        found = [self._result(index, first) for index, first in enumerate(running)]
        self.loop.point("3: appended")
        return [row for batches in found for rows in batches for row in rows.to_pylist()]

    def _result(self, index: int, task: Task) -> list[pa.RecordBatch]:
        world = self.frame.machines.world
        for number in range(_ATTEMPTS):
            if world.join(task, _LOST_MS) and task.error is None:
                result: list[pa.RecordBatch] = task.result
                return result
            self.loop.check()
            error = task.error
            if number < _ATTEMPTS - 1:
                task = self._attempt(index)
            elif error is not None and not isinstance(error, ProcessDied):
                raise error
        raise Failed("build_failed", "the executors died")

    def _attempt(self, index: int) -> Task:
        frame, world = self.frame, self.frame.machines.world
        attempt, frame.attempts = frame.attempts, frame.attempts + 1
        process = world.process(f"{world.acting.name}-task-{attempt}", "executor")
        frame.sessions.executors.append(process)

        def act() -> list[pa.RecordBatch]:
            world.sleep(world.random.random() * 300)
            CONTEXTS[id(world.current)] = TaskContext(index, attempt)
            try:
                return list(self.parts[index]())
            finally:
                frame.sessions.executors.remove(process)

        return world.spawn(process, act, background=False)


def _mapped(function: Callable[[Batches], Batches], part: Callable[[], Batches]) -> Batches:
    return function(part())


@dataclass(slots=True)
class MiniLoop:
    """See `anew.rebuild.jobs.streaming.Loop`; the interval is the world's."""

    frame: MiniFrame
    function: Callable[[Any, int], None]
    checkpoint: Path
    _stopped: bool = False
    _task: Task = field(init=False)

    def __post_init__(self) -> None:
        """Begin."""
        world = self.frame.machines.world
        self.frame.loop = self
        self._task = world.spawn(world.acting, self._run, background=False)

    @property
    def is_active(self) -> bool:
        """See `Loop.is_active`."""
        return not self._task.done

    def wait(self, seconds: float | None) -> bool:
        """See `Loop.wait`; it looks less often."""
        longest_ms = _IDLE_MS if seconds is None else max(_IDLE_MS, seconds * 1000)
        if not self.frame.machines.world.join(self._task, longest_ms):
            return False
        error = self._task.error
        if error is not None and not isinstance(error, Interrupted):
            raise QueryFailed("".join(traceback.format_exception(error)))
        return True

    def stop(self) -> None:
        """See `Loop.stop`."""
        self._stopped = True
        self.frame.machines.world.join(self._task, _STOP_MS)

    def point(self, what: str) -> None:
        """A numbered point."""
        machines, stalls = self.frame.machines, self.frame.sessions.stalls
        if what in stalls:
            machines.world.acting.stopped_until_ms = machines.world.now_ms + stalls.pop(what)
            machines.network.say(f"{machines.world.acting.name} stands still at: {what}")
            machines.world.sleep(0)
        machines.network.point(what)
        self.check()

    def check(self) -> None:
        """Raise where the query was stopped."""
        if self._stopped:
            raise Interrupted

    def _run(self) -> None:
        world = self.frame.machines.world
        number, start, planned = self._resumed()
        while True:
            self.check()
            end = planned
            if end is None:
                end = {name: self._latest(reader, start[name]) for name, reader in self.frame.readers.items()}
                if end == start:
                    world.sleep(_IDLE_MS * (0.5 + world.random.random()))
                    continue
                self.point("1: plan")
                self._write("offsets", number, _planned(end, int(world.now_ms)))
                self.point("1: planned")
            self.function(self.frame.batch(start, end, self), number)
            self.point("5: commit")
            if not (self.checkpoint / "commits" / str(number)).exists():
                self._write("commits", number, "v1\n{}")
            self.point("5: committed")
            number, start, planned = number + 1, end, None

    def _latest(self, reader: Any, start: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = reader.latestOffset(start, reader.getDefaultReadLimit())
        return found

    def _resumed(self) -> tuple[int, Start, Start | None]:
        """The next batch, where it begins, and where it ends if it was planned and not committed."""
        planned = sorted(int(path.name) for path in self.checkpoint.glob("offsets/*"))
        begun = {name: reader.initialOffset() for name, reader in self.frame.readers.items()}
        if not planned:
            return 0, begun, None
        last = planned[-1]
        end = self._read(last)
        if (self.checkpoint / "commits" / str(last)).exists():
            return last + 1, end, None
        return last, self._read(last - 1) if last else begun, end

    def _read(self, number: int) -> Start:
        lines = (self.checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2:]
        stated: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return {str(each[INPUT]): each for each in stated}

    def _write(self, what: str, number: int, text: str) -> None:
        """Write a file whole, once: of two queries over one checkpoint the second one fails."""
        path = self.checkpoint / what / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def _planned(end: Start, now_ms: int) -> str:
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": {}}
    return "\n".join(["v1", json.dumps(metadata), *(json.dumps(end[name]) for name in sorted(end))])


def start_mini(frame: Any, batch: Callable[[Any, int], None], checkpoint: Path, _interval_ms: int | None) -> MiniLoop:
    """`anew.rebuild.jobs.streaming.StartLoop` without Spark."""
    return MiniLoop(frame, batch, checkpoint)
