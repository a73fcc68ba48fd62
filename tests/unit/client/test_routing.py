"""What a client knows of a store: fresh when it can be, never older than it was."""

from __future__ import annotations

import pytest

from anew.core.errors import Unreachable
from tests.unit.client.fleet import a_fleet


@pytest.mark.case("rules:R17")
def test_routing_never_goes_back() -> None:
    """A controller that answers with an older revision of the same store is not believed; a newer one is."""
    fleet = a_fleet()
    fleet.serve(1, {})
    fleet.serve(2, {})
    cache = fleet.cache()
    newest = cache.refresh()
    fleet.route(revision=newest.revision - 1, current=1)
    assert cache.refresh() == newest
    fleet.route(revision=newest.revision + 1, current=1)
    assert cache.refresh().current == 1


def test_another_store_of_the_same_name_starts_afresh() -> None:
    """Revisions are compared within one store: one that was made anew under the name is taken as it is."""
    fleet = a_fleet()
    fleet.route(revision=50)
    cache = fleet.cache()
    cache.refresh()
    fleet.route(uid="uid-2", revision=1)
    assert cache.refresh().uid == "uid-2"


def test_routing_is_asked_for_again_when_it_is_old() -> None:
    """Within some seconds it comes from memory, afterwards from the controller."""
    fleet = a_fleet()
    cache = fleet.cache()
    for _ in range(3):
        cache.get()
    assert fleet.routings == 1
    fleet.seconds.now += 6
    cache.get()
    assert fleet.routings == 2


def test_routing_outlives_the_controller() -> None:
    """While the controller is away what is known holds, and it is not asked at every read."""
    fleet = a_fleet()
    cache = fleet.cache()
    known = cache.get()
    fleet.controller_down = True
    fleet.seconds.now += 60
    assert cache.get() == known
    assert cache.refresh() == known
    cache.hold(1, 10)
    fleet.controller_down = False
    fleet.route(current=0)
    fleet.seconds.now += 60
    assert cache.get().revision == known.revision + 1


def test_a_controller_that_was_never_there_is_an_error() -> None:
    """Without anything known the controller's absence is said."""
    fleet = a_fleet()
    fleet.controller_down = True
    with pytest.raises(Unreachable) as caught:
        fleet.cache().get()
    assert caught.value.code == "controller_unreachable"


def test_a_node_that_knows_more_makes_the_next_read_ask() -> None:
    """Only another current version at a later revision does; nothing older, and nothing else that changed."""
    fleet = a_fleet()
    cache = fleet.cache()
    known = cache.get()
    cache.notice(current=7, revision=known.revision)
    cache.notice(current=known.current, revision=known.revision + 1)
    cache.get()
    assert fleet.routings == 1
    cache.notice(current=7, revision=known.revision + 1)
    cache.get()
    assert fleet.routings == 2
