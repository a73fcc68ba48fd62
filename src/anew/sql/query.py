"""Queries over a set of views, within limits of memory, time and rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from anew.core.errors import AnewError, Failed, InvalidRequest, NotFound
from anew.core.suggest import did_you_mean
from anew.sql.conversions import Conversions
from anew.sql.instance import Connection, Fault, first_line, open_instance, quoted, select, text_literal
from anew.sql.misfits import misfit
from anew.sql.statements import Query, check_query
from anew.sql.views import TableView, view_statement

_BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may use: bytes of memory, seconds of time, rows of answer, threads."""

    memory_bytes: int
    seconds: float
    rows: int
    threads: int


class QueryEngine:
    """A DuckDB instance that reads the files of its views and nothing else; for one thread at a time.

    Args:
        spill_directory: Where queries that need more memory than they may use put the rest; None: they end.

    Raises:
        Failed: ``bad_segment_path``; ``unreadable_segment``: a file is not there or no Parquet.
    """

    def __init__(self, views: Sequence[TableView], *, spill_directory: str | None = None) -> None:
        self._tables = {view.name.lower(): view.name for view in views}
        self._views = tuple(views)
        self._connection = open_instance(threads=1)
        self._conversions = Conversions(self._connection)
        self._allowed: tuple[int, int] | None = None
        try:
            for view in views:
                self._connection.execute(view_statement(view, self._conversions, self._connection))
        except Fault as error:
            self._connection.close()
            hint = "the segment's file may have gone, or may be damaged"
            raise Failed(
                "unreadable_segment", "a table cannot be queried", found=first_line(error), hint=hint
            ) from None
        self._lock_down([file.path for view in views for file in view.files], spill_directory or "")

    def execute(self, sql: str, limits: Limits) -> pa.Table:
        """The answer to a query; that to EXPLAIN is one column ``plan``.

        Raises:
            InvalidRequest: ``not_a_query``; `NotFound` ``unknown_table``; ``bad_query``: DuckDB does not take it, it
                failed on a value, or it met a value of a segment that does not fit what the table wants now, which a
                refresh refuses too; ``too_many_rows``, ``query_timeout``, ``query_out_of_memory``: of the limits.
            Failed: ``query_failed``: the engine or a disk failed, or a segment's file is damaged.
        """
        query = self._checked(sql)
        if query.explain:
            return pa.table({"plan": [self._plan(query, limits)]})
        with self._limited(limits) as connection:
            return self._fetched(connection, query.text, limits)

    def rows(self, table: str, limits: Limits) -> Iterator[pa.RecordBatch]:
        """All rows of a view, batch by batch; the limit of rows does not count.

        Raises:
            AnewError: As for `execute`.
        """
        sql = select("*", quoted(self._tables[table.lower()]))
        with self._limited(limits) as connection, connection.sql(sql).to_arrow_reader(_BATCH_ROWS) as rows:
            yield from rows

    def explain(self, sql: str, limits: Limits) -> str:
        """DuckDB's plan for a query, as text; the query does not run.

        Raises:
            AnewError: As for `execute`.
        """
        return self._plan(self._checked(sql), limits)

    def close(self) -> None:
        """Let go of all memory and files."""
        self._connection.close()

    def _lock_down(self, paths: list[str], spill_directory: str) -> None:
        allowed = ", ".join(text_literal(path) for path in paths)
        for statement in (
            # Files are immutable: what their footers say stays so.
            "SET parquet_metadata_cache = true",
            f"SET temp_directory = {text_literal(spill_directory)}",
            f"SET allowed_paths = [{allowed}]",
            "SET enable_external_access = false",
            "SET allowed_configs = ['memory_limit', 'threads']",
            "SET lock_configuration = true",
        ):
            self._connection.execute(statement)

    def _checked(self, sql: str) -> Query:
        query = check_query(sql)
        unknown = next((name for name in sorted(query.tables) if name.lower() not in self._tables), None)
        if unknown is None:
            return query
        names = sorted(self._tables.values())
        hint = did_you_mean(unknown, names)
        expected = ", ".join(names)
        raise NotFound("unknown_table", "there is no such table", found=unknown, expected=expected, hint=hint)

    def _plan(self, query: Query, limits: Limits) -> str:
        with self._limited(limits) as connection:
            row = connection.execute(f"EXPLAIN {query.text}").fetchone()
        assert row is not None
        return str(row[1])

    def _fetched(self, connection: Connection, sql: str, limits: Limits) -> pa.Table:
        reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
        batches, rows, size = [], 0, 0
        with reader:
            for batch in reader:
                batches.append(batch)
                rows += batch.num_rows
                size += batch.nbytes
                if rows > limits.rows:
                    raise _too_many_rows(limits)
                if size > limits.memory_bytes:
                    raise _out_of_memory("the answer itself", limits)
        return pa.Table.from_batches(batches, reader.schema)

    @contextmanager
    def _limited(self, limits: Limits) -> Iterator[Connection]:
        """A connection that is interrupted when the time is over; DuckDB's errors become ours."""
        connection = self._connection.cursor()
        self._conversions.forget()
        timer = threading.Timer(limits.seconds, connection.interrupt)
        timer.daemon = True
        try:
            if (limits.memory_bytes, limits.threads) != self._allowed:
                # Said once: each time costs milliseconds, as memory is given back for it.
                connection.execute(f"SET GLOBAL memory_limit = '{limits.memory_bytes} bytes'")
                connection.execute(f"SET GLOBAL threads = {limits.threads}")
                self._allowed = (limits.memory_bytes, limits.threads)
            timer.start()
            yield connection
        except (Fault, pa.ArrowException, OSError, MemoryError) as error:
            raise self._misfit() or _as_ours(error, limits) from None
        finally:
            timer.cancel()
            connection.close()

    def _misfit(self) -> InvalidRequest | None:
        """The error about a value that a conversion met and that does not fit, with its segment and row."""
        met = self._conversions.met()
        if met is None:
            return None
        view = next(view for view in self._views if view.name == met[0].table)
        return misfit(met, view, self._connection)


