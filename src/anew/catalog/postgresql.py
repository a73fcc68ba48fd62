"""PostgreSQL's side of the catalog: connections with deadlines, and taking turns."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors

from anew.catalog.connections import Options

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 2.0
"""How much longer than the server's own deadline the client waits, so that the server's word comes first."""

_TURN = sa.text("SELECT pg_advisory_xact_lock(7210743318442031)")
"""Of all clients of one database one at a time writes. The number is this project's own; an advisory lock ends with its
transaction, however that ends."""


class _Connection(psycopg.Connection[Any]):
    """A connection that gives up when the server is silent: a stopped server keeps its sockets open for ever."""

    answer_seconds = 60.0

    def wait(self, gen: Any, interval: float = _POLL_SECONDS, timeout: float | None = None) -> Any:
        """See `psycopg.Connection.wait`."""
        limit = self.answer_seconds if timeout is None else min(timeout, self.answer_seconds)
        try:
            return super().wait(gen, interval=interval, timeout=limit)
        except errors._WaitTimeout as error:
            # What was asked may still be carried out: the connection cannot be used for anything else.
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server did not answer within {limit:.1f} s") from error


def options(url: sa.URL, timeout_seconds: float) -> Options:
    """How to connect so that everything ends within about ``timeout_seconds``."""
    milliseconds = max(1, int(timeout_seconds * 1000))
    limits = {
        "lock_timeout": milliseconds,
        # Longer than for a lock, so that whoever waits for one is told so.
        "statement_timeout": milliseconds + 1_000,
        # A client that was stopped inside its turn must not hold up the others for longer than they wait.
        "idle_in_transaction_session_timeout": max(1000, milliseconds // 2),
    }
    asked = " ".join(f"-c {name}={value}" for name, value in limits.items())
    given = url.query.get("options")
    arguments = {
        "connect_timeout": max(2, math.ceil(timeout_seconds)),
        "application_name": "anew",
        "tcp_user_timeout": milliseconds,
        "keepalives_idle": 30,
        "client_encoding": "utf8",
        "prepare_threshold": None,
        "options": asked if given is None else f"{asked} {given}",
    }
    kept = {name: value for name, value in arguments.items() if name == "options" or name not in url.query}

    def connect(_dialect: Any, _record: Any, positional: Any, named: dict[str, Any]) -> Any:
        connection = _Connection.connect(*positional, **{**named, **kept})
        connection.answer_seconds = timeout_seconds + _GRACE_SECONDS
        return connection

    return Options(
        engine={"isolation_level": "READ COMMITTED", "pool_size": 4, "max_overflow": 12, "pool_recycle": 1_800},
        reads={"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
        listeners={"do_connect": connect},
        take_turn=_take_turn,
    )


def _take_turn(connection: sa.Connection) -> None:
    connection.execute(_TURN)
