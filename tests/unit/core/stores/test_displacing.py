"""Who may end whose rebuild: the whole table."""

from __future__ import annotations

import itertools

import pytest

from anew.core.errors import Refused
from anew.core.stores.displacing import MAY_KILL, displaced
from anew.core.stores.store import IN_THE_MAKING, RebuildKind, VersionStatus
from anew.testing.builders import FABRIC, a_store, a_version

K = RebuildKind
S = VersionStatus
_PAIRS = list(itertools.product(RebuildKind, repeat=2))


@pytest.mark.case("stores:H2")
def test_the_table_answers_for_every_pair() -> None:
    """Whatever comes and whatever runs, the table says who ends: a user's push ends upkeep, nothing else ends any."""
    assert set(MAY_KILL) == set(_PAIRS)
    assert {pair for pair, may in MAY_KILL.items() if may} == {
        (K.FULL_PUSH, K.REPUSH),
        (K.FULL_PUSH, K.TTL_REPUSH),
    }


@pytest.mark.case("stores:H2")
@pytest.mark.parametrize(("incoming", "running"), _PAIRS)
@pytest.mark.parametrize("status", sorted(IN_THE_MAKING))
def test_what_is_in_the_way_ends_or_refuses(incoming: RebuildKind, running: RebuildKind, status: VersionStatus) -> None:
    """At every stage of what runs, the table alone decides whether it is displaced or the new one is refused."""
    making = a_version(2, status, kind=running)
    store = a_store(versions=(a_version(1), making), current={FABRIC: 1})
    if MAY_KILL[incoming, running]:
        assert displaced(store, incoming, (FABRIC,)) == (making,)
        return
    with pytest.raises(Refused) as caught:
        displaced(store, incoming, (FABRIC,))
    assert (caught.value.code, caught.value.hint) == ("rebuild_running", "wait for it, or: anew rebuild kill rebuild-2")


@pytest.mark.case("stores:H2")
@pytest.mark.parametrize("incoming", list(RebuildKind))
def test_nothing_is_in_the_way_of_the_first(incoming: RebuildKind) -> None:
    """With no version in the making nothing is displaced, whatever became of those before."""
    ended = [a_version(n, status) for n, status in enumerate((S.FAILED, S.KILLED, S.BACKUP, S.RETIRED), 2)]
    assert displaced(a_store(versions=(a_version(1), *ended), current={FABRIC: 1}), incoming, (FABRIC,)) == ()


@pytest.mark.case("stores:H10")
@pytest.mark.parametrize("incoming", list(RebuildKind))
def test_a_deferred_version_is_waited_for(incoming: RebuildKind) -> None:
    """A version that waits for its swap as was asked for stops every kind; one that could not be swapped does not."""
    waiting = a_version(2, S.DEFERRED, kind=K.REPUSH, defer_swap=True)
    store = a_store(versions=(a_version(1), waiting), current={FABRIC: 1})
    with pytest.raises(Refused) as caught:
        displaced(store, incoming, (FABRIC,))
    assert (caught.value.code, caught.value.hint) == (
        "swap_deferred",
        "anew swap flights 2, or give it up: anew rebuild kill rebuild-2",
    )
    stranded = waiting.model_copy(update={"defer_swap": False})
    assert displaced(store.model_copy(update={"versions": (a_version(1), stranded)}), incoming, (FABRIC,)) == ()


@pytest.mark.parametrize("status", sorted(IN_THE_MAKING | {S.DEFERRED}))
def test_what_is_in_another_fabric_is_in_nobodys_way(status: VersionStatus) -> None:
    """What loads or waits in one fabric refuses rebuilds that concern it, and none that is for another one."""
    making = a_version(2, statuses={"dc-1": status}, defer_swap=True)
    store = a_store(versions=(a_version(1), making), current={FABRIC: 1, "dc-1": 0}, fabrics=(FABRIC, "dc-1"))
    assert displaced(store, K.FULL_PUSH, (FABRIC,)) == ()
    with pytest.raises(Refused):
        displaced(store, K.FULL_PUSH, (FABRIC, "dc-1"))


def test_all_that_is_in_the_way_ends() -> None:
    """Of repushes in several fabrics a push for all ends each; one that may not be ended refuses it."""
    fabrics = {FABRIC: 1, "dc-1": 1}
    here = a_version(2, S.LOADING, kind=K.REPUSH)
    there = a_version(3, statuses={"dc-1": S.LOADING}, kind=K.REPUSH)
    store = a_store(versions=(here, there), current=fabrics, fabrics=tuple(fabrics))
    assert displaced(store, K.FULL_PUSH, tuple(fabrics)) == (here, there)
    push = store.model_copy(update={"versions": (here, there.model_copy(update={"kind": K.FULL_PUSH}))})
    with pytest.raises(Refused) as caught:
        displaced(push, K.FULL_PUSH, tuple(fabrics))
    assert (caught.value.code, "by rebuild-3" in str(caught.value.found)) == ("rebuild_running", True)


@pytest.mark.parametrize("status", [S.LOADING, S.CURRENT, S.DEFERRED])
def test_what_another_fabric_has_or_loads_is_not_ended_for_one(status: VersionStatus) -> None:
    """A rebuild is of all its fabrics: a push for one of them waits where another one has it, or will."""
    making = a_version(2, statuses={FABRIC: status, "dc-1": S.LOADING}, kind=K.REPUSH)
    store = a_store(versions=(making,), current={FABRIC: 0, "dc-1": 0}, fabrics=(FABRIC, "dc-1"))
    with pytest.raises(Refused) as caught:
        displaced(store, K.FULL_PUSH, ("dc-1",))
    assert caught.value.code == "rebuild_running"
