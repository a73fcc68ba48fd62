"""Retention as the reconciler carries it out: chains of repushes, step by step (cases H7 and H8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anew.api.stores.requests import HoldVersion, RollBack, UpdateStore
from anew.core.errors import Refused
from anew.core.stores.longreads import MAX_HOLD_TOTAL_SECONDS
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.log.interface import topic_partition
from tests.component.controller.harness import LIMITS, Cluster, opened_cluster, plain, refused

_WAIT_SECONDS = 90
_GRACE_SECONDS = 600
_WEEK_SECONDS = 7 * 86_400
_TTL = RepushRequest(RepushProperties(ttl=True, ttl_seconds=100))


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster in which a version between two plain repushes stays for a minute and a half."""
    with opened_cluster(tmp_path, replace(LIMITS, repush_source_wait_seconds=_WAIT_SECONDS)) as opened:
        yield opened


def _chain(cluster: Cluster, *requests: RepushRequest) -> None:
    """A full push, then repushes, each made from the one before."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    for request in requests:
        cluster.serve(cluster.repush_plan(request=request))


def _collected(cluster: Cluster) -> list[dict[str, Any]]:
    """What a dry run of gc says of the store."""
    told = cluster.http.post("/v1/gc", json={"store": "flights", "dry_run": True}).json()
    items: list[dict[str, Any]] = told["items"]
    return items


def _statuses(cluster: Cluster) -> list[str]:
    return [cluster.status(number) for number in range(1, cluster.store().next_version)]


@pytest.mark.case("stores:H7")
def test_the_middle_of_a_chain_goes_after_the_wait(short: Cluster) -> None:
    """7 → 8 → 9, both plain: 8 goes after the short wait and the grace, 7 stays to roll back to for its retention."""
    _chain(short, RepushRequest(), RepushRequest())
    middle, first = short.version(2).path, short.version(1).path
    short.pass_seconds(_WAIT_SECONDS - 0.001)
    short.settle(2)
    assert _statuses(short) == ["backup", "backup", "current"]
    short.pass_seconds(0.001)
    short.settle(1)
    assert (_statuses(short), short.files(middle) != []) == (["backup", "retired", "current"], True)
    why = "version 3 holds the same data, and it was a backup for 90 s"
    (noted,) = [row for row in short.client.reclaims() if row.id.startswith(f"{middle}@")]
    assert (noted.kind, noted.reason) == ("tree", f"flights: {why}")
    short.pass_seconds(_GRACE_SECONDS)
    short.settle(1)
    assert (_statuses(short), short.files(middle)) == (["backup", "reclaimed", "current"], [])
    assert len(short.files(first)) == 2
    assert plain(short.client.roll_back("flights", RollBack()))["done"] == {"dc-0": {"before": 3, "after": 1}}


@pytest.mark.case("stores:H7")
def test_the_first_of_a_chain_goes_after_its_retention(short: Cluster) -> None:
    """Its retention counts from when it became a backup, however many repushes came since; then nothing is left."""
    _chain(short, RepushRequest())
    short.pass_seconds(_WEEK_SECONDS - _WAIT_SECONDS)
    short.serve(short.repush_plan())
    short.pass_seconds(_WAIT_SECONDS)
    short.settle(1)
    assert _statuses(short) == ["retired", "backup", "current"], "else there would be nothing to go back to"
    short.pass_seconds(_WEEK_SECONDS)
    short.settle(2)
    assert _statuses(short) == ["reclaimed", "retired", "current"]
    assert refused(Refused, lambda: short.client.roll_back("flights", RollBack())).code == "no_backup"


@pytest.mark.case("stores:H7")
def test_the_source_of_a_ttl_repush_is_a_real_backup(short: Cluster) -> None:
    """A time to live drops data: what it was made from is kept like a backup, and the chain begins anew behind it."""
    _chain(short, RepushRequest(), _TTL, RepushRequest(), RepushRequest())
    assert [version.kind.value for version in short.store().versions] == [
        "full_push",
        "repush",
        "ttl_repush",
        "repush",
        "repush",
    ]
    short.pass_seconds(_WAIT_SECONDS)
    short.settle(2)
    assert _statuses(short) == ["backup", "backup", "backup", "retired", "current"]
    short.pass_seconds(_WEEK_SECONDS)
    short.settle(2)
    assert _statuses(short)[:3] == ["retired", "retired", "retired"]


@pytest.mark.case("stores:H7", "stores:H8", "rules:R15")
def test_what_is_read_or_made_from_stays(short: Cluster) -> None:
    """A version between two repushes stays while a long read holds it or a running rebuild reads it; then it goes."""
    _chain(short, RepushRequest(), RepushRequest())
    short.client.hold_version("flights", HoldVersion(version=2, seconds=200))
    short.pass_seconds(199)
    short.settle(2)
    assert short.status(2) == "backup"
    named = RepushRequest(RepushProperties(input_topic="flights_v2"), allow_not_serving=True)
    rebuild = short.begin(short.repush_plan(request=named))
    short.pass_seconds(15)
    short.beat(rebuild)
    short.settle(2)
    assert short.status(2) == "backup"
    short.client.kill_rebuild(rebuild.id)
    short.settle(1)
    assert _statuses(short) == ["backup", "retired", "current", "retired"]


@pytest.mark.case("stores:H8", "stores:H9")
def test_a_rollback_in_a_chain_keeps_both_ends(short: Cluster) -> None:
    """Back at an earlier version, the one that was left is kept for its own retention, and so is the way back."""
    _chain(short, RepushRequest(), RepushRequest())
    short.client.roll_back("flights", RollBack())
    assert _statuses(short) == ["backup", "current", "rolled_back"]
    short.pass_seconds(2 * _WAIT_SECONDS)
    short.settle(2)
    assert _statuses(short) == ["backup", "current", "rolled_back"]
    short.pass_seconds(_WEEK_SECONDS)
    short.settle(1)
    assert _statuses(short) == ["retired", "current", "retired"]


@pytest.mark.case("rules:R15")
def test_a_hold_that_is_renewed_ends_for_good(short: Cluster) -> None:
    """However often reads renew their holds, under whichever ids, a version goes a day after it was last current."""
    _chain(short, RepushRequest(), RepushRequest())

    def renewed(hold: str | None) -> HoldVersion:
        return HoldVersion(version=2, seconds=600, hold=hold)

    short.pass_seconds(MAX_HOLD_TOTAL_SECONDS - 300)
    for hold in (None, "mine", "another"):
        short.client.hold_version("flights", renewed(hold))
    (why,) = [item["why"] for item in _collected(short) if item["name"] == "2"]
    assert "held by a long read (at most until " in why
    short.settle(2)
    assert short.status(2) == "backup", "held"
    short.pass_seconds(300)
    for hold in (None, "mine", "a third"):
        error = refused(Refused, lambda hold=hold: short.client.hold_version("flights", renewed(hold)))  # type: ignore[misc]  # bound now
        assert error.code == "hold_over"
        assert f"{MAX_HOLD_TOTAL_SECONDS} s" in str(error.expected)
    short.settle(2)
    assert short.status(2) == "retired"
    for _ in range(3):
        short.client.hold_version("flights", HoldVersion(version=3, seconds=600, hold="scan"))
        short.pass_seconds(MAX_HOLD_TOTAL_SECONDS)


@pytest.mark.case("stores:H7", "rules:R2", "rules:R9")
def test_what_lacks_a_feed_is_nothing_to_go_back_to(tmp_path: Path) -> None:
    """Of a store that became hybrid the batch version is no target: the repush between stays, and what it needs."""
    with opened_cluster(tmp_path) as cluster:
        cluster.create(hybrid=False, rewind_seconds=0)
        cluster.serve(cluster.push_plan())
        cluster.client.update_store("flights", UpdateStore(settings={"hybrid": True}))
        cluster.settle(2)
        cluster.serve(cluster.repush_plan())
        cluster.settle(2)
        (feed,) = cluster.store().feeds
        acknowledged = cluster.write(feed, 50)
        cluster.settle(2)
        cluster.serve(cluster.repush_plan())
        for _ in range(6):
            cluster.pass_seconds(1_300)
            cluster.settle(3)
        assert [version.number for version in cluster.store().versions] == [1, 2, 3]
        begins = [cluster.log.offsets(topic_partition(feed, p)).begin for p in range(feed.partitions)]
        assert all(begins[at.partition] <= offset for at, offset in acknowledged)
        assert cluster.client.roll_back("flights", RollBack()).done["dc-0"].after == 2
