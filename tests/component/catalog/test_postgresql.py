"""The catalog on a real PostgreSQL server: the contract, locks, deadlines, lost connections, secrets."""

from __future__ import annotations

import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from anew.catalog.change import Change, PutStore
from anew.catalog.database import DatabaseCatalog
from anew.catalog.interface import Catalog
from anew.core.errors import AnewError, InvalidRequest, OutcomeUnknown, Refused, Unreachable
from anew.testing.builders import a_store
from anew.testing.catalog_contract import CatalogContract, a_change
from anew.testing.forget_contract import ForgetContract
from anew.testing.jobs_catalog_contract import JobsCatalogContract
from anew.testing.opened_catalog import OpenedCatalog
from anew.testing.pages_contract import PagesContract
from anew.testing.tables_catalog_contract import TablesCatalogContract
from anew.testing.topics_catalog_contract import TopicsCatalogContract
from tests.component.catalog.cutting import Cutter
from tests.postgresql import PASSWORD, PostgresServer

_TURN = "SELECT pg_advisory_xact_lock(7210743318442031)"
_MAKES = a_change("op-1", PutStore(a_store(), None))


class _OnPostgresql(OpenedCatalog):
    """A catalog in a database of a real server."""

    @pytest.fixture(autouse=True)
    def _database(self, postgresql_url: str) -> None:
        self._url = postgresql_url

    def open_catalog(self, directory: Path) -> Catalog:
        """A handle on the test's database."""
        return DatabaseCatalog(self._url)


class TestDatabaseCatalogOnPostgresql(_OnPostgresql, CatalogContract):
    """`CatalogContract` over a database of a real server."""


class TestForgettingOfDatabaseCatalogOnPostgresql(_OnPostgresql, ForgetContract):
    """`ForgetContract` over a database of a real server."""


class TestPagesOfDatabaseCatalogOnPostgresql(_OnPostgresql, PagesContract):
    """`PagesContract` over a database of a real server."""


class TestJobsOfDatabaseCatalogOnPostgresql(_OnPostgresql, JobsCatalogContract):
    """`JobsCatalogContract` over a database of a real server."""


class TestTopicsOfDatabaseCatalogOnPostgresql(_OnPostgresql, TopicsCatalogContract):
    """`TopicsCatalogContract` over a database of a real server."""


class TestTablesOfDatabaseCatalogOnPostgresql(_OnPostgresql, TablesCatalogContract):
    """`TablesCatalogContract` over a database of a real server."""


@contextmanager
def _opened(url: str, timeout_seconds: float = 10.0) -> Iterator[DatabaseCatalog]:
    catalog = DatabaseCatalog(url, timeout_seconds)
    try:
        yield catalog
    finally:
        catalog.close()


def _unreachable(act: Callable[[], object]) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        act()
    assert caught.value.code == "catalog_unreachable"
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "lock", [_TURN, "LOCK TABLE stores IN ACCESS EXCLUSIVE MODE", "SELECT * FROM stores FOR UPDATE"]
)
def test_a_locked_catalog_says_so_and_changes_nothing(postgresql_url: str, lock: str) -> None:
    """A turn, a table or a row that somebody else holds: an error within the deadline, no change; then it goes on."""
    with _opened(postgresql_url, 0.5) as catalog:
        catalog.commit(_MAKES)
        change = a_change("op-2", PutStore(a_store(next_version=2), 1))
        with psycopg.connect(postgresql_url) as other:
            other.execute(lock)
            began = time.monotonic()
            error = _unreachable(lambda: catalog.commit(change))
            assert time.monotonic() - began < 5
            assert "locked" in error.message
            other.rollback()
            assert [operation.id for operation in catalog.history(None, 9)] == ["op-1"]
        assert catalog.commit(change)
        assert catalog.next_version("flights") == 2


