"""The catalog on SQLite keeps the contract of catalogs, and says so when it cannot answer."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from anew.catalog.change import PutStore
from anew.catalog.database import DatabaseCatalog
from anew.catalog.interface import Catalog
from anew.core.errors import Failed, Unreachable
from anew.testing.builders import a_store
from anew.testing.catalog_contract import CatalogContract, a_change
from anew.testing.forget_contract import ForgetContract
from anew.testing.jobs_catalog_contract import JobsCatalogContract
from anew.testing.opened_catalog import OpenedCatalog
from anew.testing.pages_contract import PagesContract
from anew.testing.tables_catalog_contract import TablesCatalogContract
from anew.testing.topics_catalog_contract import TopicsCatalogContract


class _OnSqlite(OpenedCatalog):
    """A catalog in an SQLite file."""

    def open_catalog(self, directory: Path) -> Catalog:
        """A handle on the file in a directory."""
        return DatabaseCatalog(f"sqlite:///{directory}/catalog.sqlite")


class TestDatabaseCatalog(_OnSqlite, CatalogContract):
    """`CatalogContract` over an SQLite file."""


class TestForgettingOfDatabaseCatalog(_OnSqlite, ForgetContract):
    """`ForgetContract` over an SQLite file."""


class TestPagesOfDatabaseCatalog(_OnSqlite, PagesContract):
    """`PagesContract` over an SQLite file."""


class TestJobsOfDatabaseCatalog(_OnSqlite, JobsCatalogContract):
    """`JobsCatalogContract` over an SQLite file."""


class TestTopicsOfDatabaseCatalog(_OnSqlite, TopicsCatalogContract):
    """`TopicsCatalogContract` over an SQLite file."""


class TestTablesOfDatabaseCatalog(_OnSqlite, TablesCatalogContract):
    """`TablesCatalogContract` over an SQLite file."""


def test_a_locked_database_is_unreachable_and_unchanged(tmp_path: Path) -> None:
    """While another program holds the write lock a commit ends with catalog_unreachable; reads go on."""
    path = tmp_path / "catalog.sqlite"
    catalog = DatabaseCatalog(f"sqlite:///{path}", timeout_seconds=0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable) as caught:
            catalog.commit(a_change("op-1", PutStore(a_store(), None)))
        assert caught.value.code == "catalog_unreachable"
        assert catalog.stores() == []
        other.execute("ROLLBACK")
    assert catalog.commit(a_change("op-1", PutStore(a_store(), None)))
    catalog.close()


_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_another_process_that_holds_the_file_delays_nobody_beyond_the_deadline(tmp_path: Path) -> None:
    """A lock held for longer than the deadline by another process: an error in time, nothing changed; then, also when
    that process was killed, the same change is made.
    """
    path = tmp_path / "catalog.sqlite"
    with closing(DatabaseCatalog(f"sqlite:///{path}", timeout_seconds=0.5)) as catalog:
        change = a_change("op-1", PutStore(a_store(), None))
        command = [sys.executable, "-c", _HOLD, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            began = time.monotonic()
            with pytest.raises(Unreachable) as caught:
                catalog.commit(change)
            assert time.monotonic() - began < 5
            assert "locked" in caught.value.message
            holder.kill()
        assert (catalog.stores(), catalog.revision()) == ([], 0)
        assert catalog.commit(change)


def test_a_database_that_cannot_be_opened_is_unreachable(tmp_path: Path) -> None:
    """A path where no file can be is catalog_unreachable."""
    with pytest.raises(Unreachable) as caught:
        DatabaseCatalog(f"sqlite:///{tmp_path}/missing/catalog.sqlite")
    assert caught.value.code == "catalog_unreachable"


def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    """Bytes that are no database are catalog_corrupt, and stay as they are."""
    path = tmp_path / "catalog.sqlite"
    path.write_bytes(b"something else " * 100)
    with pytest.raises(Failed) as caught:
        DatabaseCatalog(f"sqlite:///{path}")
    assert caught.value.code == "catalog_corrupt"
    assert path.read_bytes() == b"something else " * 100


def test_a_fresh_catalog_may_be_opened_by_several_at_once(tmp_path: Path) -> None:
    """Handles that open a new file at the same moment all find its tables."""

    def revision(_: int) -> int:
        with closing(DatabaseCatalog(f"sqlite:///{tmp_path}/catalog.sqlite")) as catalog:
            return catalog.revision()

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(revision, range(6))) == [0] * 6
