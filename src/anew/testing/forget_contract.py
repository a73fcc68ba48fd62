"""What every catalog promises of what it forgets, as tests; see `anew.catalog.forget`."""

from __future__ import annotations

from typing import Any

import pytest

from anew.catalog.change import (
    Change,
    KnownRequest,
    Operation,
    Put,
    PutDeadLetters,
    PutDone,
    PutPastVersions,
    PutRebuild,
    PutRequest,
    PutSegment,
    PutSetAside,
    PutStore,
    PutTable,
)
from anew.catalog.forget import (
    DropStore,
    DropTable,
    ForgetDeadLetters,
    ForgetHistory,
    ForgetPastVersions,
    ForgetRebuilds,
    ForgetRebuildsOf,
    ForgetRequests,
    ForgetSegments,
)
from anew.catalog.interface import Catalog
from anew.core.admission import Rejection
from anew.core.errors import Refused
from anew.core.rebuild import RebuildStatus
from anew.core.stores.store import VersionStatus
from anew.core.tables.rebuild import Done, SegmentOutcome
from anew.core.tables.segment import Segment
from anew.testing.builders import a_rebuild, a_store, a_version
from anew.testing.opened_catalog import OpenedCatalog
from anew.testing.table_builders import a_segment, a_table, a_table_rebuild


def _at(at_ms: int, *puts: Put) -> Change:
    return Change(Operation(f"op-{at_ms}", at_ms, "somebody", "change", "flights", {}), puts)


