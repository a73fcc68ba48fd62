"""Time to live and dropped tombstones in a rebuild, on both paths."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anew.core.merge import Cell
from anew.core.stamp import BATCH, Stamp
from anew.core.stores.store import RebuildKind
from anew.testing.builders import ORIGIN
from anew.testing.clock import NOON_MS
from tests.spark.world import World

_START_MS = NOON_MS - 60_000
_DAY_SECONDS = 86_400
PATHS = pytest.mark.parametrize("path", ["general", "copartitioned"])


def _nearline(time_ms: int, value: bytes | None, offset: int = 0) -> Cell:
    return Cell(Stamp(time_ms, ORIGIN, False, 1, 0, offset), value, 0 if value is None else 1)


@pytest.mark.case("stores:F1", "stores:F2", "rules:R11")
@PATHS
def test_what_was_written_before_the_live_range_goes(make_world: Callable[..., World], path: str) -> None:
    """At the start of the live range a record stays, a millisecond earlier it expires, without a time it never goes."""
    world = make_world()
    kept = {b"at": _nearline(_START_MS, b"v"), b"batch": Cell(Stamp(0), b"v", 1)}
    world.base({**kept, b"before": _nearline(_START_MS - 1, b"v")})
    world.write(b"fresh", b"v")
    world.write(b"late", b"v", written_ms=_START_MS - 5)
    plan = world.repush_plan(path=path, ttl=True, ttl_start_ms=_START_MS)
    assert (plan.kind, plan.target.ttl_floor_ms) == (RebuildKind.TTL_REPUSH, _START_MS)
    manifest = world.seal(plan, *world.build_repush(plan))
    assert set(world.values(manifest)) == {b"at", b"batch", b"fresh"}
    assert manifest.ledger.counts()["expired"] == 2
    assert manifest.ledger.balances


@pytest.mark.case("stores:F7")
@PATHS
def test_an_expired_record_takes_what_it_superseded_with_it(make_world: Callable[..., World], path: str) -> None:
    """The newest record has expired, an older batch record never would: the key is gone."""
    world = make_world()
    world.base({b"k": Cell(Stamp(0, BATCH.encoded), b"from a batch", 1)})
    world.write(b"k", b"newest", written_ms=_START_MS - 1)
    manifest = world.repush(path=path, ttl=True, ttl_start_ms=_START_MS)
    assert world.values(manifest) == {}
    assert (manifest.ledger.counts()["expired"], manifest.ledger.counts()["superseded"]) == (1, 1)


@pytest.mark.case("stores:F8", "rules:R11")
@PATHS
def test_later_repushes_expire_by_the_same_floor(make_world: Callable[..., World], path: str) -> None:
    """What arrives after a TTL repush with an older time has expired too, and every later repush keeps the floor."""
    world = make_world()
    world.base({})
    world.repush(ttl=True, ttl_start_ms=_START_MS)
    world.write(b"old", b"v", written_ms=_START_MS - 1)
    world.write(b"new", b"v", written_ms=_START_MS + 1)
    manifest = world.repush(path=path)
    assert (manifest.ttl_floor_ms, world.values(manifest)) == (_START_MS, {b"new": b"v"})
    later = world.repush_plan(ttl=True, ttl_start_ms=_START_MS - 500)
    assert later.target.ttl_floor_ms == _START_MS, "the greater of both"


@pytest.mark.case("stores:F6", "rules:R12")
@PATHS
def test_an_old_tombstone_goes_and_the_older_put_stays_dead(make_world: Callable[..., World], path: str) -> None:
    """A tombstone older than the grace is dropped; the put that it hid does not come back, not even late."""
    world = make_world(tombstone_grace_seconds=_DAY_SECONDS)
    long_ago_ms = NOON_MS - 2 * _DAY_SECONDS * 1000
    world.base({b"k": Cell(Stamp(0), b"v", 1), b"young": Cell(Stamp(0), b"v", 1)})
    world.write(b"k", None, written_ms=long_ago_ms)
    world.write(b"young", None, written_ms=NOON_MS - 5_000)
    manifest = world.repush(path=path)
    assert world.values(manifest) == {b"young": None}
    assert (manifest.ledger.counts()["deleted"], manifest.tombstone_floor_ms) == (1, NOON_MS - _DAY_SECONDS * 1000)
    world.write(b"k", b"late", written_ms=long_ago_ms - 1)
    world.write(b"young", b"late", written_ms=NOON_MS - 6_000)
    world.write(b"fresh", b"v")
    manifest = world.repush(path=path)
    assert world.values(manifest) == {b"young": None, b"fresh": b"v"}
    assert manifest.ledger.counts()["skipped"] == 1
    assert manifest.ledger.balances
