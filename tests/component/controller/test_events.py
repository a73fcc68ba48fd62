"""Events: what was done since a revision of the catalog, and waiting for what comes."""

from __future__ import annotations

import threading
import time

from anew.api.stores.requests import UpdateStore
from anew.api.upkeep import EventLine
from anew.catalog.change import NodeRecord
from anew.core.errors import InvalidRequest, NotFound
from anew.testing.clock import NOON_MS
from tests.component.controller.harness import Cluster, refused

_LAST = 2**63 - 1


def _change(cluster: Cluster, retention_seconds: int) -> None:
    wanted = UpdateStore(settings={"backup_retention_seconds": retention_seconds})
    cluster.client.update_store("flights", wanted)


def test_a_cursor_sees_everything_once(cluster: Cluster) -> None:
    """Page by page, whatever their size, the lines are those of the history, the oldest first."""
    cluster.create()
    for seconds in range(60, 65):
        _change(cluster, seconds)
    after, seen = 0, list[EventLine]()
    while (page := cluster.client.events(after, limit=2)).items:
        seen += page.items
        after = page.next
    assert [line.id for line in seen] == [line.id for line in reversed(cluster.client.history(limit=100))]
    assert after == cluster.context.catalog.revision()
    assert [line.revision for line in seen] == sorted({line.revision for line in seen})
    assert cluster.client.events(_LAST).next == after


def test_a_cursor_of_one_store_sees_its_lines_alone(cluster: Cluster) -> None:
    """What was done elsewhere moves the cursor on, and gives no line."""
    cluster.create()
    after = cluster.client.events(_LAST).next
    cluster.create("other")
    _change(cluster, 61)
    found = cluster.client.events(after, store="flights")
    assert ([line.subject for line in found.items], found.next) == (["flights"], cluster.context.catalog.revision())


def test_a_store_that_never_was_is_not_waited_for(cluster: Cluster) -> None:
    """A misspelt name is refused at once, with the nearest; of a deleted store the lines are there."""
    cluster.create()
    error = refused(NotFound, lambda: cluster.client.events(0, store="flight", wait_seconds=20))
    assert (error.code, "flights" in str(error.hint)) == ("unknown_store", True)
    cluster.client.delete_store("flights")
    assert cluster.client.events(0, store="flights").items[-1].what == "delete store"


def test_what_is_done_ends_a_wait(cluster: Cluster) -> None:
    """Whoever waits is answered with what was done, long before the wait is over."""
    cluster.create()
    after = cluster.client.events(_LAST).next
    began = time.monotonic()
    later = threading.Timer(0.2, _change, (cluster, 77))
    later.start()
    found = cluster.client.events(after, wait_seconds=20)
    later.join()
    assert [(line.what, line.subject) for line in found.items] == [("update store", "flights")]
    assert (time.monotonic() - began < 10, found.next > after) == (True, True)


def test_a_wait_for_nothing_moves_on_past_what_has_no_line(cluster: Cluster) -> None:
    """A node that comes moves the catalog without a line: the cursor goes past it, and is not answered again for it."""
    after = cluster.client.events(_LAST).next
    cluster.context.catalog.put_node(NodeRecord("node-7", "dc-0", NOON_MS, "{}"))
    found = cluster.client.events(after, wait_seconds=5)
    assert (found.items, found.next) == ((), after + 1)
    assert cluster.client.events(found.next).next == found.next


def test_a_catalog_that_went_back_is_told_at_once(cluster: Cluster) -> None:
    """Where an older copy took the catalog's place nobody waits for a revision that is long to come."""
    revision = cluster.client.events(_LAST).next
    began = time.monotonic()
    found = cluster.client.events(revision + 1_000, wait_seconds=20)
    assert (found.items, found.next, time.monotonic() - began < 5) == ((), revision, True)


def test_what_is_forgotten_is_told(cluster: Cluster) -> None:
    """The oldest line that is kept says from where on nothing is missing."""
    cluster.create()
    first = cluster.client.events(0, limit=1).items[0].revision
    assert cluster.client.events(0).oldest == first
    cluster.pass_seconds(cluster.context.limits.row_retention.history + 7_200)
    cluster.round()
    assert cluster.client.events(0).oldest > first


def test_a_cursor_that_cannot_be_is_refused(cluster: Cluster) -> None:
    """A revision is a number that a catalog can have."""
    for after in (-1, 2**63):
        assert refused(InvalidRequest, lambda after=after: cluster.client.events(after)).code == "bad_request"  # type: ignore[misc]  # mypy knows no type of a lambda's default
