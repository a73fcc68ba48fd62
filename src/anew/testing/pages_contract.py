"""What every catalog promises of lists that are read in pages, as tests; see `anew.catalog.interface`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from anew.catalog.change import (
    Change,
    NodeRecord,
    Operation,
    Put,
    PutPastVersions,
    PutRebuild,
    PutReclaim,
    PutSegment,
    PutStore,
    PutTable,
    Reclaim,
)
from anew.catalog.interface import Catalog, TimedKey
from anew.core.rebuild import RebuildStatus
from anew.testing.builders import a_rebuild, a_store, a_version
from anew.testing.clock import NOON_MS
from anew.testing.opened_catalog import OpenedCatalog
from anew.testing.table_builders import a_segment, a_table

T = TypeVar("T")
K = TypeVar("K")
_LIMIT = 3


def _change(operation_id: str, *puts: Put, subject: str = "flights") -> Change:
    return Change(Operation(operation_id, NOON_MS, "somebody", "change", subject, {}), puts)


def _walked(page_after: Callable[[K], Sequence[T]], first: K, key: Callable[[T], K]) -> list[T]:
    """The items of all pages; each but the last is full, and what lies behind the last one is nothing."""
    found, after = list[T](), first
    while page := page_after(after):
        assert len(page) <= _LIMIT
        found += page
        after = key(page[-1])
    return found


class PagesContract(OpenedCatalog):
    """Inherit and provide `open_catalog`."""

    def test_stores_come_in_pages_by_name(self, catalog: Catalog) -> None:
        """All live ones, each once, whatever order they were made in; none that was deleted, none behind the last."""
        names = [f"s{number:02d}" for number in (5, 1, 7, 3, 0, 6, 2, 4)]
        catalog.commit(_change("op-1", *(PutStore(a_store(uid=f"uid-{name}", name=name), None) for name in names)))
        gone = a_store(uid="uid-s03", name="s03", deleted_at_ms=NOON_MS)
        catalog.commit(_change("op-2", PutStore(gone, 1)))
        found = _walked(lambda after: catalog.stores_page(after, _LIMIT), "", lambda store: store.name)
        assert found == catalog.stores()
        assert [store.name for store in found] == ["s00", "s01", "s02", "s04", "s05", "s06", "s07"]
        assert [store.name for store in catalog.stores_page("s03", 1)] == ["s04"]
        assert catalog.stores_page("s07", _LIMIT) == []

    def test_tables_come_in_pages_by_name(self, catalog: Catalog) -> None:
        """All live ones, each once, at the revisions that they have; none that was deleted."""
        names = ["t4", "t2", "t0", "t3", "t1"]
        made = [a_table(name).model_copy(update={"uid": f"uid-{name}"}) for name in names]
        catalog.commit(_change("op-1", *(PutTable(table, None) for table in made)))
        gone = made[1].model_copy(update={"deleted_at_ms": NOON_MS})
        catalog.commit(_change("op-2", PutTable(gone, 1)))
        found = _walked(lambda after: catalog.tables_page(after, _LIMIT), "", lambda table: table.name)
        assert found == catalog.tables()
        assert [table.name for table in found] == ["t0", "t1", "t3", "t4"]

    @pytest.mark.case("tables:A1")
    def test_segments_come_in_pages_by_name(self, catalog: Catalog) -> None:
        """Those of one table; of the stale ones, whose hash is missing or another, pages are as full as of all."""
        hashes = [None, "t1-wanted", "t1-other"]
        segments = [a_segment(f"s{number:02d}", hashes[number % 3], slot=number) for number in range(10)]
        other = a_segment("s00x").model_copy(update={"table_uid": "uid-cabs"})
        catalog.commit(_change("op-1", *(PutSegment(segment, None) for segment in (*reversed(segments), other))))
        uid = segments[0].table_uid
        found = _walked(lambda after: catalog.segments_page(uid, after, _LIMIT), "", lambda segment: segment.name)
        assert found == catalog.segments(uid)
        assert len(found) == 10
        stale = _walked(
            lambda after: catalog.segments_page(uid, after, _LIMIT, other_than="t1-wanted"),
            "",
            lambda segment: segment.name,
        )
        assert [segment.name for segment in stale] == [s.name for n, s in enumerate(segments) if n % 3 != 1]
        assert len(catalog.segments_page(uid, "", _LIMIT, other_than="t1-wanted")) == _LIMIT
        assert catalog.segments_page("uid-none", "", _LIMIT) == []

    def test_nodes_come_in_pages_by_id(self, catalog: Catalog) -> None:
        """All but those that were removed."""
        for number in (3, 1, 4, 0, 2):
            catalog.put_node(NodeRecord(f"node-{number}", "dc-0", NOON_MS + number, "{}", removed=number == 1))
        found = _walked(lambda after: catalog.nodes_page(after, _LIMIT), "", lambda node: node.id)
        assert found == catalog.nodes()
        assert [node.id for node in found] == ["node-0", "node-2", "node-3", "node-4"]

    def test_reclaims_come_in_pages_by_time(self, catalog: Catalog) -> None:
        """By the end of their grace and id, also where many end at one time."""
        made = [Reclaim(f"r-{n}", "tree", "dc-0", "a", NOON_MS + n // 4, "why") for n in (7, 2, 5, 0, 3, 6, 1, 4)]
        catalog.commit(_change("op-1", *(PutReclaim(reclaim) for reclaim in made)))
        found = _walked(
            lambda after: catalog.reclaims_page(after, _LIMIT), None, lambda r: TimedKey(r.not_before_ms, r.id)
        )
        assert found == catalog.reclaims(None)
        assert [reclaim.id for reclaim in found] == [f"r-{n}" for n in range(8)]

    def test_rebuilds_come_in_pages_newest_first(self, catalog: Catalog) -> None:
        """All, or those of one subject, or those that run, also where many began at one time."""
        flights, people = a_store(), a_store(uid="uid-people", name="people")
        made = [
            a_rebuild(
                people if number % 2 else flights,
                f"r-{number}",
                created_at_ms=NOON_MS + number // 4,
                status=RebuildStatus.FAILED if number < 3 else RebuildStatus.RUNNING,
            )
            for number in range(10)
        ]
        catalog.commit(_change("op-1", *(PutRebuild(rebuild, None) for rebuild in made)))
        for uid, running_only in ((None, False), (flights.uid, False), (None, True), (people.uid, True)):
            found = _walked(
                lambda after, uid=uid, running_only=running_only: catalog.rebuilds(  # type: ignore[misc]  # mypy knows no type of a lambda's default
                    subject_uid=uid, running_only=running_only, limit=_LIMIT, after=after
                ),
                None,
                lambda rebuild: TimedKey(rebuild.created_at_ms, rebuild.id),
            )
            assert found == catalog.rebuilds(subject_uid=uid, running_only=running_only)
            assert found
        newest = catalog.rebuilds(subject_uid=None, running_only=False, limit=3)
        assert [rebuild.id for rebuild in newest] == ["r-8", "r-9", "r-4"]

    def test_history_comes_in_pages_newest_first(self, catalog: Catalog) -> None:
        """All, or that of one subject, each operation once; behind one that is not there is nothing."""
        for number in range(8):
            catalog.commit(_change(f"op-{number}", subject=f"s-{number % 2}"))
        for subject in (None, "s-1"):
            found = _walked(
                lambda after, subject=subject: catalog.history(subject, _LIMIT, after=after),  # type: ignore[misc]  # mypy knows no type of a lambda's default
                None,
                lambda operation: operation.id,
            )
            assert found == catalog.history(subject, 100)
            assert len(found) == (8 if subject is None else 4)
        assert [operation.id for operation in catalog.history("s-0", 1, after="op-5")] == ["op-4"]
        assert catalog.history(None, _LIMIT, after="op-99") == []

    def test_past_versions_come_in_pages(self, catalog: Catalog) -> None:
        """The greatest numbers first, those below a number."""
        store = a_store()
        versions = tuple(a_version(number) for number in range(1, 9))
        catalog.commit(_change("op-1", PutStore(store, None), PutPastVersions(store.uid, versions, NOON_MS)))
        found = _walked(
            lambda below: catalog.past_versions(store.uid, _LIMIT, below=below), None, lambda version: version.number
        )
        assert [version.number for version in found] == list(range(8, 0, -1))
        assert catalog.past_versions(store.uid, _LIMIT, number=5, below=5) == []
