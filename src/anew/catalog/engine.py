"""Opening the database: SQLite's pragmas and transactions, migrations, and errors in this project's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from anew.core.errors import AnewError, Failed, OutcomeUnknown, Refused, Unreachable

_WRITES = {"anew_writes": True}


def open_engine(url: str, timeout_seconds: float) -> sa.Engine:
    """An engine whose schema is up to date.

    Args:
        url: An SQLAlchemy URL; ``sqlite:///…`` for the embedded catalog.
        timeout_seconds: How long to wait for a lock or a connection.

    Raises:
        Unreachable: ``catalog_unreachable``.
    """
    sqlite = url.startswith("sqlite")
    arguments: dict[str, Any] = {"timeout": timeout_seconds} if sqlite else {}
    engine = sa.create_engine(url, connect_args=arguments, pool_size=8, max_overflow=16, pool_timeout=timeout_seconds)
    if sqlite:
        sa.event.listen(engine, "connect", _set_pragmas)
        sa.event.listen(engine, "begin", _begin)
    with writing(engine) as connection:
        _migrate(connection)
    return engine


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that only reads."""
    try:
        with engine.begin() as connection:
            yield connection
    except (sa.exc.DatabaseError, sa.exc.TimeoutError) as error:
        raise _translated(error) from error


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that writes: it takes SQLite's write lock at once, not at its first write.

    A deferred transaction that reads and then writes fails at once with "database is locked" when another one wrote in
    between; an immediate one waits for its turn.
    """
    try:
        with engine.connect().execution_options(**_WRITES) as connection:
            connection.begin()
            yield connection
            _commit(connection)
    except (sa.exc.DatabaseError, sa.exc.TimeoutError) as error:
        raise _translated(error) from error


def _commit(connection: sa.Connection) -> None:
    try:
        connection.commit()
    except sa.exc.OperationalError as error:
        raise OutcomeUnknown(
            "commit_unknown",
            "the catalog did not say whether the change was committed",
            found=str(error.orig),
            hint="anew history",
        ) from error


def _migrate(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _set_pragmas(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("anew_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _translated(error: sa.exc.DatabaseError | sa.exc.TimeoutError) -> AnewError:
    found = str(error).splitlines()[0]
    if isinstance(error, sa.exc.IntegrityError):
        return Refused(
            "revision_conflict", "somebody else made the same thing meanwhile", found=found, hint="load and try again"
        )
    if isinstance(error, sa.exc.OperationalError | sa.exc.TimeoutError):
        return Unreachable(
            "catalog_unreachable",
            "the catalog does not answer",
            found=found,
            expected="a database that answers within the timeout",
            hint="is the disk full, or does another program hold a lock on it?",
        )
    return Failed(
        "catalog_corrupt",
        "the catalog's database is damaged, or not one",
        found=found,
        expected="an intact database",
        hint="restore a copy of the catalog",
    )
