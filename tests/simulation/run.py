"""Running a history in a world of its own."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyspark
import structlog

from anew.testing.memory.rocks import rocks_in_memory
from tests.simulation.disks import rebinding
from tests.simulation.history import History
from tests.simulation.minispark import spark_replacements, task_context
from tests.simulation.network import Network
from tests.simulation.parts import Machines
from tests.simulation.story import Outcome, Story
from tests.simulation.world import World


def _tell(history: History, machines: Machines) -> Outcome:
    return Story(history, machines).tell()


def run(
    history: History,
    root: Path | None = None,
    tell: Callable[[History, Machines], Outcome] = _tell,
    replacements: Callable[[Machines], dict[Any, Any]] = lambda _: {},
) -> Outcome:
    """Run a history to its end; the same one gives the same outcome.

    Args:
        history: The history.
        root: Where its files are; None: in memory, and gone afterwards.
        tell: Tells its story.
        replacements: What of the product is answered otherwise, beside what is in every history.
    """
    with ExitStack() as stack:
        parent = root
        if parent is None:
            shared = Path("/dev/shm")
            parent = Path(tempfile.mkdtemp(prefix="anew-sim-", dir=shared if shared.is_dir() else None))
            stack.callback(shutil.rmtree, parent, ignore_errors=True)
        world = World(history.seed)
        machines = Machines(world, Network(world), parent, monotone=history.monotone)
        stack.enter_context(rebinding({**machines.replacements(), **spark_replacements(), **replacements(machines)}))
        stack.enter_context(rocks_in_memory(machines.rocks))
        stack.enter_context(patch.object(pyspark.TaskContext, "get", task_context(machines)))
        stack.enter_context(_the_dead_keep_still(world))
        stack.enter_context(quietly())
        stack.enter_context(uncollected())
        return tell(history, machines)


@contextmanager
def _the_dead_keep_still(world: World) -> Iterator[None]:
    """A process that was killed removes and moves no file: what tidies up after errors runs here alone when it dies."""

    def of_the_living(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*arguments: Any, **options: Any) -> Any:
            world.check_alive()
            return act(*arguments, **options)

        return acted

    with ExitStack() as stack:
        for name in ("unlink", "rmdir", "rename", "replace", "mkdir"):
            stack.enter_context(patch.object(os, name, of_the_living(getattr(os, name))))
        stack.enter_context(patch.object(shutil, "rmtree", of_the_living(shutil.rmtree)))
        yield


@contextmanager
def uncollected() -> Iterator[None]:
    """Without looking for cycles, which takes a seventh of a history; what it leaves is found after it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def quietly() -> Iterator[None]:
    """Without the events of the parts, of which thousands of histories would make millions."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
