"""What a database's errors mean here: refused, not reachable, damaged; and which of them may be tried again."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from anew.core.errors import AnewError, Failed, InvalidRequest, Refused, Unreachable

DatabaseFailure = (sa.exc.DatabaseError, sa.exc.InterfaceError, sa.exc.TimeoutError)
"""What reading and writing may raise; everything else is a mistake in this program."""

_AGAIN = frozenset({"40001", "40P01"})
"""SQLSTATEs of transactions that lost against another one and did nothing: serialization failure, deadlock."""

_CORRUPT = ("XX001", "XX002")

_UNREACHABLE = {
    "55P03": ("the catalog is locked by somebody else", "who holds a lock? SELECT * FROM pg_locks; then try again"),
    "57014": ("the catalog did not answer in time", "is the server busy? raise timeout_seconds or look at its load"),
    "53300": ("the catalog's server has no connection left", "raise max_connections, or run fewer controllers"),
    "53100": ("the catalog's disk is full", "make room on the server"),
    "25006": ("the catalog's server takes no writes", "it is a standby: name the primary in ANEW_CATALOG"),
    "42501": ("the catalog's user may not do that", "grant it: docs/operations.md has what the user needs"),
    "3D000": ("the catalog's database does not exist", "make it: createdb NAME"),
    "28P01": ("the catalog's server does not accept the user", "look at user and password in ANEW_CATALOG"),
}


def state_of(error: BaseException) -> str | None:
    """The SQLSTATE of an error; None where the database has none or did not say."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state if isinstance(state, str) else None


def did_nothing(error: BaseException) -> bool:
    """Whether the database says itself that the transaction was undone because of others: try it again."""
    return state_of(error) in _AGAIN


def translated(error: BaseException, secrets: Sequence[str]) -> AnewError:
    """The error in this project's words, without any of the secrets."""
    found = error_line(error, secrets)
    if isinstance(error, sa.exc.IntegrityError):
        return Refused(
            "revision_conflict", "somebody else made the same thing meanwhile", found=found, hint="load and try again"
        )
    if isinstance(error, sa.exc.DataError):
        return InvalidRequest(
            "bad_text", "the catalog cannot hold this text", found=found, expected="shorter text without NUL"
        )
    if isinstance(error, sa.exc.TimeoutError):
        return _unreachable("all connections to the catalog are in use", found, "are there fewer requests later?")
    if "database is locked" in found:
        return _unreachable("the catalog is locked by somebody else", found, "another program holds a lock on the file")
    state = state_of(error)
    if state in _UNREACHABLE:
        message, hint = _UNREACHABLE[state]
        return _unreachable(message, found, hint)
    connecting = isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
    if state not in _CORRUPT and (connecting or getattr(error, "connection_invalidated", False)):
        hint = "does the server run, is the disk full, or does another program hold a lock?"
        return _unreachable("the catalog does not answer", found, hint)
    return Failed(
        "catalog_corrupt",
        "the catalog's database is damaged, or not one",
        found=found,
        expected="an intact database",
        hint="restore a copy of the catalog, or make it again: anew catalog restore",
    )


def error_line(error: BaseException, secrets: Sequence[str]) -> str:
    """The first line of what the database said."""
    text = str(getattr(error, "orig", None) or error).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    for secret in secrets:
        line = line.replace(secret, "***")
    return line


def _unreachable(message: str, found: str, hint: str) -> Unreachable:
    expected = "a database that answers within the timeout"
    return Unreachable("catalog_unreachable", message, found=found, expected=expected, hint=hint)
