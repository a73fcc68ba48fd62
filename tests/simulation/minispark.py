"""What a build asks of Spark, by tasks of the simulated world: stages, a shuffle, retries, speculation and zombies.

The functions that run in the tasks, and all that decides what they do, are the product's own. A task's attempt is a
process of its own, which may die; another one is made then. Of two attempts that were both begun the first one counts,
and the other one goes on writing what nobody asked for, as an executor does that its driver gave up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from anew.core.blocks import BLOCKS
from anew.core.errors import AnewError, Failed
from anew.core.rebuild import Progress, Stage
from anew.core.rows import SORT_COLUMNS
from anew.core.stores.store import RebuildKind
from anew.rebuild.lease import Lease
from anew.rebuild.observer import Observer
from anew.rebuild.stores.build import Build, Building, BuildOutcome, _push, _repush
from anew.spark.failures import TaskFailed, reason_of
from anew.spark.stores import pushscan, shuffle
from tests.simulation.parts import Machines
from tests.simulation.world import ProcessDied, Task

_ATTEMPTS = 4
_SPECULATIVE = 0.05
_LONGEST_TASK_MS = 120_000.0

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a task knows of itself; see ``pyspark.TaskContext``."""

    index: int
    attempt: int

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """Which task."""
        return self.index

    def taskAttemptId(self) -> int:  # noqa: N802 - Spark's name
        """Which attempt, over all tasks."""
        return self.attempt


class MiniSession:
    """A session whose tasks are the world's."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def __init__(self, machines: Machines) -> None:
        """Use the world; nothing runs yet."""
        self._machines = machines
        self.contexts: dict[int, TaskContext] = {}
        self.cancelled = False
        self._attempts = machines.ids

    @property
    def sparkContext(self) -> MiniSession:  # noqa: N802 - Spark's name
        """Itself."""
        return self

    def cancel(self) -> None:
        """Start no more tasks."""
        self.cancelled = True

    def range(self, _start: int, end: int, _step: int = 1, _partitions: int = 1) -> MiniFrame:
        """So many partitions of a row each."""
        empty = pa.RecordBatch.from_pydict({"id": [0]})
        return MiniFrame(self, [lambda: iter([empty])] * end)

    def stage(self, partitions: list[Callable[[], Batches]]) -> list[list[pa.RecordBatch]]:
        """Run a task for each partition; what each gave.

        Raises:
            AnewError: What a task failed with, each time that it was tried.
        """
        return [self._task(index, run) for index, run in enumerate(partitions)]

    def _task(self, index: int, run: Callable[[], Batches]) -> list[pa.RecordBatch]:
        world = self._machines.world
        for number in range(_ATTEMPTS):
            if self.cancelled:
                raise Failed("build_failed", "the job was cancelled")
            first = self._attempt(index, run)
            attempts = [first]
            if world.random.random() < _SPECULATIVE:
                attempts.append(self._attempt(index, run))
            done = next((task for task in attempts if world.join(task, _LONGEST_TASK_MS) and task.error is None), None)
            if done is not None:
                result: list[pa.RecordBatch] = done.result
                return result
            error = first.error
            if number == _ATTEMPTS - 1 and error is not None and not isinstance(error, ProcessDied):
                raise error
        raise Failed("build_failed", "the executors died")

    def _attempt(self, index: int, run: Callable[[], Batches]) -> Task:
        world, attempt = self._machines.world, next(self._attempts)
        process = world.process(f"executor-{attempt}", "executor")

        def act() -> list[pa.RecordBatch]:
            world.sleep(world.random.random() * 400)
            CONTEXTS[id(world.current)] = TaskContext(index, attempt)
            return list(run())

        return world.spawn(process, act, background=False)


CONTEXTS: dict[int, TaskContext] = {}


class MiniFrame:
    """Partitions that are computed when they are wanted."""

    def __init__(self, session: MiniSession, partitions: list[Callable[[], Batches]]) -> None:
        """Describe; nothing runs."""
        self._session = session
        self._partitions = partitions

    def toDF(self, *_names: str) -> MiniFrame:  # noqa: N802 - Spark's name
        """The same."""
        return self

    def mapInArrow(self, function: Callable[[Batches], Batches], _schema: object) -> MiniFrame:  # noqa: N802
        """A function over each partition."""
        return MiniFrame(self._session, [partial(_applied, function, run) for run in self._partitions])

    def collect(self) -> list[dict[str, Any]]:
        """All rows."""
        return [row for batches in self._session.stage(self._partitions) for b in batches for row in b.to_pylist()]

    def shuffled(self, count: int) -> MiniFrame:
        """Blocks by their place, sorted."""
        blocks = [batch for batches in self._session.stage(self._partitions) for batch in batches]
        table = pa.Table.from_batches(blocks, BLOCKS)
        places = table.column("place").to_numpy()
        order: Any = [(name, "ascending") for name in SORT_COLUMNS]
        parts = [table.filter(pa.array(places == place)).sort_by(order).to_batches() for place in range(count)]
        return MiniFrame(self._session, [partial(iter, part) for part in parts])


def _applied(function: Callable[[Batches], Batches], run: Callable[[], Batches]) -> Batches:
    return function(run())


def build_in(machines: Machines) -> Build:
    """Builds without Spark."""

    def run(building: Building, lease: Lease, _observer: Observer) -> BuildOutcome:
        session: Any = MiniSession(machines)
        lease.enter(Stage.BUILD, Progress, session.cancel)
        make = _push if building.plan.kind is RebuildKind.FULL_PUSH else _repush
        try:
            return BuildOutcome(make(session, building), 1.0)
        except AnewError as error:
            # What a task raises comes out of Spark as a failure of the job.
            raise Failed(error.code, error.message, found=error.found) from error
        except TaskFailed as error:
            # Spark shuffles when rows are asked for, where the product takes its errors; here it was done before.
            raise reason_of(error) from error

    return run


def _sample_values(scanned: Any, count: int) -> list[bytes]:
    rows = [row for row in scanned.collect() if row["kind"] == 1 and row["value"] is not None]
    return [row["value"] for row in rows[:count]]


def _delivered(blocks: Any, count: int) -> MiniFrame:
    frame: MiniFrame = blocks.shuffled(count)
    return frame


def spark_replacements() -> dict[Any, Any]:
    """What of the product's calls to Spark is answered here."""
    return {
        pushscan.sample_values: _sample_values,
        shuffle.delivered: _delivered,
    }


def task_context(machines: Machines) -> Callable[[], Any]:
    """``TaskContext.get`` inside of the world's tasks."""
    return lambda: CONTEXTS.get(id(machines.world.current))
