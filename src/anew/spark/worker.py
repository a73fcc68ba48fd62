"""What every task of ours does first in Spark's Python worker."""

from __future__ import annotations

import functools
import gc
import os
import socket
import tempfile
from typing import IO

from pyspark import SparkContext, TaskContext

from anew.spark.failures import PACKAGE_HINT, UnfitExecutor
from anew.spark.package import build_of_package, place_of_package


def is_local(master: str | None) -> bool:
    """Whether a master's tasks run on the driver's machine, out of the driver's own files."""
    return master is not None and (master == "local" or master.startswith("local["))


def required_build() -> str | None:
    """The build that tasks must have: the driver's, whose code crosses by name. None where nothing can differ."""
    context = SparkContext._active_spark_context
    return None if context is None or is_local(context.master) else build_of_package()


def begin_task(build: str | None) -> TaskContext:
    """The context of the task that calls this, in a worker made ready for many short tasks.

    Args:
        build: The driver's `required_build`.

    Raises:
        UnfitExecutor: ``package_differs_on_executors``.
    """
    context = TaskContext.get()
    if context is None:
        raise AssertionError("runs inside a Spark task")
    _settle()
    if build is not None and build_of_package() != build:
        raise UnfitExecutor(
            "package_differs_on_executors",
            "an executor has another build of anew than the driver",
            f"build {build_of_package()} in {place_of_package()} on {socket.gethostname()}",
            f"build {build}",
            PACKAGE_HINT,
        )
    return context


def spill_file() -> IO[bytes]:
    """An empty file where Spark keeps what it spills; it is gone with this process, however that ends."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return tempfile.TemporaryFile(dir=folders[os.getpid() % len(folders)] or None)


@functools.cache
def _settle() -> None:
    # Spark's daemon collects garbage after each task. What is imported here makes that 30 ms, which is as long as a
    # small task takes; none of it ever becomes garbage.
    gc.freeze()
