"""Batch to hybrid and back: what a version applies, from where, up to where, and what it may be swapped with."""

from __future__ import annotations

import pytest

from anew.api.stores.requests import RollBack
from anew.core.errors import Refused
from anew.core.feed import PositionMap
from anew.core.partition import XxHash64Partitioner
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.log.interface import TopicPartition
from anew.testing.builders import append_records
from tests.component.controller.harness import Cluster, plain, refused

_HOUR_SECONDS = 3_600


def _zero(cluster: Cluster) -> PositionMap:
    return PositionMap(dict.fromkeys(cluster.store().feeds[0].feed_partitions(), 0))


@pytest.mark.case("stores:H5")
def test_batch_to_hybrid_opens_with_the_swap(cluster: Cluster) -> None:
    """The topic is made at once and closed; writes are taken when a hybrid version serves, which applies them all."""
    cluster.create(hybrid=False)
    cluster.serve(cluster.push_plan())
    view = cluster.update(hybrid=True)
    assert {"setting": "hybrid", "now": False, "wanted": True} in plain(view.pending)
    cluster.settle(1)
    (feed,) = cluster.store().feeds
    assert (feed.ready, feed.closed, cluster.client.routing("flights").feed) == (True, True, None)
    assert refused(Refused, lambda: cluster.write(feed, 1)).code == "topic_closed"
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)
    cluster.until(lambda: cluster.status(2) == "ready")
    assert (cluster.store().feeds[0].closed, cluster.client.routing("flights").feed) == (True, None)
    cluster.settle(2)
    version, feed = cluster.version(2), cluster.store().feeds[0]
    assert (version.status.value, version.feeds, version.fabrics["dc-0"].start, version.stop) == (
        "current",
        (feed.id,),
        _zero(cluster),
        None,
    )
    assert cluster.client.routing("flights").feed == feed
    assert len(cluster.write(feed, 10)) == 10
    error = refused(Refused, lambda: cluster.client.roll_back("flights", RollBack()))
    assert (error.code, error.expected) == ("feeds_missing", [feed.id])


@pytest.mark.case("stores:H5", "rules:R10")
def test_the_next_hybrid_version_starts_at_the_stop(cluster: Cluster) -> None:
    """Hybrid, batch, hybrid: the third goes on exactly where the second ended, and then writes are open again."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.write(store.feeds[0], 30)
    cluster.update(hybrid=False)
    cluster.serve(cluster.repush_plan())
    stop = cluster.version(2).stop
    assert (stop, sum(stop.values() if stop else ())) == (cluster.ends(store.feeds[0]), 30)
    cluster.update(hybrid=True)
    plan = cluster.repush_plan()
    assert (plan.source.end, plan.target.start, plan.target.stop) == (stop, stop, None)
    cluster.serve(plan)
    cluster.settle(1)
    acknowledged = cluster.write(cluster.store().feeds[0], 30, "again")
    version = cluster.version(3)
    assert (version.fabrics["dc-0"].start, version.stop) == (stop, None)
    assert all(version.fabrics["dc-0"].start[at] <= offset for at, offset in acknowledged)


@pytest.mark.case("rules:R9", "rules:R10")
def test_a_batch_store_goes_back_and_forth(cluster: Cluster) -> None:
    """Once writes ended, pushes and repushes hold the same of them: each can be gone back to from each."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.write(store.feeds[0], 30)
    cluster.update(hybrid=False)
    cluster.serve(cluster.repush_plan())
    stop = cluster.version(2).stop
    cluster.serve(cluster.repush_plan())
    cluster.serve(cluster.push_plan())
    folded = cluster.version(3)
    assert (folded.feeds, folded.fabrics["dc-0"].start, folded.stop) == ((store.feeds[0].id,), stop, stop)
    assert cluster.version(4).stop == stop
    for number in (3, 2, 4, 2, 3, 4):
        cluster.swap(number)
        cluster.settle(1)
        assert cluster.client.routing("flights").feed is None
    cluster.client.roll_back("flights", RollBack(to=3))
    assert cluster.store().current == {"dc-0": 3}


