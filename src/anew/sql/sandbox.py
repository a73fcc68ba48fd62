"""A process of its own that runs queries: what goes wrong in it, from endless queries to crashes, stays there.

The process cannot write files (`anew.sql.guard`), runs at low priority and ends with its parent. What it says is read
as bytes: tables as Arrow IPC and errors as JSON, never as objects.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pyarrow as pa

from anew.core.errors import AnewError, Failed, Unreachable, error_from_json
from anew.loops.processes import processes_at_side
from anew.sql.guard import forbid_writing, yield_to_others
from anew.sql.query import Limits, QueryEngine, timed_out
from anew.sql.views import TableView

NICENESS = 5
KEPT_SETS = 4
"""How many sets of views a process keeps open; the one that was used longest ago goes first."""

GRACE_SECONDS = 2.0
"""How long after its own limit a query may still answer; then its process is killed."""

START_SECONDS = 60.0
_STOP_SECONDS = 3.0

_READY, _TABLE, _ERROR, _UNKNOWN_SET = b"R", b"T", b"E", b"U"


@dataclass(frozen=True, slots=True)
class Question:
    """A query over a set of views; the id stands for the views: another set has another id."""

    set_id: str
    views: tuple[TableView, ...]
    sql: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class _Message:
    """To the process: forget these sets, then answer the query; without views it has to know the set."""

    forget: tuple[str, ...]
    set_id: str
    views: tuple[TableView, ...] | None
    sql: str
    limits: Limits


def read_answer(answer: bytes) -> pa.Table:
    """The table of an answer."""
    with pa.ipc.open_stream(answer) as reader:
        return reader.read_all()


class QueryProcess:
    """A process that answers queries, one after another; safe to use from several threads.

    It is started when there is something to answer, and again after it had to be killed or died.

    Args:
        spill_directory: The only place where it may write, None for nowhere.
    """

    def __init__(self, *, spill_directory: str | None = None) -> None:
        self._spill_directory = spill_directory
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._known: set[str] = set()
        self._forget: set[str] = set()
        self._forget_lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process that runs now, or None."""
        process = self._process
        return None if process is None else process.pid

    def execute(self, question: Question) -> bytes:
        """The answer as an Arrow IPC stream, see `read_answer`.

        Raises:
            AnewError: As for `QueryEngine.execute`; ``query_timeout`` also when the process had to be killed.
            Failed: ``query_process_died``: the next query finds a fresh one.
            Unreachable: ``query_process_not_started``.
        """
        with self._lock:
            connection = self._connected()
            try:
                return self._answer(connection, question)
            except (EOFError, OSError) as error:
                code = self._end()
                raise Failed(
                    "query_process_died",
                    "the process that ran the query died",
                    found=f"{type(error).__name__}, exit code {code}",
                    expected="an answer",
                    hint="the machine may be short of memory; ask for less, or lower the limit of memory",
                ) from None

    def drop(self, set_id: str) -> None:
        """Forget a set of views, at the latest before the next query."""
        with self._forget_lock:
            self._forget.add(set_id)

    def close(self) -> None:
        """End the process, and a query that it runs."""
        process = self._process
        if self._lock.acquire(blocking=False):
            # It has nothing to do: it may tidy up what it has on disk.
            try:
                self._end(patience=_STOP_SECONDS)
            finally:
                self._lock.release()
        elif process is not None:
            # ValueError: it has ended since, and nothing of it is left to kill.
            with contextlib.suppress(ValueError):
                process.kill()

    def _answer(self, connection: Connection, question: Question) -> bytes:
        """Ask, with the views only when the process may not know them.

        Raises:
            AnewError: What the process answers; ``query_timeout``.
            EOFError, OSError: It died.
        """
        forget = self._to_forget()
        views = None if question.set_id in self._known else question.views
        kind, answer = self._asked(connection, question, _Message(forget, question.set_id, views, *_rest(question)))
        if kind == _UNKNOWN_SET:
            again = _Message((), question.set_id, question.views, *_rest(question))
            kind, answer = self._asked(connection, question, again)
        if kind == _TABLE:
            self._known.add(question.set_id)
            return answer
        body = json.loads(answer)
        raise error_from_json(int(body["http_status"]), body["error"])

    def _asked(self, connection: Connection, question: Question, message: _Message) -> tuple[bytes, bytes]:
        connection.send(message)
        if not connection.poll(question.limits.seconds + GRACE_SECONDS):
            self._end()
            raise timed_out(question.limits)
        answer = connection.recv_bytes()
        return answer[:1], answer[1:]

    def _to_forget(self) -> tuple[str, ...]:
        with self._forget_lock:
            forget, self._forget = self._forget, set()
        self._known -= forget
        return tuple(forget)

    def _connected(self) -> Connection:
        if self._connection is not None and self._process is not None and self._process.is_alive():
            return self._connection
        self._end()
        context = processes_at_side(__name__)
        ours, theirs = context.Pipe()
        arguments = (theirs, self._spill_directory)
        process = context.Process(target=serve_queries, args=arguments, name="anew-query", daemon=True)
        process.start()
        theirs.close()
        self._process, self._connection = process, ours
        try:
            if ours.poll(START_SECONDS) and ours.recv_bytes() == _READY:
                return ours
        except (EOFError, OSError):
            pass
        raise Unreachable("query_process_not_started", "no process could be started", found=f"exit code {self._end()}")

    def _end(self, *, patience: float = 0.0) -> int | None:
        process, connection = self._process, self._connection
        self._process = self._connection = None
        self._known = set()
        if connection is not None:
            connection.close()
        if process is None:
            return None
        process.join(patience)
        process.kill()
        process.join(_STOP_SECONDS)
        code = process.exitcode
        process.close()
        return code


