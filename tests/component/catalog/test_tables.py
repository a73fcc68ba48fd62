"""What is so of tables in a database alone: a catalog with tables is not empty, and pages are read one by one."""

from __future__ import annotations

from contextlib import closing

import pytest
import sqlalchemy as sa

from anew.catalog import segmentrows
from anew.catalog.change import CheckEmpty, DropSegment, PutRestoredTable, PutSegment, PutTable, PutTopic
from anew.catalog.database import DatabaseCatalog
from anew.catalog.url import parse_catalog_url
from anew.core.errors import Refused
from anew.segments.record import SegmentList
from anew.testing.builders import a_topic
from anew.testing.catalog_contract import a_change
from anew.testing.clock import NOON_MS
from anew.testing.table_builders import a_segment, a_table


@pytest.mark.parametrize("deleted_at_ms", [None, NOON_MS], ids=["live", "deleted"])
def test_a_catalog_with_a_table_is_not_empty(catalog_url: str, deleted_at_ms: int | None) -> None:
    """What a lost catalog is made again from goes only into one without tables, live or deleted."""
    with closing(DatabaseCatalog(catalog_url)) as catalog:
        assert catalog.commit(a_change("op-1", CheckEmpty()))
        catalog.commit(a_change("op-2", PutTable(a_table(), None)))
        catalog.commit(a_change("op-3", PutTable(a_table().model_copy(update={"deleted_at_ms": deleted_at_ms}), 1)))
        with pytest.raises(Refused) as caught:
            catalog.commit(a_change("op-4", CheckEmpty(), PutTable(a_table("cabs"), None)))
        assert (caught.value.code, "tables" in str(caught.value.found)) == ("catalog_not_empty", True)
        assert catalog.table("cabs") is None


def test_a_catalog_with_a_topic_is_not_empty(catalog_url: str) -> None:
    """Topics of our own count too."""
    with closing(DatabaseCatalog(catalog_url)) as catalog:
        catalog.commit(a_change("op-1", PutTopic(a_topic(), None)))
        with pytest.raises(Refused) as caught:
            catalog.commit(a_change("op-2", CheckEmpty()))
        assert (caught.value.code, "1 topics" in str(caught.value.found)) == ("catalog_not_empty", True)


def test_a_change_between_two_pages_loses_no_segment(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody reads page by page others may write: what was stale throughout is seen once."""
    monkeypatch.setattr(segmentrows, "PAGE_ROWS", 2)
    with closing(DatabaseCatalog(catalog_url)) as catalog:
        names = [f"s{number}" for number in range(6)]
        catalog.commit(a_change("op-1", *(PutSegment(a_segment(name), None) for name in names)))
        found = catalog.stale_segments("uid-trips", "t1-a")
        first = next(found).name
        changes = [PutSegment(a_segment("s0a"), None), PutSegment(a_segment("s9"), None)]
        catalog.commit(a_change("op-2", *changes, PutSegment(a_segment("s3", "t1-a"), 1)))
        seen = [first, *(stale.name for stale in found)]
        assert seen == ["s0", "s1", "s2", "s4", "s5", "s9"]


@pytest.mark.case("rules:R16")
def test_a_restored_table_goes_on_above_what_was_used(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table, segments and slots, also a slot whose segments were all dropped, begin at the revision that is said."""
    monkeypatch.setattr(segmentrows, "_INSERTED_AT_ONCE", 2)
    segments = [a_segment(f"s{number}", slot=3) for number in range(5)]
    slots = {3: SegmentList.of(segment.model_dump_json() for segment in segments), 8: SegmentList.of(())}
    table = a_table().model_copy(update={"revision": 1_000})
    with closing(DatabaseCatalog(catalog_url)) as catalog:
        catalog.commit(a_change("op-1", CheckEmpty(), PutRestoredTable(table, slots)))
        assert catalog.table("trips") == table
        assert catalog.segments(table.uid) == [each.model_copy(update={"revision": 1_000}) for each in segments]
        found = catalog.table_snapshot(table.uid, {})
        assert found is not None
        assert found.slots == {3: 1_000, 8: 1_000}
        catalog.commit(a_change("op-2", PutTable(table, 1_000), DropSegment(table.uid, "s0", 1_000)))
        catalog.commit(a_change("op-3", PutSegment(a_segment("new", slot=8), None)))
        after = catalog.table_snapshot(table.uid, {})
        assert after is not None
        assert after.slots == {3: 1_001, 8: 1_001}


def test_a_deleted_table_is_restored_as_deleted(catalog_url: str) -> None:
    """Its name is free, and it is known by its identity."""
    gone = a_table().model_copy(update={"revision": 1_000, "deleted_at_ms": NOON_MS})
    with closing(DatabaseCatalog(catalog_url)) as catalog:
        catalog.commit(a_change("op-1", PutRestoredTable(gone, {})))
        assert (catalog.table("trips"), catalog.deleted_tables()) == (None, [gone])
        new = a_table().model_copy(update={"uid": "uid-2"})
        assert catalog.commit(a_change("op-2", PutTable(new, None)))


def test_a_slot_is_found_without_reading_the_others(catalog_url: str) -> None:
    """However many segments a table has, those of a slot come by an index."""
    with closing(DatabaseCatalog(catalog_url)) as catalog:
        catalog.commit(a_change("op-1", *(PutSegment(a_segment(f"s{n}", slot=n % 64), None) for n in range(640))))
    engine = sa.create_engine(parse_catalog_url(catalog_url))
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            connection.execute(sa.text("ANALYZE segments"))
        text = str(segmentrows.documents_of("uid-trips", 7).compile(engine, compile_kwargs={"literal_binds": True}))
        plan = " ".join(str(row) for row in connection.execute(sa.text(f"{explain} {text}")))
    engine.dispose()
    assert "ix_segments_slot" in plan, plan