@pytest.mark.case("stores:H5", "rules:R10", "rules:R13")
def test_a_push_that_ends_writes_keeps_those_after_its_input(cluster: Cluster) -> None:
    """A full push into a store that is to become batch applies all that was written from its as-of time to the end."""
    feed = cluster.create(rewind_seconds=0).feeds[0]
    cluster.serve(cluster.push_plan())
    old = cluster.write(feed, 20, "old")
    cluster.pass_seconds(_HOUR_SECONDS)
    cluster.update(hybrid=False)
    plan = cluster.push_plan(as_of_ms=cluster.clock() - 60_000)
    assert (plan.target.stop, plan.target.start) == (None, cluster.ends(feed))
    acknowledged = cluster.write(feed, 20, "after-plan")
    push = cluster.begin(plan)
    acknowledged += cluster.write(feed, 20, "during")
    cluster.seal(push)
    cluster.until(lambda: cluster.version(2).closing)
    cluster.settle()
    version = cluster.version(2)
    assert (version.status.value, version.stop) == ("current", cluster.ends(feed))
    assert version.stop is not None
    assert all(version.fabrics["dc-0"].start[at] <= offset < version.stop[at] for at, offset in acknowledged)
    assert not any(version.fabrics["dc-0"].start[at] <= offset for at, offset in old)


@pytest.mark.case("rules:R10")
def test_writes_before_the_first_version_are_kept(cluster: Cluster) -> None:
    """What was written into a hybrid store that becomes batch before its first push is applied, and ends there."""
    feed = cluster.create().feeds[0]
    acknowledged = cluster.write(feed, 20)
    cluster.update(hybrid=False)
    cluster.settle(1)
    assert refused(Refused, lambda: cluster.write(feed, 1)).code == "topic_closed"
    cluster.serve(cluster.push_plan())
    stop = cluster.version(1).stop
    assert stop is not None
    assert (stop, cluster.there(1).start) == (cluster.ends(feed), _zero(cluster))
    assert all(offset < stop[at] for at, offset in acknowledged)


@pytest.mark.case("rules:R2", "rules:R10")
def test_what_a_batch_store_folded_in_may_be_forgotten(cluster: Cluster) -> None:
    """When no version needs the records below the stop any more, the log is truncated there, and repushes go on."""
    feed = cluster.create(rewind_seconds=0).feeds[0]
    cluster.serve(cluster.push_plan())
    cluster.write(feed, 30)
    cluster.update(hybrid=False)
    cluster.serve(cluster.repush_plan())
    cluster.pass_seconds(1)
    cluster.serve(cluster.push_plan())
    stop = cluster.version(3).stop
    cluster.pass_seconds(8 * 86_400)
    cluster.settle(2)
    cluster.pass_seconds(8 * 86_400)
    cluster.settle(2)
    cluster.pass_seconds(601)
    cluster.settle(1)
    assert stop is not None
    assert cluster.store().feeds[0].low_water == tuple(stop.values())
    begins = [cluster.log.offsets(TopicPartition(feed.topic, feed.topic_uid, p)).begin for p in range(feed.partitions)]
    assert begins == list(stop.values())
    cluster.serve(cluster.repush_plan())
    assert (cluster.there(4).start, cluster.version(4).stop, cluster.status(4)) == (stop, stop, "current")


@pytest.mark.case("rules:R12")
def test_an_end_before_the_log_s_end_drops_no_tombstone(cluster: Cluster) -> None:
    """A repush of a batch version that lacks later writes keeps its tombstones: an older write may still come."""
    feed = cluster.create(tombstone_grace_seconds=60, backup_retention_seconds=30 * 86_400).feeds[0]
    cluster.serve(cluster.push_plan())
    cluster.write(feed, 10)
    cluster.update(hybrid=False)
    cluster.serve(cluster.repush_plan())
    cluster.update(hybrid=True)
    cluster.client.roll_back("flights", RollBack())
    cluster.settle(2)
    at = TopicPartition(feed.topic, feed.topic_uid, XxHash64Partitioner(feed.partitions).of(b"k"))
    cluster.log.append(at, append_records([b"k"], [b"value"], [cluster.clock() - 1]))
    cluster.pass_seconds(86_400)
    properties = RepushProperties(input_topic="flights_v2")
    late = cluster.repush_plan(request=RepushRequest(properties, allow_not_serving=True))
    assert late.target.start == cluster.version(2).stop
    assert late.target.tombstone_floor_ms == cluster.version(2).tombstone_floor_ms
    assert cluster.repush_plan().target.tombstone_floor_ms == cluster.clock() - 60_000


@pytest.mark.case("rules:R12")
def test_clocks_that_differ_lose_no_write_to_the_cut(cluster: Cluster) -> None:
    """However short the grace, the cut stays as far behind the controller's clock as a writer's may be behind it."""
    cluster.create(tombstone_grace_seconds=0, skew_limit_seconds=7)
    cluster.serve(cluster.push_plan())
    assert cluster.repush_plan().target.tombstone_floor_ms == cluster.clock() - 7_000
