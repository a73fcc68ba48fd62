"""DuckDB instances as this project opens them: in memory, in UTC, without extensions or anything of the world."""

from __future__ import annotations

import atexit
from functools import cache

import duckdb

Connection = duckdb.DuckDBPyConnection
Fault = duckdb.Error


def open_instance(*, threads: int) -> Connection:
    """A fresh instance of its own that loads no extensions and knows no Python variables.

    Raises:
        duckdb.Error: There is no memory for it.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
            "preserve_insertion_order": "true",
            "threads": str(threads),
            # Files are local: one thread that waits for disks is enough, and each instance starts its own.
            "async_threads": "1",
        },
    )
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def session() -> Connection:
    """A connection to the shared instance that judges texts and evaluates over Arrow: one thread, no files."""
    connection = _shared().cursor()
    # What is set for all reaches only sessions that ask for nothing else; this one says so itself.
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@cache
def _shared() -> Connection:
    connection = open_instance(threads=1)
    connection.execute("SET temp_directory = ''")
    connection.execute("SET enable_external_access = false")
    # A connection that outlives the interpreter makes DuckDB's binding report leaks on stderr.
    atexit.register(_shared.cache_clear)
    return connection


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever its letters."""
    return '"' + name.replace('"', '""') + '"'


def select(what: str, source: str) -> str:
    """A statement from parts that were checked, or that this package wrote itself."""
    return f"SELECT {what} FROM {source}"  # noqa: S608 - its parts are expressions that parsed alone, or our own


def text_literal(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def first_line(error: BaseException) -> str:
    """What DuckDB says went wrong, without the excerpt of the statement that follows."""
    return str(error).strip().partition("\n")[0].strip()
