"""What is so of tables in a database alone: a catalog with tables is not empty, and pages are read one by one."""

from __future__ import annotations

from contextlib import closing

import pytest

from anew.catalog import segmentrows
from anew.catalog.change import CheckEmpty, PutSegment, PutTable
from anew.catalog.database import DatabaseCatalog
from anew.core.errors import Refused
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
