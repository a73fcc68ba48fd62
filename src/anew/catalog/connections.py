"""What differs between databases: how to connect, how to read at one moment, how writers take turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sqlalchemy as sa

_SWITCH_PAUSE_SECONDS = 0.01
_PRIMARY, _BUSY = 0xFF, 5
"""The part of SQLite's error codes that names the kind of error; and the kind SQLITE_BUSY."""


@dataclass(frozen=True, slots=True)
class Options:
    """How one kind of database is used.

    Attributes:
        engine: For `sqlalchemy.create_engine`.
        reads: Execution options of transactions that only read.
        writes: Execution options of transactions that write.
        listeners: Event name → listener on the engine.
        take_turn: Called first in each transaction that writes: from then on no other one does, until it ends.
    """

    engine: dict[str, Any]
    take_turn: Callable[[sa.Connection], None]
    reads: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, Any] = field(default_factory=dict)
    listeners: dict[str, Callable[..., Any]] = field(default_factory=dict)


def sqlite_options(timeout_seconds: float) -> Options:
    """SQLite in WAL mode, each commit on disk; a transaction that writes takes the write lock as it begins.

    A deferred transaction that reads and then writes fails at once with "database is locked" when another one wrote in
    between; an immediate one waits for its turn.
    """
    return Options(
        engine={"connect_args": {"timeout": timeout_seconds}, "pool_size": 8, "max_overflow": 16},
        writes={"anew_writes": True},
        listeners={"connect": partial(_set_pragmas, timeout_seconds), "begin": _begin},
        take_turn=_has_its_turn,
    )


def _has_its_turn(_connection: sa.Connection) -> None:
    """BEGIN IMMEDIATE has taken it."""


def _set_pragmas(timeout_seconds: float, connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own
    _use_wal(connection, timeout_seconds)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _use_wal(connection: Any, timeout_seconds: float) -> None:
    """Several who open a fresh file at once switch it one after another: of all locks SQLite does not wait for that."""
    deadline, pause = time.monotonic() + timeout_seconds, threading.Event()
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except connection.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY != _BUSY or time.monotonic() >= deadline:
                raise
            pause.wait(_SWITCH_PAUSE_SECONDS)
        else:
            return


def _begin(connection: sa.Connection) -> None:
    if connection.get_execution_options().get("anew_writes", False):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    # Takes no lock and touches no file, so that it cannot fail: SQLAlchemy's wrapping would cost as much as the read.
    driver_connection: Any = connection.connection.driver_connection
    driver_connection.execute("BEGIN").close()
