"""Whether executors see what a build reads, and the driver what they write: asked before the build, and after it.

Only on another master than a local one. Before the build it is a small job that fails soon and says why; an executor
that comes later is judged by its own tasks, and by what the driver finds in the end.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from anew.api.location import LogLocation
from anew.core.errors import AnewError, Failed
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.log.interface import TopicPartition
from anew.log.open import no_clock, open_log
from anew.segments.layout import probe_path
from anew.spark.failures import reason_of
from anew.spark.worker import begin_task, is_local, required_build

_SEEN = "found string"
_SHARED_HINT = "see `On a Spark cluster` in docs/operations.md: what executors must share with the driver"


@dataclass(frozen=True, slots=True)
class Sights:
    """What executors must see; crosses to them.

    Attributes:
        target: Root of the target's deep store.
        directory: The version's directory below it, in which executors must be able to write.
        source: Root of the source's deep store and a file that is there; None where no base is read.
        logs: Where logs are, each with a topic partition that is there: of what is read, and of the version topic.
        inputs: Absolute paths of input files.
    """

    target: str
    directory: str
    source: tuple[str, str] | None
    logs: tuple[tuple[LogLocation, TopicPartition], ...] = ()
    inputs: tuple[str, ...] = ()


def check_executors(spark: SparkSession, sights: Sights) -> None:
    """Raise unless the executors that are there now have the driver's package and see what they must.

    Raises:
        Failed: ``package_missing_on_executors``, ``package_differs_on_executors``, ``python_missing_on_executors``,
            ``python_differs_on_executors``, ``unseen_by_executors``, ``unseen_by_driver``; all name the executor.
    """
    context = spark.sparkContext
    if is_local(context.master):
        return
    # As many short tasks as there are cores twice over: about every core gets one.
    count = 2 * max(1, context.defaultParallelism)
    store = open_deep_store(sights.target)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(_looking(sights), _SEEN).collect()
        found = [json.loads(row["found"]) for row in rows]
        _check_found(found, {file.path for file in store.list(probe_path(sights.directory))}, sights)
    except AnewError:
        raise
    except Exception as error:
        raise reason_of(error) from error
    finally:
        store.delete_tree(probe_path(sights.directory))


def check_files_seen(spark: SparkSession, root: str, directory: str, paths: set[str]) -> None:
    """Raise unless the driver sees the base files that executors say they wrote.

    Raises:
        Failed: ``unseen_by_driver``.
    """
    if is_local(spark.sparkContext.master):
        return
    there = {file.path for file in open_deep_store(root).list(directory)}
    lost = sorted(paths - there)
    if lost:
        raise _unseen_by_driver(f"{len(lost)} files, such as {lost[0]}", root)


def _check_found(found: list[dict[str, str]], there: set[str], sights: Sights) -> None:
    for executor in found:
        if "problem" in executor:
            raise Failed(
                "unseen_by_executors",
                f"an executor cannot use {executor['what']}",
                found=f"{executor['problem']} on {executor['host']}",
                expected=f"{executor['place']} as the driver sees it",
                hint=_SHARED_HINT,
            )
        if executor["probe"] not in there:
            raise _unseen_by_driver(f"{executor['probe']}, written on {executor['host']}", sights.target)


def _unseen_by_driver(found: str, root: str) -> Failed:
    return Failed(
        "unseen_by_driver",
        "the driver does not see what an executor wrote into the deep store",
        found=found,
        expected=f"one deep store for all: {root}",
        hint=_SHARED_HINT,
    )


def _looking(sights: Sights) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    build = required_build()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = begin_task(build)
        for _ in batches:
            pass
        found = _look(sights, f"t{context.taskAttemptId()}")
        yield pa.RecordBatch.from_pydict({"found": [json.dumps({"host": socket.gethostname(), **found})]})

    return run


def _look(sights: Sights, attempt: str) -> dict[str, str]:
    """What this executor finds: the first thing that it cannot use, else the path of the probe that it wrote."""
    probe = f"{probe_path(sights.directory)}/{attempt}"
    for what, place, look in _looks(sights, probe):
        try:
            look()
        except (AnewError, OSError) as error:
            return {"what": what, "place": place, "problem": str(error)}
    return {"probe": probe}


def _looks(sights: Sights, probe: str) -> Iterator[tuple[str, str, Callable[[], object]]]:
    if sights.source is not None:
        root, path = sights.source
        yield "the source's deep store", root, lambda: _stat(open_deep_store(root), path)
    for location, at in sights.logs:
        yield "the log", location.address, partial(_read_log, location, at)
    for path in sights.inputs:
        yield "the input", path, partial(_read_input, path)
    yield "the target's deep store", sights.target, lambda: open_deep_store(sights.target).put(probe, b"")


def _stat(store: DeepStore, path: str) -> None:
    if store.stat(path) is None:
        raise FileNotFoundError(f"{path} is not there")


def _read_log(location: LogLocation, at: TopicPartition) -> None:
    if location.kind == "embedded" and not Path(location.address).is_dir():
        # Opening would make it.
        raise FileNotFoundError(f"{location.address} is not there")
    log = open_log(location, clock=no_clock)
    try:
        log.offsets(at)
    finally:
        log.close()


def _read_input(path: str) -> None:
    if not os.access(path, os.R_OK):
        raise FileNotFoundError(f"{path} is not there, or cannot be read")
