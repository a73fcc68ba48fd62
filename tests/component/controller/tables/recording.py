"""Losing the catalog of the tests of tables, and a deep store that takes no files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from anew.api.models import RestoreCatalog
from anew.api.upkeep import RestoredCatalog
from anew.core.errors import Unreachable
from anew.deepstore.interface import DeepStore
from anew.segments.layout import TABLE_RECORDS
from anew.testing.builders import FABRIC
from tests.component.controller.harness import plain
from tests.component.controller.tables.tables_harness import Tables, opened_tables


@contextmanager
def without_catalog(tables: Tables, directory: Path) -> Iterator[Tables]:
    """Another controller over the same deep store, with an empty catalog and the same nodes."""
    (directory / "again").mkdir(parents=True)
    with opened_tables(directory / "again") as fresh:
        cluster, before = fresh.cluster, tables.cluster
        for _ in range(1_000):
            cluster.context.new_id()  # so that no id of the cluster before comes again
        own, cluster.log, cluster.deep = cluster.log, before.log, before.deep
        cluster.context.fabrics.update(before.context.fabrics)  # type: ignore[attr-defined]  # a dict in these tests
        cluster.clock.now_ms = before.clock.now_ms
        fresh.pass_seconds(0)
        yield fresh
        own.close()


def restore(tables: Tables, *, dry_run: bool = False, request_id: str | None = None) -> RestoredCatalog:
    """``catalog restore``; its answer."""
    return tables.cluster.client.restore_catalog(RestoreCatalog(dry_run=dry_run, request_id=request_id))


def told(answer: RestoredCatalog, name: str = "trips") -> dict[str, Any]:
    """What a restore says of a table."""
    found: dict[str, Any] = next(table for table in plain(answer)["tables"] if table["name"] == name)
    return found


def records(tables: Tables, what: str = "") -> list[str]:
    """The files of records; those of a kind (``/table/``, ``/slots/``) unless empty."""
    return [stored.path for stored in tables.cluster.deep.list(TABLE_RECORDS) if what in stored.path]


class Faulty:
    """A deep store that takes no file that a test names, and runs what a test says before each one that it takes."""

    def __init__(self, tables: Tables) -> None:
        """Take the place of the fabric's own."""
        self.inner: DeepStore = tables.cluster.deep
        self.refuses: Callable[[str], bool] = lambda _path: False
        self.before_put: Callable[[str], None] = lambda _path: None
        self.puts: list[str] = []
        fabrics = tables.cluster.context.fabrics
        fabrics[FABRIC] = replace(fabrics[FABRIC], deep_store=self)  # type: ignore[index]  # a dict in these tests

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put(self, path: str, content: bytes) -> None:
        """See `DeepStore.put`."""
        if self.refuses(path):
            raise Unreachable("deep_store_unreachable", "it does not answer")
        self.before_put(path)
        self.puts.append(path)
        self.inner.put(path, content)