def test_a_deadlock_is_tried_again(postgresql_url: str) -> None:
    """A transaction that the server ends to break a deadlock is done again by the catalog, unseen by its caller."""
    with _opened(postgresql_url) as catalog, psycopg.connect(postgresql_url) as other, ThreadPoolExecutor(1) as pool:
        catalog.commit(_MAKES)
        other.execute("SET deadlock_timeout = '60s'")  # so that it is the catalog that is ended
        other.execute("SELECT * FROM stores FOR UPDATE")
        waiting = pool.submit(catalog.commit, a_change("op-2", PutStore(a_store(next_version=2), 1)))
        with psycopg.connect(postgresql_url, autocommit=True) as looker:
            while not looker.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone():
                assert not waiting.done()
        other.execute(_TURN)
        other.rollback()
        assert waiting.result(30)
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        deadline = time.monotonic() + 30
        while other.execute(deadlocks).fetchone() == (0,):
            assert time.monotonic() < deadline, "the server saw no deadlock"
            other.rollback()
        assert [operation.id for operation in catalog.history(None, 9)] == ["op-2", "op-1"]


def test_a_stopped_server_is_unreachable_in_time(postgresql: PostgresServer) -> None:
    """A server that is there but does not answer holds nobody up for longer than the deadlines; later it goes on."""
    with _opened(postgresql.new_database(), 0.5) as catalog:
        assert catalog.revision() == 0
        postmaster = psutil.Process(postgresql.pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            _unreachable(lambda: catalog.commit(_MAKES))
            assert time.monotonic() - began < 15
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)
        assert catalog.stores() == []
        assert catalog.commit(_MAKES)


def test_a_client_that_stops_in_its_turn_is_put_out(postgresql_url: str) -> None:
    """The server ends the transaction of a client that holds the turn and does nothing, so that others get theirs."""
    with _opened(postgresql_url, 2.0) as frozen, _opened(postgresql_url, 10.0) as other:
        connection = frozen._database._writes.connect()
        connection.begin()
        frozen._database._options.take_turn(connection)
        assert other.commit(_MAKES)
        connection.invalidate()
        connection.close()


def test_connections_that_went_stale_are_replaced(postgresql_url: str) -> None:
    """When the server has ended every connection, the next read and the next change work, each on a fresh one."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
    with _opened(postgresql_url) as catalog, psycopg.connect(postgresql_url, autocommit=True) as admin:
        admin.execute(ends)
        assert catalog.stores() == []
        admin.execute(ends)
        assert catalog.commit(_MAKES)


@pytest.fixture
def cut(postgresql: PostgresServer) -> Iterator[tuple[Cutter, str, str]]:
    """A cutter, the URL of an empty database through it, and straight."""
    url = postgresql.new_database()
    with Cutter(postgresql.port) as made:
        yield made, url.replace(f":{postgresql.port}/", f":{made.port}/"), url


@pytest.mark.case("rules:R22")
def test_a_commit_whose_answer_was_lost_is_looked_up(cut: tuple[Cutter, str, str]) -> None:
    """The connection ends after the server has the commit: the operation id says that it is done, once."""
    line, url, straight = cut
    with _opened(url) as catalog, _opened(straight) as other:
        line.cut_next("after", close=False)
        assert catalog.commit(_MAKES)
        assert line.answered.is_set()
        assert [operation.id for operation in other.history(None, 9)] == ["op-1"]
        assert other.revision() == 1


def test_a_commit_that_did_not_arrive_is_not_done(cut: tuple[Cutter, str, str]) -> None:
    """The connection ends before the server has the commit: unreachable, nothing changed, and it can be done again."""
    line, url, straight = cut
    with _opened(url) as catalog, _opened(straight) as other:
        line.cut_next("before", close=False)
        error = _unreachable(lambda: catalog.commit(_MAKES))
        assert "op-1" in str(error.found)
        assert (other.stores(), other.revision()) == ([], 0)
        assert catalog.commit(_MAKES)


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True)])
def test_what_nobody_can_say_is_unknown(cut: tuple[Cutter, str, str], when: str, done: bool) -> None:  # noqa: FBT001
    """When the catalog stays away after the cut the outcome is unknown; repeating the operation later settles it."""
    line, url, straight = cut
    with _opened(url, 1.0) as catalog, _opened(straight) as other:
        line.cut_next(when, close=True)
        with pytest.raises(OutcomeUnknown) as caught:
            catalog.commit(_MAKES)
        assert (caught.value.code, "op-1" in str(caught.value.hint)) == ("commit_unknown", True)
        assert other.commit(_MAKES) is not done
        assert [operation.id for operation in other.history(None, 9)] == ["op-1"]


def test_more_threads_than_connections_wait_for_one(postgresql_url: str) -> None:
    """A catalog opens at most sixteen connections, and forty threads at once all have their change."""
    with _opened(postgresql_url) as catalog, psycopg.connect(postgresql_url, autocommit=True) as admin:
        with ThreadPoolExecutor(40) as pool:
            numbers = list(pool.map(lambda _: catalog.next_number("schemas"), range(200)))
        assert sorted(numbers) == list(range(1, 201))
        open_now = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'anew'"
        ).fetchone()
        assert open_now is not None
        assert 1 < open_now[0] <= 16


def _wrong(url: str, postgresql: PostgresServer, what: str) -> str:
    replaced = {
        "password": url.replace("s3cret", "wr0ng"),
        "database": url.rsplit("/", 1)[0] + "/missing",
        "port": url.replace(f":{postgresql.port}/", ":1/"),
        "host": url.replace("127.0.0.1", "nowhere.invalid"),
    }
    return replaced[what]


@pytest.mark.parametrize("what", ["password", "database", "port", "host"])
def test_no_error_shows_the_password(
    postgresql: PostgresServer, postgresql_url: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong with the URL, the error says what was found and neither it nor a log names the password."""
    caplog.set_level(logging.DEBUG)
    wrong = _wrong(postgresql_url, postgresql, what)
    with pytest.raises(Unreachable) as caught:
        DatabaseCatalog(wrong, 2.0)
    error: BaseException | None = caught.value
    assert caught.value.found
    while error is not None:
        assert "s3cret" not in f"{error!r}{error}"
        assert "wr0ng" not in f"{error!r}{error}"
        error = error.__cause__ or error.__context__
    assert "s3cret" not in caplog.text
    assert "wr0ng" not in caplog.text