def _as_ours(error: BaseException, limits: Limits) -> AnewError:
    line = first_line(error)
    # An error in the middle of an answer comes through Arrow, which keeps nothing but the text.
    if isinstance(error, duckdb.InterruptException) or "INTERRUPT Error" in line:
        return timed_out(limits)
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "Out of Memory Error" in line:
        return _out_of_memory(line, limits)
    engine = (duckdb.IOException, duckdb.InternalException, duckdb.FatalException)
    if isinstance(error, engine) or any(kind in line for kind in ("IO Error", "INTERNAL Error", "FATAL Error")):
        return Failed("query_failed", "the query engine failed", found=line, expected="an answer")
    return InvalidRequest("bad_query", "the query does not work", found=line, expected="a query that DuckDB takes")


def timed_out(limits: Limits) -> InvalidRequest:
    """The error of a query that took longer than it may."""
    return InvalidRequest(
        "query_timeout",
        "the query was stopped: it took too long",
        expected=f"an answer within {limits.seconds:g} s",
        hint="ask for less, or raise the limit of time",
    )


def _too_many_rows(limits: Limits) -> InvalidRequest:
    return InvalidRequest(
        "too_many_rows",
        "the query was stopped: its answer has too many rows",
        expected=f"at most {limits.rows} rows",
        hint="add LIMIT or aggregate, or raise the limit of rows",
    )


def _out_of_memory(found: str, limits: Limits) -> InvalidRequest:
    return InvalidRequest(
        "query_out_of_memory",
        "the query was stopped: it needs too much memory",
        found=found,
        expected=f"at most {limits.memory_bytes} bytes",
        hint="ask for less, or raise the limit of memory",
    )