def _rest(question: Question) -> tuple[str, Limits]:
    return question.sql, question.limits


# -- in the process ----------------------------------------------------------------------------------------------------


def serve_queries(connection: Connection, spill_directory: str | None) -> None:
    """The query process: give up all rights that it does not need, then answer; end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield_to_others(NICENESS)
    forbid_writing(() if spill_directory is None else (spill_directory,))
    _end_with_parent(lambda: os._exit(1))
    sets = _Sets(spill_directory)
    try:
        connection.send_bytes(_READY)
        while True:
            connection.send_bytes(sets.answer(connection.recv()))
    except (EOFError, OSError):
        sets.close()
        # An interpreter that ends under the watching thread makes DuckDB's binding report leaks on stderr.
        os._exit(0)


class _Sets:
    """The engines of the sets that were used last."""

    def __init__(self, spill_directory: str | None) -> None:
        self._spill_directory = spill_directory
        self._engines: OrderedDict[str, QueryEngine] = OrderedDict()

    def answer(self, message: _Message) -> bytes:
        """The bytes that answer a message."""
        for set_id in message.forget:
            self._drop(set_id)
        try:
            engine = self._engine(message)
            return _UNKNOWN_SET if engine is None else _TABLE + _stream(engine.execute(message.sql, message.limits))
        except AnewError as error:
            if isinstance(error, Failed):
                # An engine that failed may be of no use any more; the next query has a fresh one.
                self._drop(message.set_id)
            body = {"http_status": error.http_status, "error": error.to_json()}
            return _ERROR + json.dumps(body, default=str).encode()

    def close(self) -> None:
        """Let go of all engines, and of what they have on disk."""
        for set_id in tuple(self._engines):
            self._drop(set_id)

    def _engine(self, message: _Message) -> QueryEngine | None:
        engine = self._engines.get(message.set_id)
        if engine is None and message.views is not None:
            while len(self._engines) >= KEPT_SETS:
                self._drop(next(iter(self._engines)))
            engine = QueryEngine(message.views, spill_directory=self._spill_directory)
            self._engines[message.set_id] = engine
        if engine is not None:
            self._engines.move_to_end(message.set_id)
        return engine

    def _drop(self, set_id: str) -> None:
        engine = self._engines.pop(set_id, None)
        if engine is not None:
            engine.close()


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _end_with_parent(end: Callable[[], None]) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