def test_a_user_who_may_not_change_anything_is_told(postgresql: PostgresServer, postgresql_url: str) -> None:
    """A user without rights on the tables gets an error that says so, and what to do."""
    with _opened(postgresql_url) as catalog:
        catalog.commit(_MAKES)
    database = postgresql_url.rsplit("/", 1)[1]
    postgresql.sql(database, f"CREATE ROLE guest_{database} LOGIN PASSWORD 'guest'")
    guest = f"postgresql://guest_{database}:guest@127.0.0.1:{postgresql.port}/{database}"
    error = _unreachable(lambda: DatabaseCatalog(guest))
    assert "may not" in error.message


def test_a_user_with_rights_on_the_rows_alone_is_enough(postgresql: PostgresServer, postgresql_url: str) -> None:
    """Once the schema is up to date, reading and writing rows is all that the controller's user has to be allowed."""
    with _opened(postgresql_url) as catalog:
        catalog.commit(_MAKES)
    database = postgresql_url.rsplit("/", 1)[1]
    user = f"app_{database}"
    postgresql.sql(
        database,
        f"CREATE ROLE {user} LOGIN PASSWORD 'app'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}",
    )
    with _opened(f"postgresql://{user}:app@127.0.0.1:{postgresql.port}/{database}") as catalog:
        assert catalog.commit(a_change("op-2", PutStore(a_store(next_version=2), 1)))
        assert catalog.next_number("schemas") == 1


def test_text_that_the_database_cannot_hold_is_refused(postgresql_url: str) -> None:
    """A NUL, or a name longer than its column, is a wrong request and changes nothing."""
    with _opened(postgresql_url) as catalog:
        for actor in ("nul \0", "long " * 100):
            operation = a_change("op-1").operation
            change = Change(type(operation)("op-1", 1, actor, "change", "flights"), ())
            with pytest.raises(InvalidRequest) as caught:
                catalog.commit(change)
            assert caught.value.code == "bad_text"
        assert (catalog.history(None, 9), catalog.revision()) == ([], 0)


def test_a_refusal_keeps_its_json_form(postgresql_url: str) -> None:
    """What the server says reaches the caller as one line that JSON can carry."""
    with _opened(postgresql_url) as catalog:
        catalog.commit(_MAKES)
        error: AnewError
        with pytest.raises(Refused) as caught:
            catalog.commit(a_change("op-2", PutStore(a_store(name="other", uid=a_store().uid), None)))
        error = caught.value
    assert "\n" not in json.loads(json.dumps(error.to_json()))["found"]
