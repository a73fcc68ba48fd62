"""Transactions over the catalog's database: turns, retries, deadlines, and what a lost answer means.

Every transaction ends in one of three ways: done; not done (`Refused`, `Unreachable`: nothing was changed); or unknown
(`OutcomeUnknown`: the commit was sent and its answer did not come).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError

from anew.catalog import postgresql
from anew.catalog.connections import Options, sqlite_options
from anew.catalog.failures import DatabaseFailure, did_nothing, error_line, translated
from anew.catalog.url import parse_catalog_url, secrets_of
from anew.core.errors import OutcomeUnknown, Refused

_Result = TypeVar("_Result")
_Work = Callable[[sa.Connection], _Result]

_ATTEMPTS = 10
"""How often a transaction is tried that lost against others; each loss means that another one got on."""


class Database:
    """The catalog's database, its schema up to date. Safe to use from several threads."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """Connect, and migrate where the schema is older than this release.

        Args:
            url: ``sqlite:///…`` or ``postgresql://…``.
            timeout_seconds: How long to wait for a connection, a lock, an answer or a free place in the pool.

        Raises:
            InvalidRequest: ``bad_catalog``.
            Refused: ``catalog_newer``: a later release has migrated the schema.
            Unreachable: ``catalog_unreachable``.
        """
        parsed = parse_catalog_url(url)
        self._secrets = secrets_of(parsed)
        sqlite = parsed.get_backend_name() == "sqlite"
        self._options = sqlite_options(timeout_seconds) if sqlite else postgresql.options(parsed, timeout_seconds)
        self._engine = _engine(parsed, self._options, timeout_seconds)
        self._reads = self._engine.execution_options(**self._options.reads)
        self._writes = self._engine.execution_options(**self._options.writes)
        try:
            self.write(_migrate)
        except BaseException:
            self.close()
            raise

    def read(self, work: _Work[_Result]) -> _Result:
        """Do reads that see one moment.

        Raises:
            Unreachable: ``catalog_unreachable``.
        """
        return self._retried(lambda: self._read_once(work))

    def write(self, work: _Work[_Result]) -> _Result:
        """Do reads and writes, all or nothing, while nobody else writes.

        ``work`` may be called several times: it must depend on nothing but the connection.

        Raises:
            Refused: ``revision_conflict``.
            Unreachable: ``catalog_unreachable``: nothing was changed.
            OutcomeUnknown: ``commit_unknown``.
        """
        return self._retried(lambda: self._write_once(work))

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    def _retried(self, attempt: Callable[[], _Result]) -> _Result:
        """The one place where a transaction is tried again: it lost against others, or its connection was stale.

        Neither has changed anything: an error before the commit was sent, or one that the database itself calls undone.
        """
        reconnected = False
        for number in range(_ATTEMPTS):
            try:
                return attempt()
            except DatabaseFailure as error:
                lost = getattr(error, "connection_invalidated", False)
                again = did_nothing(error) or (lost and not reconnected)
                if not again or number == _ATTEMPTS - 1:
                    raise translated(error, self._secrets) from error
                reconnected = reconnected or lost
        raise AssertionError("unreachable: the last attempt raises or returns")

    def _read_once(self, work: _Work[_Result]) -> _Result:
        with self._reads.begin() as connection:
            return work(connection)

    def _write_once(self, work: _Work[_Result]) -> _Result:
        connection = self._writes.connect()
        try:
            connection.begin()
            self._options.take_turn(connection)
            result = work(connection)
            self._commit(connection)
        except BaseException as error:
            _let_go(connection, broken=isinstance(error, OutcomeUnknown))
            raise
        connection.close()
        return result

    def _commit(self, connection: sa.Connection) -> None:
        try:
            connection.commit()
        except sa.exc.DBAPIError as error:
            if did_nothing(error):
                raise
            raise OutcomeUnknown(
                "commit_unknown",
                "the catalog did not say whether the change was committed",
                found=error_line(error, self._secrets),
                hint="anew history",
            ) from error


def _let_go(connection: sa.Connection, *, broken: bool) -> None:
    """Undo and give back. An error in that must not hide the one that led here: a lost commit would be done again."""
    with contextlib.suppress(sa.exc.SQLAlchemyError):
        if broken:
            connection.invalidate()
        connection.close()


def _engine(url: sa.URL, options: Options, timeout_seconds: float) -> sa.Engine:
    engine = sa.create_engine(url, pool_timeout=timeout_seconds, hide_parameters=True, **options.engine)
    for event, listener in options.listeners.items():
        sa.event.listen(engine, event, listener)
    return engine


def _migrate(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise Refused(
            "catalog_newer",
            "the catalog's schema is not one of this release's",
            found=str(error),
            expected="a catalog of this release or an earlier one",
            hint="run the release that made it, or a later one",
        ) from error
