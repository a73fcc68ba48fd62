"""A few query processes, so that one long query does not keep all others waiting."""

from __future__ import annotations

import queue

from anew.core.errors import Unreachable
from anew.sql.sandbox import QueryProcess, Question


class QueryPool:
    """Gives each query a free process; safe to use from several threads.

    Args:
        processes: How many queries run at once.
        spill_directory: Where queries may put what does not fit into their memory; None: nowhere.
    """

    def __init__(self, *, processes: int = 2, spill_directory: str | None = None) -> None:
        self._all = tuple(QueryProcess(spill_directory=spill_directory) for _ in range(processes))
        # The one that was used last has most of the files in its cache, and the others need not be started.
        self._free: queue.LifoQueue[QueryProcess] = queue.LifoQueue()
        for process in reversed(self._all):
            self._free.put(process)

    def execute(self, question: Question) -> bytes:
        """The answer as an Arrow IPC stream, see `anew.sql.sandbox.read_answer`.

        Raises:
            Unreachable: ``queries_busy``: no process was free within the query's own limit of time.
            AnewError: As for `QueryProcess.execute`.
        """
        try:
            process = self._free.get(timeout=question.limits.seconds)
        except queue.Empty:
            raise Unreachable(
                "queries_busy",
                "all query processes are busy",
                found=f"{len(self._all)} queries are running",
                expected=f"a free process within {question.limits.seconds:g} s",
                hint="try again later",
            ) from None
        try:
            return process.execute(question)
        finally:
            self._free.put(process)

    def drop(self, set_id: str) -> None:
        """Let all processes forget a set of views, at the latest before their next queries."""
        for process in self._all:
            process.drop(set_id)

    def close(self) -> None:
        """End all processes, whatever they do."""
        for process in self._all:
            process.close()