class ForgetContract(OpenedCatalog):
    """The contract; ``catalog`` is an empty catalog."""

    def test_the_oldest_lines_of_history_go_first(self, catalog: Catalog) -> None:
        """As many as are asked for, none from after the time; an operation that is kept still happens once."""
        for at_ms in range(1, 7):
            catalog.commit(_at(at_ms))
        assert [catalog.forgettable(ForgetHistory(5, most)) for most in (1, 3, 99)] == [1, 3, 4]
        catalog.commit(_at(7, ForgetHistory(5, 3)))
        assert [operation.at_ms for operation in catalog.history(None, 9)] == [7, 6, 5, 4]
        assert not catalog.commit(_at(6))
        catalog.commit(_at(8, ForgetHistory(5, 99)))
        assert [operation.at_ms for operation in catalog.history(None, 9)] == [8, 7, 6, 5]
        assert catalog.forgettable(ForgetHistory(5, 99)) == 0

    @pytest.mark.case("rules:R22")
    def test_a_request_is_kept_while_what_it_made_runs(self, catalog: Catalog) -> None:
        """Request ids go by their age; that of a rebuild that runs stays, so that it is never made twice."""
        runs, ended = a_rebuild(a_store()), a_rebuild(a_store(), "rebuild-2", status=RebuildStatus.FAILED)
        catalog.commit(_at(1, PutRequest("r-1", "h", runs.id), PutRebuild(runs, None)))
        catalog.commit(_at(2, PutRequest("r-2", "h", ended.id), PutRebuild(ended, None)))
        catalog.commit(_at(3, PutRequest("r-3", "h", "uid"), PutRequest("r-4", "h", "uid")))
        catalog.commit(_at(4, PutRequest("r-5", "h", "uid")))
        assert [catalog.forgettable(ForgetRequests(4, most)) for most in (1, 99)] == [1, 3]
        catalog.commit(_at(5, ForgetRequests(4, 1)))
        assert (catalog.request("r-2"), catalog.request("r-3")) == (None, KnownRequest("h", "uid"))
        catalog.commit(_at(6, ForgetRequests(4, 99)))
        kept = [name for name in ("r-1", "r-2", "r-3", "r-4", "r-5") if catalog.request(name) is not None]
        assert kept == ["r-1", "r-5"]

    def test_past_versions_go_by_when_they_left(self, catalog: Catalog) -> None:
        """Of all stores the oldest first, or of one store."""
        versions = [a_version(number, VersionStatus.RECLAIMED) for number in (1, 2, 3)]
        catalog.commit(_at(1, PutPastVersions("uid-1", tuple(versions[:2]), 1), PutPastVersions("uid-2", (), 1)))
        catalog.commit(_at(2, PutPastVersions("uid-1", (versions[2],), 3), PutPastVersions("uid-2", (versions[0],), 2)))
        assert [catalog.forgettable(ForgetPastVersions(before, 99)) for before in (1, 2, 3, 4)] == [0, 2, 3, 4]
        catalog.commit(_at(3, ForgetPastVersions(9, 99, "uid-2")))
        assert (len(catalog.past_versions("uid-1", 9)), catalog.past_versions("uid-2", 9)) == (3, [])
        catalog.commit(_at(4, ForgetPastVersions(9, 2)))
        assert [version.number for version in catalog.past_versions("uid-1", 9)] == [3]

    @pytest.mark.case("rules:R21")
    def test_a_dead_letter_that_waits_is_never_forgotten(self, catalog: Catalog) -> None:
        """Only what was set aside, is old enough, and lies where no version reads any more goes."""
        letters = [Rejection("dc-0/flights_rt#1", part, offset, "bad") for part in (0, 1) for offset in (3, 5, 9)]
        other = Rejection("dc-0/other_rt#1", 0, 3, "bad")
        catalog.commit(_at(1, PutDeadLetters("uid-1", tuple(letters[:5])), PutDeadLetters("uid-2", (other,))))
        catalog.commit(_at(5, PutDeadLetters("uid-1", tuple(letters[4:]))))
        below = {("dc-0/flights_rt#1", 0): 6, ("dc-0/flights_rt#1", 1): 99}
        wanted = ForgetDeadLetters(5, 99, "uid-1", below)
        assert catalog.forgettable(wanted) == 0
        catalog.commit(_at(6, PutSetAside((*letters[1:], other))))
        assert [catalog.forgettable(each) for each in (wanted, ForgetDeadLetters(5, 1, "uid-1", below))] == [3, 1]
        assert catalog.forgettable(ForgetDeadLetters(5, 99, "uid-1", {})) == 0
        assert catalog.forgettable(ForgetDeadLetters(5, 99, "uid-1", None)) == 4
        catalog.commit(_at(7, wanted))
        assert catalog.dead_letter_counts() == {"uid-1": 3, "uid-2": 1}
        assert catalog.waiting_dead_letters("uid-1", 9) == [letters[0]]

    @pytest.mark.case("rules:R16")
    def test_a_name_keeps_its_numbers_when_its_stores_are_forgotten(self, catalog: Catalog) -> None:
        """A deleted store goes as it was read, a live one never; version numbers of its name go on for ever."""
        for uid, next_version in (("uid-1", 8), ("uid-2", 5)):
            catalog.commit(_at(next_version, PutStore(a_store(uid=uid, next_version=next_version), None)))
            store = catalog.store("flights")
            assert store is not None
            for drop in (DropStore(uid, store.revision), DropStore("uid-9", 1)):
                with pytest.raises(Refused) as caught:
                    catalog.commit(_at(100, drop))
                assert caught.value.code == "revision_conflict"
            gone = store.model_copy(update={"deleted_at_ms": 1})
            catalog.commit(_at(next_version + 20, PutStore(gone, store.revision)))
            with pytest.raises(Refused):
                catalog.commit(_at(101, DropStore(uid, store.revision)))
            catalog.commit(_at(next_version + 30, DropStore(uid, store.revision + 1)))
            assert (catalog.store_by_uid(uid), catalog.deleted_stores()) == (None, [])
            assert catalog.next_version("flights") == 8
        catalog.commit(_at(200, PutStore(a_store(uid="uid-3", next_version=12), None)))
        assert (catalog.next_version("flights"), catalog.next_version("trains")) == (12, 1)

    def test_a_deleted_table_goes_with_its_segments(self, catalog: Catalog) -> None:
        """Segments go so many at a time, then the table with its slots; the name is free."""
        table = a_table()
        segments = tuple(PutSegment(a_segment(name, slot=4), None) for name in ("a", "b", "c"))
        catalog.commit(_at(1, PutTable(table, None), *segments))
        with pytest.raises(Refused):
            catalog.commit(_at(2, DropTable(table.uid, 1)))
        catalog.commit(_at(3, PutTable(table.model_copy(update={"deleted_at_ms": 1}), 1)))
        assert [catalog.forgettable(ForgetSegments(table.uid, most)) for most in (2, 9)] == [2, 3]
        catalog.commit(_at(4, ForgetSegments(table.uid, 2)))
        assert [segment.name for segment in catalog.segments(table.uid)] == ["c"]
        catalog.commit(_at(5, ForgetSegments(table.uid, 2), DropTable(table.uid, 2)))
        assert (catalog.table_by_uid(table.uid), catalog.deleted_tables()) == (None, [])
        assert (catalog.segments(table.uid), catalog.table_snapshot(table.uid, {})) == ([], None)

    @pytest.mark.case("rules:R22")
    def test_rebuilds_that_have_ended_are_forgotten_with_their_parts(self, catalog: Catalog) -> None:
        """Of those that are named only what has ended and no request names goes, whatever it is of."""
        flights, trips = a_store(), a_table()
        rebuilds = [a_rebuild(flights, name, **_ENDED) for name in ("a", "asked", "left")]
        other, running = a_table_rebuild(trips, "other", a_segment(), **_ENDED), a_rebuild(flights, "runs")
        done = Done(segment="s", outcome=SegmentOutcome.REFRESHED)
        parts = [PutDone(name, done) for name in ("a", "other", "left")]
        puts = [PutRebuild(one, None) for one in (*rebuilds, other, running)]
        catalog.commit(_at(10, *puts, *parts, PutRequest("r-1", "h", "asked")))
        wanted = ForgetRebuilds(("a", "asked", "other", "runs", "unknown"))
        assert catalog.forgettable(wanted) == 2
        catalog.commit(_at(11, wanted))
        left = [one.id for one in catalog.rebuilds(subject_uid=None, running_only=False)]
        assert (left, catalog.segments_done("a"), catalog.segments_done("other")) == (["runs", "asked", "left"], [], [])
        assert (catalog.segments_done("left"), catalog.forgettable(wanted)) == ([done], 0)
        catalog.commit(_at(12, ForgetRequests(11, 9), ForgetRebuilds(("asked",))))
        assert catalog.rebuild("asked") is None

    def test_any_number_of_rebuilds_is_named(self, catalog: Catalog) -> None:
        """More than a database takes as parameters of one query: each of them is found."""
        catalog.commit(_at(1, PutRebuild(a_rebuild(a_store(), "last", **_ENDED), None)))
        wanted = ForgetRebuilds((*(f"unknown-{number}" for number in range(70_000)), "last"))
        assert catalog.forgettable(wanted) == 1
        catalog.commit(_at(2, wanted))
        assert catalog.rebuild("last") is None

    @pytest.mark.case("rules:R22")
    def test_a_rebuild_is_asked_about_while_something_names_it(self, catalog: Catalog) -> None:
        """A version that is in its store, a segment that does not say its load, and a request: each by its own id."""
        made = a_version(1, rebuild="made")
        flights = a_store(versions=(made,))
        gone = a_store("trains", versions=(a_version(1, rebuild="made-of-deleted"),), deleted_at_ms=5)
        trips = a_table()
        names = ("asked", "free-2", "free-1", "loaded", "said", "made", "made-of-deleted", "asked-before")
        times = {"free-1": 1, "free-2": 2}
        rebuilds = [a_rebuild(flights, name, **{**_ENDED, "created_at_ms": times.get(name, 3)}) for name in names]
        young = a_rebuild(flights, "young", **{**_ENDED, "created_at_ms": 4})
        running = a_rebuild(flights, "runs", created_at_ms=1)
        segments = [_loaded("a", "loaded", None), _loaded("b", "said", "b")]
        puts: list[Put] = [PutStore(flights, None), PutStore(gone, None), PutTable(trips, None)]
        puts += [PutRebuild(one, None) for one in (*rebuilds, young, running)]
        puts += [PutSegment(one, None) for one in segments]
        catalog.commit(_at(10, *puts, PutRequest("r-1", "h", "asked-before")))
        catalog.commit(_at(11, PutRequest("r-2", "h", "asked")))
        assert list(catalog.unnamed_rebuilds(4)) == ["free-1", "free-2", "said"]
        assert list(catalog.unnamed_rebuilds(4, 11)) == ["free-1", "free-2", "asked-before", "said"]
        assert list(catalog.unnamed_rebuilds(5, 12)) == ["free-1", "free-2", "asked", "asked-before", "said", "young"]
        replaced = _loaded("a", "later", "a")
        catalog.commit(_at(12, PutSegment(replaced, 1), PutStore(flights.model_copy(update={"versions": ()}), 1)))
        assert list(catalog.unnamed_rebuilds(4)) == ["free-1", "free-2", "loaded", "made", "said"]

    def test_the_rebuilds_of_a_deleted_one_go_some_at_a_time(self, catalog: Catalog) -> None:
        """The oldest first, whatever is left of it; never one that runs, that a request names, or of another one."""
        flights = a_store()
        times = {"c": 3, "a": 1, "b": 2, "asked": 0}
        rebuilds = [a_rebuild(flights, name, **{**_ENDED, "created_at_ms": at_ms}) for name, at_ms in times.items()]
        running = a_rebuild(flights, "runs", created_at_ms=0)
        other = a_table_rebuild(a_table(), "other", a_segment(), **_ENDED)
        catalog.commit(_at(9, *(PutRebuild(one, None) for one in (*rebuilds, running, other))))
        catalog.commit(_at(10, PutRequest("r-1", "h", "asked")))
        counts = [catalog.forgettable(ForgetRebuildsOf(flights.uid, *more)) for more in ((2,), (9,), (9, 11))]
        assert counts == [2, 3, 4]
        catalog.commit(_at(11, ForgetRebuildsOf(flights.uid, 2)))
        assert {one.id for one in catalog.rebuilds(subject_uid=None, running_only=False)} == {
            "asked",
            "c",
            "runs",
            "other",
        }


_ENDED: dict[str, Any] = {"status": RebuildStatus.SUCCEEDED, "created_at_ms": 1, "ended_at_ms": 9}


def _loaded(name: str, rebuild: str, prefix: str | None) -> Segment:
    """A segment whose build a rebuild made."""
    segment = a_segment(name, prefix=prefix)
    return segment.model_copy(update={"build": segment.build.model_copy(update={"rebuild": rebuild})})
