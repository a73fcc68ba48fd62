"""The loader: a process of its own for what is large, so that reads go on undisturbed.

It downloads base files and makes sorted files, and it computes fingerprints. A thread would not do: building sorted
files holds the interpreter and cut reads to a twentieth (docs/performance.md). The process is started when there is
something to do, runs at low priority, and ends with its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar

from anew.core.errors import AnewError, Failed, Unreachable
from anew.loops.guarded import Loops
from anew.loops.processes import processes_at_side
from anew.node.faults import fault_of

AT_SIDE = ("anew.node.stores.loadjob", __name__, "anew.node.tables.fetchjob", "anew.sql.sandbox")
"""What the processes at a node's side run: they are forked from one helper that has imported it."""
ATTEMPTS = 3
NICENESS = 10
_STOP_SECONDS = 3.0
_LOOK_SECONDS = 1.0
"""Between two looks at a process that works on a job."""
_IDLE_SECONDS = 1.0
"""A loop that waits for ever could not be seen to get on."""

_Made_co = TypeVar("_Made_co", covariant=True)
_Made = TypeVar("_Made")


class Job(Protocol[_Made_co]):
    """Something for the loader to do: a value that can be sent there, and what it makes can be sent back."""

    @property
    def name(self) -> str:
        """For people: what it works on."""

    def run(self) -> _Made_co:
        """Do it, in the loader's process; doing it twice is harmless.

        Raises:
            AnewError: It did not work.
            OSError: A disk or a file did not work.
        """


class Submits(Protocol):
    """Who does jobs, in the order in which they come."""

    def submit(self, job: Job[_Made]) -> Future[_Made]:
        """Queue a job; the future ends with what the job made or with an `AnewError`."""


class Loader:
    """Runs jobs one after another in a process at its side; safe to use from several threads.

    A job whose process dies is tried again in a fresh one, `ATTEMPTS` times in all.
    """

    def __init__(self, name: str = "loader", loops: Loops | None = None) -> None:
        """Start the thread that hands jobs on.

        Args:
            name: What the loop is called.
            loops: The loops of the process; None: nobody is told how this one is.
        """
        self._jobs: queue.Queue[tuple[Job[Any], Future[Any]] | None] = queue.Queue()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._guarded = (Loops(lambda: 0) if loops is None else loops).loop(name)
        hand_on = partial(self._guarded.run, self._hand_on, self._stopped)
        self._thread = threading.Thread(target=hand_on, name=name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process that runs now, or None."""
        process = self._process
        return None if process is None else process.pid

    def submit(self, job: Job[_Made]) -> Future[_Made]:
        """Queue a job; the future ends with what the job made or with an `AnewError`."""
        future: Future[_Made] = Future()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """End the process; jobs that did not finish fail with ``loader_closed``."""
        self._stopped.set()
        self._jobs.put(None)
        with self._lock:
            if self._process is not None:
                self._process.terminate()
        self._thread.join(_STOP_SECONDS)
        self._end_process()

    def _hand_on(self) -> None:
        """The next job, whatever becomes of it: its future ends in any case, or its replica would wait for ever."""
        try:
            item = self._jobs.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            return
        if item is None:
            return
        job, future = item
        self._guarded.doing = job.name
        if not future.set_running_or_notify_cancel():
            return
        try:
            made = self._attempt(job)
        except AnewError as error:
            future.set_exception(error)
        except Exception as error:
            future.set_exception(fault_of(error))
            raise
        else:
            future.set_result(made)

    def _attempt(self, job: Job[Any]) -> Any:
        """The job's outcome, with a fresh process after each crash.

        Raises:
            AnewError: What the job ended with; `Failed` ``loader_crashed`` after the last attempt.
        """
        reasons: list[str] = []
        while len(reasons) < ATTEMPTS and not self._stopped.is_set():
            try:
                connection = self._connected()
                connection.send(job)
                answer = self._answer(connection)
            except (EOFError, OSError) as error:
                reasons.append(f"{type(error).__name__}, exit code {self._end_process()}")
                continue
            if isinstance(answer, AnewError):
                raise answer
            return answer
        if self._stopped.is_set():
            raise Failed("loader_closed", "the node stops", found=job.name, expected="a running loader")
        raise Failed(
            "loader_crashed",
            f"the loader process died {ATTEMPTS} times over the same job: {job.name}",
            found="; ".join(reasons),
            expected="a finished job",
            hint="see the node's log and the machine's memory",
        )

    def _answer(self, connection: Connection) -> Any:
        """Wait for it: a job may take hours, and gets on as long as its process works."""
        pid = self.pid
        worked = _worked(pid)
        while not connection.poll(_LOOK_SECONDS):
            before, worked = worked, _worked(pid)
            if worked is None or worked != before:
                self._guarded.progressed()
        return connection.recv()

    def _connected(self) -> Connection:
        with self._lock:
            if self._stopped.is_set():
                raise EOFError
            if self._connection is None:
                context = processes_at_side(*AT_SIDE)
                ours, theirs = context.Pipe()
                self._process = context.Process(target=serve_jobs, args=(theirs,), name="anew-loader", daemon=True)
                self._process.start()
                theirs.close()
                self._connection = ours
            return self._connection

    def _end_process(self) -> int | None:
        with self._lock:
            process, connection = self._process, self._connection
            self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is None:
            return None
        process.terminate()
        process.join(_STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join(_STOP_SECONDS)
        code = process.exitcode
        process.close()
        return code


def serve_jobs(connection: Connection) -> None:
    """The loader process: take jobs, answer each, end with the parent."""
    os.nice(NICENESS)
    _end_with_parent(lambda: os._exit(1))
    try:
        while True:
            connection.send(answer_of(connection.recv()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def answer_of(job: Job[Any]) -> Any:
    """What a job made, or the error that it ended with, whatever that was."""
    try:
        return job.run()
    except AnewError as error:
        return error
    except OSError as error:
        found = f"{job.name}: {error}"
        hint = "free some space, or look at the deep store"
        return Unreachable("load_failed", "the loader could not read or write", found=found, hint=hint)
    except Exception as error:  # noqa: BLE001 - told where the job was asked for
        return fault_of(error)


def _worked(pid: int | None) -> tuple[str, ...] | None:
    """What the kernel has counted of a process: its time on processors, what it read and what it wrote.

    One that waits for a disk or a server that never answers adds nothing to it. None: where no kernel tells.
    """
    try:
        of_time = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        of_bytes = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split()
    except OSError:
        return None
    # utime and stime, the 14th and 15th field (man 5 proc); the first two are the pid and the name in brackets.
    return (*of_time[11:13], *of_bytes)


def _end_with_parent(end: Callable[[], None]) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
