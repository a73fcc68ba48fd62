"""What every catalog promises of tables, segments and their rebuilds, as tests; see `anew.catalog.interface`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anew.catalog import segmentrows
from anew.catalog.change import (
    DropSegment,
    Put,
    PutConfig,
    PutDone,
    PutFlag,
    PutRebuild,
    PutSegment,
    PutTable,
    TableSize,
)
from anew.catalog.interface import Catalog
from anew.core.errors import Refused
from anew.core.tables.rebuild import Done, SegmentOutcome
from anew.core.tables.segment import Failure, stale_segment
from anew.testing.catalog_contract import a_change
from anew.testing.clock import NOON_MS
from anew.testing.opened_catalog import OpenedCatalog
from anew.testing.table_builders import a_build, a_segment, a_segment_config, a_table, a_table_plan, a_table_rebuild

_UID = "uid-trips"


def _refused(code: str, act: Callable[[], object]) -> None:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code


def _conflicts(catalog: Catalog, put: Put) -> None:
    _refused("revision_conflict", lambda: catalog.commit(a_change("op-refused", put)))


class TablesCatalogContract(OpenedCatalog):
    """The contract; ``catalog`` is an empty catalog."""

    # -- tables ------------------------------------------------------------------------------------------------------

    def test_a_table_comes_back_whole(self, catalog: Catalog, tmp_path: Path) -> None:
        """Everything in a table survives, for other handles too, with its first revision; listing goes by name."""
        table = a_table(sort="city", bloom={"id": 0.1}, tags=["a"]).model_copy(
            update={"assignment": {0: ("node-1",), 63: ("node-2", "node-1")}, "reloads": {"*": 2}, "made": 7}
        )
        catalog.commit(a_change("op-1", PutTable(table, None), subject="trips"))
        catalog.commit(a_change("op-2", PutTable(a_table("cabs"), None)))
        expected = table.model_copy(update={"revision": 1})
        other = self.open_catalog(tmp_path)
        for handle in (catalog, other):
            assert handle.table("trips") == expected
            assert handle.table_by_uid(table.uid) == expected
            assert [found.name for found in handle.tables()] == ["cabs", "trips"]
        assert (catalog.table("other"), catalog.table_by_uid("other"), catalog.deleted_tables()) == (None, None, [])
        other.close()

    @pytest.mark.case("rules:R22")
    def test_a_table_changes_by_compare_and_swap(self, catalog: Catalog) -> None:
        """Of two changes from one revision the first wins; the second leaves nothing, no line of history either."""
        catalog.commit(a_change("op-1", PutTable(a_table(), None)))
        catalog.commit(a_change("op-2", PutTable(a_table(sort="id"), 1)))
        for fence in (1, 3):
            _conflicts(catalog, PutTable(a_table(), fence))
        found = catalog.table("trips")
        assert found is not None
        assert (found.revision, found.settings.sort) == (2, ("id",))
        assert [operation.id for operation in catalog.history(None, 9)] == ["op-2", "op-1"]

    def test_a_taken_name_is_refused(self, catalog: Catalog) -> None:
        """Two live tables cannot have one name, nor two tables one identity."""
        catalog.commit(a_change("op-1", PutTable(a_table(), None)))
        again = a_table().model_copy(update={"uid": "uid-2"})
        _refused("table_exists", lambda: catalog.commit(a_change("op-2", PutTable(again, None))))
        renamed = a_table("cabs").model_copy(update={"uid": _UID})
        _refused("revision_conflict", lambda: catalog.commit(a_change("op-3", PutTable(renamed, None))))
        assert ([table.uid for table in catalog.tables()], len(catalog.history(None, 9))) == ([_UID], 1)

    @pytest.mark.case("rules:R16")
    def test_a_deleted_table_s_name_comes_back(self, catalog: Catalog) -> None:
        """A deleted table is found by its identity alone; another one may take its name and shares nothing."""
        catalog.commit(a_change("op-1", PutTable(a_table(), None), PutSegment(a_segment(), None)))
        gone = a_table().model_copy(update={"deleted_at_ms": NOON_MS})
        catalog.commit(a_change("op-2", PutTable(gone, 1)))
        expected = gone.model_copy(update={"revision": 2})
        assert (catalog.table("trips"), catalog.tables()) == (None, [])
        assert (catalog.deleted_tables(), catalog.table_by_uid(_UID)) == ([expected], expected)
        new = a_table().model_copy(update={"uid": "uid-2"})
        catalog.commit(a_change("op-3", PutTable(new, None)))
        found = catalog.table("trips")
        assert found is not None
        assert (found.uid, catalog.segments("uid-2"), len(catalog.segments(_UID))) == ("uid-2", [], 1)
        _refused("table_exists", lambda: catalog.commit(a_change("op-4", PutTable(a_table(), None))))

    def test_a_configuration_is_kept_under_its_hash(self, catalog: Catalog) -> None:
        """It comes back whole; putting it again is nothing; one that nobody put is not there."""
        config = a_segment_config(sort="city", derived={"fare": "id"}, partition_column="id", partition_count=4)
        for number in range(2):
            catalog.commit(a_change(f"op-{number}", PutConfig(config)))
        assert catalog.table_config(config.hash) == config
        assert catalog.table_config(a_segment_config().hash) is None

    # -- segments ----------------------------------------------------------------------------------------------------

    def test_a_segment_comes_back_whole(self, catalog: Catalog) -> None:
        """Everything in a segment survives; it is found by table and name alone, and listing goes by name."""
        failure = Failure(config_hash="t1-b", error="Zürich is no number", at_ms=NOON_MS)
        segments = [a_segment(name, "t1-a", slot=5, failure=failure) for name in ("b", "a", "C")]
        other = a_segment("b").model_copy(update={"table_uid": "uid-cabs"})
        catalog.commit(a_change("op-1", *(PutSegment(segment, None) for segment in (*segments, other))))
        expected = {segment.name: segment.model_copy(update={"revision": 1}) for segment in segments}
        assert catalog.segments(_UID) == [expected[name] for name in ("C", "a", "b")]
        assert catalog.segment(_UID, "b") == expected["b"]
        assert catalog.segment("uid-cabs", "b") == other.model_copy(update={"revision": 1})
        assert (catalog.segment(_UID, "c"), catalog.segments("uid-none")) == (None, [])

    @pytest.mark.case("tables:D1", "rules:R22")
    def test_a_segment_changes_by_compare_and_swap(self, catalog: Catalog) -> None:
        """Insert, replace and drop each hold only at the revision that they were decided on."""
        catalog.commit(a_change("op-1", PutSegment(a_segment(), None)))
        refused: list[Put] = [
            PutSegment(a_segment(), None),
            PutSegment(a_segment(), 0),
            PutSegment(a_segment(), 2),
            PutSegment(a_segment("other"), 1),
            DropSegment(_UID, "trips_0", 2),
            DropSegment(_UID, "other", 1),
        ]
        for put in refused:
            _conflicts(catalog, put)
        newer = a_segment(build=a_build("build-2", "t1-a"))
        catalog.commit(a_change("op-3", PutSegment(newer, 1)))
        assert catalog.segments(_UID) == [newer.model_copy(update={"revision": 2})]
        catalog.commit(a_change("op-4", DropSegment(_UID, "trips_0", 2)))
        _refused("revision_conflict", lambda: catalog.commit(a_change("op-5", DropSegment(_UID, "trips_0", 2))))
        assert catalog.segments(_UID) == []

    @pytest.mark.case("tables:F3", "rules:R22")
    def test_a_conflict_leaves_nothing_of_a_change(self, catalog: Catalog) -> None:
        """When the last part of a change is refused, none of the others was made."""
        table, segment = a_table(), a_segment()
        catalog.commit(a_change("op-1", PutTable(table, None), PutSegment(segment, None)))
        revision, rebuild, config = catalog.revision(), a_table_rebuild(table), a_segment_config(sort="id")
        done = Done(segment="trips_0", outcome=SegmentOutcome.LOADED)
        puts: tuple[Put, ...] = (
            PutTable(a_table(sort="id"), 1),
            PutConfig(config),
            PutRebuild(rebuild, None),
            PutDone(rebuild.id, done),
            PutFlag("paused", "on"),
            PutSegment(a_segment("new"), None),
            DropSegment(_UID, "trips_0", 1),
            PutSegment(a_segment("newer"), 7),
        )
        _refused("revision_conflict", lambda: catalog.commit(a_change("op-2", *puts)))
        assert catalog.tables() == [table.model_copy(update={"revision": 1})]
        assert catalog.segments(_UID) == [segment.model_copy(update={"revision": 1})]
        assert (catalog.table_config(config.hash), catalog.rebuild(rebuild.id)) == (None, None)
        assert (catalog.segments_done(rebuild.id), catalog.flags(), catalog.revision()) == ([], {}, revision)
        assert catalog.commit(a_change("op-2", *puts[:-1]))

    def test_many_segments_are_found_by_name(self, catalog: Catalog) -> None:
        """However many are named, those that are there come back, by name, each once."""
        names = [f"s{number:04d}" for number in range(1_201)]
        catalog.commit(a_change("op-1", *(PutSegment(a_segment(name), None) for name in names)))
        asked = [*names[1:], "s9999", "other", names[5]]
        assert [segment.name for segment in catalog.segments(_UID, asked)] == names[1:]
        assert [segment.name for segment in catalog.segments(_UID, ["s0007"])] == ["s0007"]
        assert (catalog.segments(_UID, []), len(catalog.segments(_UID, None))) == ([], 1_201)

    @pytest.mark.case("tables:A1")
    def test_stale_is_another_hash_or_none(self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        """All segments of the table without the wanted hash, and no other, on as many pages as they need."""
        monkeypatch.setattr(segmentrows, "PAGE_ROWS", 3)
        hashes = [None, "t1-wanted", "t1-other"]
        failure = Failure(config_hash="t1-wanted", error="x", at_ms=1)
        segments = [
            a_segment(f"s{n:02d}", hashes[n % 3], slot=n, created_at_ms=n, failure=failure if n == 2 else None)
            for n in range(20)
        ]
        other = a_segment("s00").model_copy(update={"table_uid": "uid-cabs"})
        catalog.commit(a_change("op-1", *(PutSegment(segment, None) for segment in (*segments, other))))
        found = sorted(catalog.stale_segments(_UID, "t1-wanted"))
        assert found == [stale_segment(segment) for n, segment in enumerate(segments) if n % 3 != 1]
        assert (found[1].name, found[1].failed_hash, found[0].failed_hash) == ("s02", "t1-wanted", None)
        assert len(list(catalog.stale_segments(_UID, "t1-new"))) == 20
        assert list(catalog.stale_segments("uid-none", "t1-new")) == []

    def test_what_was_refreshed_is_not_stale(self, catalog: Catalog) -> None:
        """A replaced build is judged by its own hash, size and rows; a failure that was cleared is gone."""
        failed = a_segment("s", None, failure=Failure(config_hash="t1-a", error="x", at_ms=1))
        catalog.commit(a_change("op-1", PutSegment(failed, None)))
        after = a_segment("s", build=a_build("build-2", "t1-a", rows=3))
        catalog.commit(a_change("op-2", PutSegment(after, 1)))
        assert list(catalog.stale_segments(_UID, "t1-a")) == []
        assert list(catalog.stale_segments(_UID, "t1-b")) == [stale_segment(after)]
        assert catalog.table_size(_UID) == TableSize(1, 3, 300)

    def test_a_table_s_size_is_that_of_its_segments(self, catalog: Catalog) -> None:
        """Segments, rows and bytes are added up, of this table alone; a table without segments has none."""
        assert catalog.table_size(_UID) == TableSize(0, 0, 0)
        large = a_build("large", rows=3_000_000_000)
        other = a_segment("s").model_copy(update={"table_uid": "uid-cabs"})
        puts = [PutSegment(segment, None) for segment in (a_segment("a"), a_segment("b", build=large), other)]
        catalog.commit(a_change("op-1", *puts))
        assert catalog.table_size(_UID) == TableSize(2, 3_000_000_010, 300_000_001_000)
        catalog.commit(a_change("op-2", DropSegment(_UID, "b", 1)))
        assert catalog.table_size(_UID) == TableSize(1, 10, 1_000)

    # -- what is written down of them --------------------------------------------------------------------------------

    def test_a_snapshot_has_every_segment_of_each_slot(self, catalog: Catalog) -> None:
        """Whoever knows nothing gets the table and all of its segments, whole, and none of another table."""
        assert catalog.table_snapshot(_UID, {}) is None
        catalog.commit(a_change("op-1", PutTable(a_table(), None)))
        empty = catalog.table_snapshot(_UID, {})
        assert empty is not None
        assert (empty.slots, empty.changed) == ({}, {})
        segments = [a_segment(f"s{slot}{number}", slot=slot) for slot in (0, 63) for number in range(2)]
        other = a_segment("other", slot=5).model_copy(update={"table_uid": "uid-cabs"})
        puts = [PutSegment(segment, None) for segment in (*segments, other)]
        catalog.commit(a_change("op-2", PutTable(a_table(sort="id"), 1), *puts))
        found = catalog.table_snapshot(_UID, {7: 1})
        assert found is not None
        assert (found.table, set(found.slots), set(found.changed)) == (catalog.table("trips"), {0, 63}, {0, 63})
        held = sorted(
            (segment for listed in found.changed.values() for segment in listed.segments()), key=lambda s: s.name
        )
        assert held == catalog.segments(_UID)
        assert {segment.slot for segment in found.changed[63].segments()} == {63}

    @pytest.mark.case("rules:R16")
    def test_every_change_of_a_segment_moves_its_slot(self, catalog: Catalog) -> None:
        """Made, replaced, dropped: the slot's revision grows, also when its last one goes, and no other slot's."""
        catalog.commit(a_change("op-1", PutTable(a_table(), None), PutSegment(a_segment("other", slot=9), None)))
        segment, slots = a_segment(slot=2), []
        changes: list[Put] = [PutSegment(segment, None), PutSegment(segment, 1), DropSegment(_UID, segment.name, 2)]
        for number, put in enumerate([*changes, PutSegment(segment, None)]):
            before = catalog.table_snapshot(_UID, {})
            assert before is not None
            catalog.commit(a_change(f"op-2{number}", put))
            after = catalog.table_snapshot(_UID, before.slots)
            assert after is not None
            assert (set(after.changed), after.slots[9]) == ({2}, before.slots[9])
            assert list(after.changed[2].segments()) == catalog.segments(_UID, [segment.name])
            slots.append(after.slots[2])
        assert slots == sorted(set(slots))

    def test_what_did_not_change_is_not_read(self, catalog: Catalog) -> None:
        """A slot that is known is left out while the table or other slots change, or a change of it is refused."""
        catalog.commit(a_change("op-1", PutTable(a_table(), None), PutSegment(a_segment(), None)))
        known = catalog.table_snapshot(_UID, {})
        assert known is not None
        _conflicts(catalog, PutSegment(a_segment(), 7))
        catalog.commit(a_change("op-2", PutTable(a_table(sort="id"), 1), PutSegment(a_segment("b", slot=1), None)))
        found = catalog.table_snapshot(_UID, known.slots)
        assert found is not None
        assert (set(found.slots), set(found.changed), found.table.revision) == ({0, 1}, {1}, 2)

    def test_all_configurations_are_known_by_hash(self, catalog: Catalog) -> None:
        """Whichever table had them; each once."""
        assert catalog.table_config_hashes() == set()
        configs = [a_segment_config(), a_segment_config(sort="id")]
        catalog.commit(a_change("op-1", *map(PutConfig, (*configs, configs[0]))))
        assert catalog.table_config_hashes() == {config.hash for config in configs}

    # -- rebuilds ----------------------------------------------------------------------------------------------------

    @pytest.mark.case("tables:C7")
    def test_a_plan_stays_what_it_was(self, catalog: Catalog) -> None:
        """Whatever replaces the record, its plan is the one that was begun."""
        begun = a_table_rebuild(a_table(), "rebuild-1", a_segment())
        catalog.commit(a_change("op-1", PutRebuild(begun, None)))
        other = begun.model_copy(update={"plan": a_table_plan(a_table(sort="id")), "driver": "second"})
        catalog.put_rebuild(other, 1)
        catalog.commit(a_change("op-2", PutRebuild(other, 2)))
        found = catalog.rebuild("rebuild-1")
        assert found is not None
        assert (found.plan, found.driver, found.revision) == (begun.plan, "second", 3)

    @pytest.mark.case("tables:D3")
    def test_what_became_of_a_segment_is_noted_once(self, catalog: Catalog) -> None:
        """By rebuild and segment, the last note counts; they come by name."""
        done = [Done(segment=name, outcome=SegmentOutcome.REFRESHED, rows=5, why="é") for name in ("b", "a")]
        catalog.commit(a_change("op-1", *(PutDone("r-1", one) for one in done), PutDone("r-2", done[0])))
        failed = Done(segment="b", outcome=SegmentOutcome.FAILED, why="abc is no number")
        catalog.commit(a_change("op-2", PutDone("r-1", failed)))
        assert catalog.segments_done("r-1") == [done[1], failed]
        assert (catalog.segments_done("r-2"), catalog.segments_done("r-3")) == ([done[0]], [])
        assert catalog.segments_done("r-1", ["b", "c"]) == [failed]
        assert (catalog.segments_done("r-1", []), catalog.segments_done("r-2", ["a"])) == ([], [])

    def test_revisions_and_operations_are_those_of_the_catalog(self, catalog: Catalog) -> None:
        """A change of tables moves the catalog's revision as any other does, and the same operation is done once."""
        before = catalog.revision()
        assert catalog.commit(a_change("op-1", PutTable(a_table(), None)))
        assert not catalog.commit(a_change("op-1", PutTable(a_table("cabs"), None)))
        assert (catalog.revision(), [table.name for table in catalog.tables()]) == (before + 1, ["trips"])
