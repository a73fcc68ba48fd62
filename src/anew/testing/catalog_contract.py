"""What every catalog promises, as tests; see `anew.catalog.interface`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anew.catalog.change import (
    Change,
    DropReclaim,
    KnownRequest,
    NodeRecord,
    Operation,
    Put,
    PutDeadLetters,
    PutFlag,
    PutPastVersions,
    PutRebuild,
    PutReclaim,
    PutRequest,
    PutSetAside,
    PutStore,
    Reclaim,
    SwapFlag,
)
from anew.catalog.interface import Catalog
from anew.core.admission import Rejection
from anew.core.errors import InvalidRequest, Refused
from anew.core.rebuild import RebuildStatus
from anew.core.stores.store import VersionStatus
from anew.testing.builders import VALUE_SCHEMA, a_feed, a_rebuild, a_store, a_version
from anew.testing.clock import NOON_MS
from anew.testing.opened_catalog import OpenedCatalog
from anew.testing.table_builders import a_segment, a_table, a_table_rebuild


def a_change(operation_id: str, *puts: Put, subject: str = "flights") -> Change:
    """A change with a line of history."""
    return Change(Operation(operation_id, NOON_MS, "somebody", "change", subject, {"why": "test"}), puts)


class CatalogContract(OpenedCatalog):
    """The contract; ``catalog`` is an empty catalog."""

    # -- stores ------------------------------------------------------------------------------------------------------

    def test_a_store_comes_back_whole(self, catalog: Catalog, tmp_path: Path) -> None:
        """Everything in a store survives, for other handles too, with its first revision."""
        store = a_store(feeds=(a_feed(),), versions=(a_version(1, feeds=(a_feed().id,)),), next_version=2)
        catalog.commit(a_change("op-1", PutStore(store, None)))
        expected = store.model_copy(update={"revision": 1})
        other = self.open_catalog(tmp_path)
        for handle in (catalog, other):
            assert handle.store("flights") == expected
            assert handle.store_by_uid(store.uid) == expected
            assert handle.stores() == [expected]
        assert (catalog.store("other"), catalog.store_by_uid("other")) == (None, None)
        other.close()

    def test_schemas_keep_their_order(self, catalog: Catalog, tmp_path: Path) -> None:
        """The schema that a store got last is the newest, also under a smaller id, and whoever reads the store."""
        store = a_store(schemas={7: VALUE_SCHEMA, 3: VALUE_SCHEMA})
        catalog.commit(a_change("op-1", PutStore(store, None)))
        other = self.open_catalog(tmp_path)
        for handle in (catalog, other):
            found = handle.store("flights")
            assert found is not None
            assert (list(found.schemas), found.newest_schema_id) == ([7, 3], 3)
            assert [list(each.schemas) for each in handle.stores()] == [[7, 3]]
        other.close()

    def test_a_list_of_stores_shows_what_others_changed(self, catalog: Catalog, tmp_path: Path) -> None:
        """Listed again, each is as it is now: changed, deleted, or made by another handle under the same name."""
        kept, changed, gone = (a_store(name, uid=f"uid-{name}") for name in ("a", "b", "c"))
        catalog.commit(a_change("op-1", *(PutStore(store, None) for store in (kept, changed, gone))))
        assert [store.revision for store in catalog.stores()] == [1, 1, 1]
        other = self.open_catalog(tmp_path)
        swapped, deleted = changed.model_copy(update={"next_version": 7}), gone.model_copy(update={"deleted_at_ms": 5})
        other.commit(a_change("op-2", PutStore(swapped, 1), PutStore(deleted, 1)))
        other.commit(a_change("op-3", PutStore(a_store("c", uid="uid-again"), None)))
        for handle in (catalog, other):
            found = [(store.uid, store.revision, store.next_version) for store in handle.stores()]
            assert found == [("uid-a", 1, 1), ("uid-b", 2, 7), ("uid-again", 1, 1)]
        other.close()

    def test_stores_are_listed_by_name(self, catalog: Catalog) -> None:
        """Listing goes by name, whatever the order of making."""
        for name in ("b", "c", "a"):
            catalog.commit(a_change(f"op-{name}", PutStore(a_store(name), None)))
        assert [store.name for store in catalog.stores()] == ["a", "b", "c"]

    def test_a_taken_name_is_refused(self, catalog: Catalog) -> None:
        """Two live stores cannot have one name, and the refusal leaves no trace."""
        catalog.commit(a_change("op-1", PutStore(a_store(), None)))
        revision = catalog.revision()
        with pytest.raises(Refused) as caught:
            catalog.commit(a_change("op-2", PutStore(a_store(uid="uid-2"), None)))
        assert caught.value.code == "store_exists"
        assert (catalog.revision(), len(catalog.history(None, 10))) == (revision, 1)

    def test_a_uid_or_rebuild_id_is_inserted_once(self, catalog: Catalog) -> None:
        """Inserting what is there already, under another name or as another rebuild, is refused and changes nothing."""
        first = (PutStore(a_store(), None), PutRebuild(a_rebuild(a_store()), None))
        catalog.commit(a_change("op-1", *first))
        for put in (PutStore(a_store(name="other", uid=a_store().uid), None), first[1]):
            with pytest.raises(Refused) as caught:
                catalog.commit(a_change("op-2", put))
            assert caught.value.code == "revision_conflict"
        assert len(catalog.history(None, 10)) == 1

    @pytest.mark.case("rules:R15")
    def test_of_two_changes_from_one_revision_the_first_wins(self, catalog: Catalog) -> None:
        """Pointers and statuses share one revision: a decision made on an older one is turned away whole."""
        catalog.commit(a_change("op-1", PutStore(a_store(), None)))
        loaded = catalog.store("flights")
        assert loaded is not None
        first = loaded.model_copy(update={"current": {"dc-0": 1}})
        second = loaded.model_copy(update={"current": {"dc-0": 2}})
        catalog.commit(a_change("op-2", PutStore(first, loaded.revision)))
        with pytest.raises(Refused) as caught:
            catalog.commit(a_change("op-3", PutRequest("r", "h", "x"), PutStore(second, loaded.revision)))
        assert caught.value.code == "revision_conflict"
        assert catalog.store("flights") == first.model_copy(update={"revision": 2})
        assert catalog.request("r") is None

    def test_of_many_changes_at_once_none_is_lost(self, catalog: Catalog) -> None:
        """Threads that load, change and retry on a conflict all have their change in the end."""
        catalog.commit(a_change("op", PutStore(a_store(next_version=1), None)))

        def bump(number: int) -> None:
            for attempt in range(200):
                store = catalog.store("flights")
                assert store is not None
                more = store.model_copy(update={"next_version": store.next_version + 1})
                try:
                    catalog.commit(a_change(f"op-{number}-{attempt}", PutStore(more, store.revision)))
                except Refused:
                    continue
                return
            raise AssertionError("a change was never let in")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(bump, range(20)))
        store = catalog.store("flights")
        assert store is not None
        assert store.next_version == 21

    @pytest.mark.case("rules:R16")
    def test_a_name_comes_back_without_its_numbers(self, catalog: Catalog) -> None:
        """A deleted store frees its name, not its version numbers, and stays to be found by its uid."""
        assert catalog.next_version("flights") == 1
        catalog.commit(a_change("op-1", PutStore(a_store(next_version=8), None)))
        old = catalog.store("flights")
        assert old is not None
        gone = old.model_copy(update={"deleted_at_ms": NOON_MS})
        catalog.commit(a_change("op-2", PutStore(gone, old.revision)))
        assert (catalog.store("flights"), catalog.stores()) == (None, [])
        assert [store.uid for store in catalog.deleted_stores()] == [old.uid]
        assert catalog.next_version("flights") == 8
        catalog.commit(a_change("op-3", PutStore(a_store(uid="uid-2", next_version=8), None)))
        new, found = catalog.store("flights"), catalog.store_by_uid(old.uid)
        assert new is not None
        assert found is not None
        assert (new.uid, found.deleted_at_ms) == ("uid-2", NOON_MS)
        assert catalog.next_version("flights") == 8

    def test_versions_that_have_left_are_kept_once(self, catalog: Catalog) -> None:
        """They come back whole, the greatest numbers first, and of each the first word counts; stores are apart."""
        one, two, three = (a_version(number, VersionStatus.RECLAIMED) for number in (1, 2, 11))
        catalog.commit(a_change("op-1", PutPastVersions("uid-1", (one, three), NOON_MS)))
        altered = one.model_copy(update={"error": "again"})
        catalog.commit(a_change("op-2", PutPastVersions("uid-1", (altered, two), NOON_MS + 1)))
        catalog.commit(a_change("op-3", PutPastVersions("uid-2", (), NOON_MS), PutPastVersions("uid-3", (two,), 1)))
        assert catalog.past_versions("uid-1", 9) == [three, two, one]
        assert catalog.past_versions("uid-1", 2) == [three, two]
        assert catalog.past_versions("uid-1", 9, number=1) == [one]
        assert (catalog.past_versions("uid-1", 9, number=3), catalog.past_versions("uid-2", 9)) == ([], [])

    # -- operations, requests, numbers -------------------------------------------------------------------------------

    @pytest.mark.case("rules:R22")
    def test_an_operation_happens_once(self, catalog: Catalog) -> None:
        """Repeating a commit whose answer was lost says that it is done, and does nothing again."""
        change = a_change("op-1", PutStore(a_store(), None))
        assert catalog.commit(change)
        revision = catalog.revision()
        assert not catalog.commit(change)
        assert (catalog.revision(), len(catalog.history(None, 10))) == (revision, 1)

    @pytest.mark.case("rules:R22")
    def test_a_request_id_is_kept_with_its_body(self, catalog: Catalog) -> None:
        """What a request id made is known; another commit of the id is refused with all that comes with it."""
        assert catalog.request("r-1") is None
        catalog.commit(a_change("op-1", PutRequest("r-1", "hash-1", "rebuild-1")))
        assert catalog.request("r-1") == KnownRequest("hash-1", "rebuild-1")
        with pytest.raises(InvalidRequest) as caught:
            catalog.commit(a_change("op-2", PutStore(a_store(), None), PutRequest("r-1", "hash-2", "rebuild-2")))
        assert caught.value.code == "request_id_reused"
        assert (catalog.request("r-1"), catalog.stores()) == (KnownRequest("hash-1", "rebuild-1"), [])

    def test_numbers_are_never_given_twice(self, catalog: Catalog, tmp_path: Path) -> None:
        """Each sequence counts from 1 for itself, across threads and handles."""
        with ThreadPoolExecutor(4) as pool:
            drawn = list(pool.map(lambda _: catalog.next_number("schemas"), range(40)))
        assert sorted(drawn) == list(range(1, 41))
        other = self.open_catalog(tmp_path)
        assert (other.next_number("schemas"), other.next_number("incarnations")) == (41, 1)
        other.close()

    def test_the_revision_grows(self, catalog: Catalog) -> None:
        """Every commit and every new node moves the revision; reading and repeated reports do not."""
        seen = [catalog.revision()]
        catalog.commit(a_change("op-1", PutStore(a_store(), None)))
        seen.append(catalog.revision())
        catalog.commit(a_change("op-2"))
        seen.append(catalog.revision())
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS, "{}"))
        seen.append(catalog.revision())
        assert seen == sorted(set(seen))
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS + 1, "{}"))
        assert catalog.revision() == seen[-1]

    def test_a_removed_node_is_news(self, catalog: Catalog) -> None:
        """A node that is removed, or comes back, moves the revision: others' assignments depend on it."""
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS, "{}"))
        before = catalog.revision()
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS, "{}", removed=True))
        removed = catalog.revision()
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS, "{}"))
        assert before < removed < catalog.revision()

    def test_events_go_on_from_a_revision(self, catalog: Catalog) -> None:
        """What was committed after a revision comes oldest first, each with its own; none twice, none left out."""
        before = catalog.revision()
        changes = [a_change(f"op-{number}") for number in range(5)]
        revisions = []
        for change in changes:
            catalog.commit(change)
            catalog.commit(change)
            revisions.append(catalog.revision())
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS, "{}"))
        assert catalog.revision() > revisions[-1]
        found = catalog.events(before, 9)
        assert [(event.revision, event.operation) for event in found] == [
            (revision, change.operation) for revision, change in zip(revisions, changes, strict=True)
        ]
        assert catalog.events(found[1].revision, 2) == found[2:4]
        subject = changes[0].operation.subject
        assert catalog.events(before, 9, subject) == [e for e in found if e.operation.subject == subject]
        assert catalog.events(before, 9, "nobody") == []
        assert catalog.events(revisions[-1], 9) == catalog.events(2**63 - 1, 9) == []

    def test_history_is_kept_newest_first(self, catalog: Catalog) -> None:
        """Operations come back whole, of one subject or of all, up to a limit."""
        changes = [a_change(f"op-{number}", subject=f"s-{number % 2}") for number in range(6)]
        for change in changes:
            catalog.commit(change)
        assert catalog.history(None, 2) == [changes[5].operation, changes[4].operation]
        assert [operation.id for operation in catalog.history("s-0", 10)] == ["op-4", "op-2", "op-0"]
        assert catalog.history("s-2", 10) == []

    # -- rebuilds ----------------------------------------------------------------------------------------------------

    def test_rebuilds_are_found_newest_first(self, catalog: Catalog) -> None:
        """Rebuilds of all kinds come back whole with their plans, by id, by subject, and only the running ones."""
        flights, trips = a_store(), a_table()
        rebuilds = [
            a_rebuild(flights, "a", created_at_ms=1, status=RebuildStatus.SUCCEEDED, ended_at_ms=2),
            a_rebuild(flights, "b", created_at_ms=2),
            a_table_rebuild(trips, "c", a_segment(), created_at_ms=3),
        ]
        catalog.commit(a_change("op-1", *(PutRebuild(rebuild, None) for rebuild in rebuilds)))
        for rebuild in rebuilds:
            assert catalog.rebuild(rebuild.id) == rebuild.model_copy(update={"revision": 1})
        assert catalog.rebuild("d") is None

        def ids(uid: str | None, *, running_only: bool) -> list[str]:
            return [found.id for found in catalog.rebuilds(subject_uid=uid, running_only=running_only)]

        assert ids(None, running_only=False) == ["c", "b", "a"]
        assert ids(None, running_only=True) == ["c", "b"]
        assert ids(flights.uid, running_only=False) == ["b", "a"]
        assert ids(flights.uid, running_only=True) == ["b"]
        assert ids(trips.uid, running_only=True) == ["c"]
        newest = catalog.rebuilds(subject_uid=flights.uid, running_only=False, limit=1)
        assert [found.id for found in newest] == ["b"]

    @pytest.mark.case("rules:R22")
    def test_a_rebuild_changes_by_compare_and_swap(self, catalog: Catalog) -> None:
        """A sign of life on an older revision is turned away, by either way of writing; it leaves no history."""
        catalog.commit(a_change("op-1", PutRebuild(a_rebuild(a_store()), None)))
        loaded = catalog.rebuild("rebuild-1")
        assert loaded is not None
        newer = loaded.model_copy(update={"lease_until_ms": 7})
        catalog.put_rebuild(newer, loaded.revision)
        with pytest.raises(Refused) as caught:
            catalog.put_rebuild(loaded, loaded.revision)
        assert caught.value.code == "revision_conflict"
        for put in (PutRebuild(loaded, loaded.revision), PutRebuild(loaded, None)):
            with pytest.raises(Refused):
                catalog.commit(a_change("op-2", put))
        assert catalog.rebuild("rebuild-1") == newer.model_copy(update={"revision": 2})
        assert [operation.id for operation in catalog.history(None, 10)] == ["op-1"]
        ended = newer.model_copy(update={"status": RebuildStatus.FAILED, "error": "x"})
        catalog.commit(a_change("op-3", PutRebuild(ended, 2)))
        assert catalog.rebuilds(subject_uid=None, running_only=True) == []
        assert catalog.rebuild("rebuild-1") == ended.model_copy(update={"revision": 3})

    # -- nodes, reclaims, dead letters -------------------------------------------------------------------------------

    def test_flags_are_set_and_taken_away(self, catalog: Catalog) -> None:
        """A flag holds its last value until it is taken away; each change is in the history."""
        for value in ("on", "on again", None):
            catalog.commit(a_change(f"op {value}", PutFlag("paused", value), PutFlag("other", "x")))
            assert catalog.flags() == {"other": "x"} | ({} if value is None else {"paused": value})

    def test_a_flag_is_swapped_only_as_it_was_read(self, catalog: Catalog) -> None:
        """Whoever read an older value, or that there was none, changes nothing, and nothing beside it."""
        catalog.commit(a_change("op-1", SwapFlag("drains", None, "1")))
        for stale in (None, "0", "2"):
            with pytest.raises(Refused) as caught:
                catalog.commit(a_change(f"op-{stale}", PutFlag("other", "x"), SwapFlag("drains", stale, "9")))
            assert caught.value.code == "revision_conflict"
        assert catalog.flags() == {"drains": "1"}
        catalog.commit(a_change("op-2", SwapFlag("drains", "1", "2")))
        assert catalog.flags() == {"drains": "2"}
        catalog.commit(a_change("op-3", SwapFlag("drains", "2", None)))
        assert catalog.flags() == {}

    def test_the_last_report_of_a_node_counts(self, catalog: Catalog) -> None:
        """A node is there once, with its last report; a removed one is not listed."""
        catalog.put_node(NodeRecord("node-2", "dc-0", NOON_MS, "{}"))
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS, "{}"))
        last = NodeRecord("node-2", "dc-0", NOON_MS + 5, '{"replicas": []}')
        catalog.put_node(last)
        assert catalog.nodes() == [NodeRecord("node-1", "dc-0", NOON_MS, "{}"), last]
        catalog.put_node(NodeRecord("node-1", "dc-0", NOON_MS, "{}", removed=True))
        assert catalog.nodes() == [last]

    @pytest.mark.case("rules:R22")
    def test_intents_to_reclaim_come_before_the_act(self, catalog: Catalog) -> None:
        """An intent stays until it is dropped, is due after its grace, and is noted once."""
        late = Reclaim("r-1", "tree", "dc-0", "stores/flights/v1", NOON_MS + 10, "retired")
        soon = Reclaim("r-2", "topic", "dc-0", "flights_rt", NOON_MS, "deleted")
        catalog.commit(a_change("op-1", PutReclaim(late), PutReclaim(soon)))
        again = Reclaim("r-1", "tree", "dc-0", "elsewhere", 0, "again")
        catalog.commit(a_change("op-2", PutReclaim(again)))
        assert catalog.reclaims(None) == [soon, late]
        assert catalog.reclaims(NOON_MS) == [soon]
        assert catalog.reclaims(NOON_MS + 10) == [soon, late]
        catalog.commit(a_change("op-3", DropReclaim("r-2"), DropReclaim("r-3")))
        assert catalog.reclaims(None) == [late]

    @pytest.mark.case("rules:R21")
    def test_a_dead_letter_is_decided_once(self, catalog: Catalog) -> None:
        """Replicas that report the same record add nothing; stores are counted apart."""
        letters = tuple(Rejection("dc-0/flights_rt#1", 0, offset, "bad time") for offset in (3, 5))
        catalog.commit(a_change("op-1", PutDeadLetters("uid-1", letters)))
        catalog.commit(a_change("op-2", PutDeadLetters("uid-1", letters[:1])))
        other = Rejection("dc-0/other_rt#1", 0, 3, "bad time")
        catalog.commit(a_change("op-3", PutDeadLetters("uid-2", (other, other))))
        assert catalog.dead_letter_counts() == {"uid-1": 2, "uid-2": 1}

    def test_dead_letters_wait_until_they_are_set_aside(self, catalog: Catalog) -> None:
        """In the order of the log, of each partition so many at a time; set aside they still count, and stay so."""
        letters = tuple(Rejection("dc-0/flights_rt#1", part, offset, "bad") for part in (1, 0) for offset in (5, 3))
        other = Rejection("dc-0/other_rt#1", 0, 3, "bad time")
        catalog.commit(a_change("op-1", PutDeadLetters("uid-1", letters), PutDeadLetters("uid-2", (other,))))
        in_order = sorted(letters, key=lambda letter: (letter.partition, letter.offset))
        assert catalog.waiting_dead_letters("uid-1", 3) == in_order
        assert catalog.waiting_dead_letters("uid-1", 1) == [in_order[0], in_order[2]]
        assert catalog.dead_letter_counts(waiting=True) == {"uid-1": 4, "uid-2": 1}
        catalog.commit(a_change("op-2", PutSetAside(tuple(in_order[:3]))))
        assert catalog.waiting_dead_letters("uid-1", 3) == [letters[0]]
        assert catalog.dead_letter_counts(waiting=True) == {"uid-1": 1, "uid-2": 1}
        catalog.commit(a_change("op-3", PutDeadLetters("uid-1", letters)))
        assert catalog.waiting_dead_letters("uid-1", 3) == [letters[0]]
        assert catalog.dead_letter_counts() == {"uid-1": 4, "uid-2": 1}
