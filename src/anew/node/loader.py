"""The loader: a process of its own that downloads base files and makes sorted files, so that reads go on undisturbed.

A thread would not do: building sorted files holds the interpreter and cut reads to a twentieth (design 4.2). The
process is started when there is something to load, runs at low priority, and ends with its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from anew.core.errors import AnewError, Failed, Unreachable
from anew.deepstore.open import open_deep_store
from anew.node.loadjob import Loaded, LoadJob, run_load

ATTEMPTS = 3
NICENESS = 10
_STOP_SECONDS = 3.0


class Loader:
    """Runs load jobs one after another in a process at its side; safe to use from several threads.

    A job whose process dies is tried again in a fresh one, `ATTEMPTS` times in all.
    """

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[LoadJob, Future[Loaded]] | None] = queue.Queue()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process that runs now, or None."""
        process = self._process
        return None if process is None else process.pid

    def submit(self, job: LoadJob) -> Future[Loaded]:
        """Queue a job; the future ends with its sorted files or with an `AnewError`."""
        future: Future[Loaded] = Future()
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

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._attempt(job))
            except AnewError as error:
                future.set_exception(error)

    def _attempt(self, job: LoadJob) -> Loaded:
        """The job's outcome, with a fresh process after each crash.

        Raises:
            AnewError: What the load ended with; `Failed` ``loader_crashed`` after the last attempt.
        """
        reasons: list[str] = []
        while len(reasons) < ATTEMPTS and not self._stopped.is_set():
            try:
                connection = self._connected()
                connection.send(job)
                answer: Loaded | AnewError = connection.recv()
            except (EOFError, OSError) as error:
                reasons.append(f"{type(error).__name__}, exit code {self._end_process()}")
                continue
            if isinstance(answer, AnewError):
                raise answer
            return answer
        if self._stopped.is_set():
            raise Failed("loader_closed", "the node stops", found=job.manifest.path, expected="a running loader")
        raise Failed(
            "loader_crashed",
            f"the loader process died {ATTEMPTS} times over the same load",
            found="; ".join(reasons),
            expected="a finished load",
            hint="see the node's log and the machine's memory",
        )

    def _connected(self) -> Connection:
        with self._lock:
            if self._stopped.is_set():
                raise EOFError
            if self._connection is None:
                context = multiprocessing.get_context("spawn")
                ours, theirs = context.Pipe()
                self._process = context.Process(target=serve_loads, args=(theirs,), name="anew-loader", daemon=True)
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


def serve_loads(connection: Connection) -> None:
    """The loader process: take jobs, answer each, end with the parent."""
    os.nice(NICENESS)
    _end_with_parent(lambda: os._exit(1))
    try:
        while True:
            connection.send(_answer(connection.recv()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _answer(job: LoadJob) -> Loaded | AnewError:
    folder = Path(job.folder)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        return run_load(open_deep_store(job.deep_store), job)
    except AnewError as error:
        return error
    except OSError as error:
        hint = "free some space, or look at the deep store"
        return Unreachable("load_failed", "a load could not read or write", found=str(error), hint=hint)


def _end_with_parent(end: Callable[[], None]) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
