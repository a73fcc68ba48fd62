"""What a database says, in this project's words: which error it is, in one line, without secrets."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import errors

from anew.catalog.failures import did_nothing, error_line, translated
from anew.core.errors import Failed, InvalidRequest, Refused, Unreachable


def _error(orig: psycopg.Error, kind: type[sa.exc.DBAPIError] = sa.exc.OperationalError) -> sa.exc.DBAPIError:
    return kind("SELECT 1", {}, orig)


def test_what_is_said_is_one_line_without_secrets() -> None:
    """Should a server or a library ever repeat a password, it does not get any further."""
    error = _error(psycopg.OperationalError('no host "s3cret@db"\nsecond line'))
    assert error_line(error, ("s3cret",)) == 'no host "***@db"'
    assert "s3cret" not in str(translated(error, ("s3cret",)))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_error(errors.UniqueViolation(), sa.exc.IntegrityError), Refused),
        (_error(errors.StringDataRightTruncation(), sa.exc.DataError), InvalidRequest),
        (_error(errors.LockNotAvailable()), Unreachable),
        (_error(errors.TooManyConnections()), Unreachable),
        (_error(errors.ReadOnlySqlTransaction(), sa.exc.InternalError), Unreachable),
        (_error(errors.InsufficientPrivilege(), sa.exc.ProgrammingError), Unreachable),
        (_error(errors.DataCorrupted(), sa.exc.OperationalError), Failed),
        (_error(errors.UndefinedTable(), sa.exc.ProgrammingError), Failed),
        (sa.exc.TimeoutError("pool"), Unreachable),
    ],
)
def test_each_kind_of_error_says_what_became_of_the_request(error: Exception, expected: type[Exception]) -> None:
    """Refused and unreachable changed nothing; only a damaged database is a failure."""
    assert type(translated(error, ())) is expected


def test_only_what_lost_against_others_is_tried_again() -> None:
    """A deadlock and a serialization failure are undone by the server itself; a timeout is not repeated."""
    assert did_nothing(_error(errors.DeadlockDetected()))
    assert did_nothing(_error(errors.SerializationFailure()))
    assert not did_nothing(_error(errors.QueryCanceled()))
