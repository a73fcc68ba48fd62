"""What every task of ours does first in Spark's Python worker."""

from __future__ import annotations

import functools
import gc

from pyspark import TaskContext


def begin_task() -> TaskContext:
    """The context of the task that calls this, in a worker made ready for many short tasks."""
    context = TaskContext.get()
    if context is None:
        raise AssertionError("runs inside a Spark task")
    _settle()
    return context


@functools.cache
def _settle() -> None:
    # Spark's daemon collects garbage after each task. What is imported here makes that 30 ms, which is as long as a
    # small task takes; none of it ever becomes garbage.
    gc.freeze()
