"""Partitioners of a user's own and sub-partitions: how they are taken, shown, and waited for."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.stores.requests import CreateStore, UpdateStore
from anew.api.stores.views import StoreDetail
from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest
from anew.core.feed import FeedPartition
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from tests.component.controller.harness import Cluster, node_report, plain, refused

_SOURCE = """
import numpy as np
import pyarrow as pa

class Mine:
    def __init__(self, partitions, shift=0):
        self.partitions, self.shift = partitions, shift

    def __call__(self, keys):
        lengths = np.array([len(key) + self.shift for key in keys.to_pylist()], dtype=np.int32)
        return pa.array(lengths % self.partitions, pa.int32())
"""
_OTHER = _SOURCE.replace("len(key) +", "2 * len(key) +")
_BROKEN = _SOURCE.replace("% self.partitions", "+ self.partitions")
_SETTINGS: dict[str, Any] = {"hybrid": True, "rt_partitions": 4, "replicas": 1, "partitions": 2}


def _digest(source: str) -> str:
    return value_hash(source)[:16]


def _create(cluster: Cluster, source: str | None = _SOURCE, **settings: Any) -> StoreDetail:
    request = CreateStore(
        name="flights",
        key_schema=KEY_SCHEMA,
        value_schema=VALUE_SCHEMA,
        settings={**_SETTINGS, "partitioner": "mine:Mine", **settings},
        partitioner_source=source,
    )
    return cluster.client.create_store(request)


def _update(cluster: Cluster, source: str | None = None, **settings: Any) -> StoreDetail:
    return cluster.client.update_store("flights", UpdateStore(settings=settings, partitioner_source=source))


@pytest.mark.case("stores:H6")
def test_a_partitioner_comes_with_its_source(cluster: Cluster) -> None:
    """Versions, clients and nodes get the source; views show its hash in its place."""
    view = _create(cluster)
    assert (view.config.partitioner, view.config.partitioner_source) == ("mine:Mine", _digest(_SOURCE))
    cluster.serve(cluster.push_plan())
    assert cluster.version(1).config.partitioner_source == _SOURCE
    assert cluster.client.routing("flights").versions[1].config.partitioner_source == _SOURCE
    desired = cluster.client.desired("node-1", "dc-0")
    assert desired is not None
    assert desired.stores[0].versions[0].config.partitioner_source == _SOURCE
    shown = cluster.client.store("flights").fabrics["dc-0"].versions[0].config
    assert shown.partitioner_source == _digest(_SOURCE)
    plan = plain(cluster.client.rebuilds(store="flights")[0].plan)
    assert plan["target"]["config"]["partitioner_source"] == _digest(_SOURCE)


@pytest.mark.case("stores:H4", "stores:H6")
def test_another_source_is_a_pending_change(cluster: Cluster) -> None:
    """The same name with other code waits for the next version, is shown by both hashes, and a repush takes it up."""
    _create(cluster)
    cluster.serve(cluster.push_plan())
    assert _update(cluster, _SOURCE, partitioner="mine:Mine").pending == ()
    pending = _update(cluster, _OTHER, partitioner="mine:Mine").pending
    assert plain(pending) == [{"setting": "partitioner_source", "now": _digest(_SOURCE), "wanted": _digest(_OTHER)}]
    cluster.pass_seconds(1)
    plan = cluster.repush_plan()
    assert ([change.setting for change in plan.changes], plan.path) == (["partitioner_source"], "general")
    cluster.serve(plan)
    assert [v.config.partitioner_source for v in cluster.store().versions] == [_SOURCE, _OTHER]
    assert cluster.client.store("flights").pending == ()
    shown = plain(cluster.client.rebuilds(store="flights")[0].plan)
    assert shown["source"]["config"]["partitioner_source"] == _digest(_SOURCE)
    assert shown["changes"] == [{"setting": "partitioner_source", "now": _digest(_SOURCE), "wanted": _digest(_OTHER)}]


def test_going_back_to_the_built_in_one_needs_no_source(cluster: Cluster) -> None:
    """With the partitioner goes its source; parameters may change without it being sent again."""
    _create(cluster)
    cluster.serve(cluster.push_plan())
    changed = _update(cluster, partitioner_params='{"shift": 1}')
    assert [change.setting for change in changed.pending] == ["partitioner_params"]
    view = _update(cluster, partitioner="xxhash64", partitioner_params="{}")
    assert plain(view.pending) == [
        {"setting": "partitioner", "now": "mine:Mine", "wanted": "xxhash64"},
        {"setting": "partitioner_source", "now": _digest(_SOURCE), "wanted": None},
    ]
    assert cluster.store().config.partitioner_source == ""


_BAD: list[tuple[str | None, dict[str, Any], str]] = [
    (_BROKEN, {"partitioner": "mine:Mine"}, "bad_partitioner"),
    (_BROKEN, {}, "bad_partitioner"),
    ("raise ValueError('not today')", {}, "bad_partitioner"),
    (_SOURCE, {"partitioner": "mine:Theirs"}, "bad_partitioner"),
    (None, {"partitioner": "other:Mine"}, "bad_partitioner"),
    (None, {"partitioner_params": '{"nonsense": 1}'}, "bad_partitioner"),
    (_SOURCE, {"partitioner": "xxhash64"}, "contradiction"),
]


@pytest.mark.parametrize(("source", "settings", "code"), _BAD)
def test_a_partitioner_that_cannot_be_used_changes_nothing(
    cluster: Cluster, source: str | None, settings: dict[str, Any], code: str
) -> None:
    """Code that fails on sample keys, that lacks the class, or that nobody asked for is refused, however it came."""
    _create(cluster)
    before = cluster.store()
    assert refused(InvalidRequest, lambda: _update(cluster, source, **settings)).code == code
    assert cluster.store() == before


def test_what_a_partitioner_costs_is_noted(cluster: Cluster) -> None:
    """The view says how many partitions of a feed each replica must read, and how many it would under the default."""
    assert _create(cluster).notes == (
        "under mine:Mine each replica reads all 4 partitions of a feed; under xxhash64 it would read 2",
    )
    assert _update(cluster, partitioner="xxhash64").notes == ()
    cluster.create("batch", hybrid=False)
    assert cluster.client.store("batch").notes == ()


@pytest.mark.case("rules:R17")
def test_under_it_every_feed_partition_counts(cluster: Cluster) -> None:
    """A replica that lacks records of a feed partition that hashes elsewhere is not ready: its keys may be there."""
    _create(cluster)
    feed = cluster.store().feeds[0]
    cluster.write(feed, 20)
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)

    def lacking(replica: ReplicaReport) -> ReplicaReport:
        at = FeedPartition(feed.id, 1 - replica.partition % 2)
        return replica.model_copy(update={"position": replica.position.with_offset(at, 0)})

    for _ in range(4):
        for node in cluster.nodes:
            cluster.report(node, lacking)
        cluster.round()
        assert cluster.status(1) == "loading"
    cluster.settle(3)
    assert cluster.status(1) == "current"


# -- sub-partitions --------------------------------------------------------------------------------------------------


def _amplified(cluster: Cluster) -> None:
    cluster.create(amplification_factor=3)
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)


@pytest.mark.case("stores:H6", "rules:R17")
def test_a_partition_is_there_when_all_its_parts_are(cluster: Cluster) -> None:
    """While one sub-partition is not reported, is loading or is behind, the version is not ready; then it is."""
    _amplified(cluster)
    cluster.write(cluster.store().feeds[0], 20)

    def missing(replica: ReplicaReport) -> ReplicaReport | None:
        return None if replica.sub_partition == 2 else replica

    def loading(replica: ReplicaReport) -> ReplicaReport:
        return replica.model_copy(update={"state": ReplicaState.LOADING}) if replica.sub_partition == 1 else replica

    for change in (missing, loading):
        for _ in range(3):
            for node in cluster.nodes:
                cluster.report(node, change)
            cluster.round()
            assert (cluster.there(1).ready_target, cluster.status(1)) == (None, "loading")

    def behind(replica: ReplicaReport) -> ReplicaReport:
        at = max(replica.position)
        short = replica.position.with_offset(at, replica.position[at] - 1)
        return replica.model_copy(update={"position": short}) if replica.sub_partition == 0 else replica

    for _ in range(3):
        for node in cluster.nodes:
            cluster.report(node, behind)
        cluster.round()
        assert cluster.status(1) == "loading"
    assert cluster.there(1).ready_target is not None
    cluster.settle(3)
    assert cluster.status(1) == "current"


@pytest.mark.case("stores:J7")
def test_one_part_in_error_fails_the_version(cluster: Cluster) -> None:
    """The reason names the sub-partition."""
    _amplified(cluster)

    def broken(replica: ReplicaReport) -> ReplicaReport:
        error = {"state": ReplicaState.ERROR, "error": "a damaged base", "error_code": "checksum_mismatch"}
        return replica.model_copy(update=error) if replica.sub_partition == 1 else replica

    for node in cluster.nodes:
        cluster.report(node, broken)
    cluster.round()
    view = cluster.client.rebuilds(store="flights")[0]
    assert (view.status, "sub-partition 1: a damaged base" in str(view.error)) == ("failed", True)


def test_what_is_shown_of_a_partition_is_the_worst_of_its_parts(cluster: Cluster) -> None:
    """Lags of records add up, times do not, and the position that all have reached is the least."""
    _amplified(cluster)
    cluster.settle(4)
    feed = cluster.store().feeds[0]
    cluster.write(feed, 20)
    ends = cluster.ends(feed)

    def lagging(replica: ReplicaReport) -> ReplicaReport:
        sub = replica.sub_partition
        return replica.model_copy(update={"lag_records": sub, "lag_ms": 1_000 * sub})

    for node in cluster.nodes:
        cluster.report(node, lagging)
    fabric = cluster.client.store("flights").fabrics["dc-0"]
    assert (fabric.lag_records, fabric.lag_seconds) == (3, 2.0)
    assert cluster.client.position("flights") == ends
    held = [node.replicas for node in cluster.client.nodes()]
    assert held == [3, 3]
    cluster.client.report(node_report("node-2"))
    assert len(cluster.client.position("flights")) == 0
