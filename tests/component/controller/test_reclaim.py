"""What goes, when, and what never goes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anew.api.stores.requests import HoldVersion, RollBack
from anew.catalog.change import Change, PutReclaim, Reclaim
from anew.controller.stores.reclaim import collect
from anew.core.errors import Refused, Unreachable
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.log.interface import TopicPartition, TopicSpec
from anew.segments.layout import repair_path
from tests.component.controller.harness import Cluster, refused

_HOUR_SECONDS = 3_600
_WEEK_SECONDS = 7 * 86_400


def _two_versions(cluster: Cluster, **settings: Any) -> None:
    cluster.create(**settings)
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())


@pytest.mark.case("rules:R15")
def test_reclaim_is_two_steps(cluster: Cluster) -> None:
    """After its retention a backup is retired; its files go only after the grace; the current version's never."""
    _two_versions(cluster)
    old, new = cluster.version(1).path, cluster.version(2).path
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(1)
    assert (cluster.status(1), cluster.files(old) != []) == ("retired", True)
    cluster.pass_seconds(599)
    cluster.round()
    assert cluster.files(old) != []
    cluster.pass_seconds(1)
    cluster.round()
    assert (cluster.status(1), cluster.files(old)) == ("reclaimed", [])
    cluster.pass_seconds(10 * _WEEK_SECONDS)
    cluster.settle(3)
    assert (cluster.status(2), len(cluster.files(new))) == ("current", 2)


@pytest.mark.case("rules:R15")
def test_a_rollback_before_the_retirement_wins(cluster: Cluster) -> None:
    """Rolled back at the last moment, the backup serves and is not retired; the other one starts its own retention."""
    _two_versions(cluster)
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.client.roll_back("flights", RollBack())
    cluster.settle(3)
    assert (cluster.status(1), cluster.status(2)) == ("current", "rolled_back")
    assert len(cluster.files(cluster.version(1).path)) == 2


@pytest.mark.case("rules:R15")
def test_a_rollback_after_the_retirement_is_refused(cluster: Cluster) -> None:
    """Once retired no rollback, swap or repush can choose the version, though its files are still there."""
    _two_versions(cluster)
    plan = cluster.repush_plan(
        request=RepushRequest(RepushProperties(input_topic="flights_v1"), allow_not_serving=True)
    )
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(1)
    assert cluster.files(cluster.version(1).path) != []
    assert refused(Refused, lambda: cluster.client.roll_back("flights", RollBack())).code == "no_backup"
    assert refused(Refused, lambda: cluster.client.roll_back("flights", RollBack(to=1))).code == "bad_transition"
    assert refused(Refused, lambda: cluster.swap(1)).code == "bad_transition"
    assert refused(Refused, lambda: cluster.begin(plan)).code == "plan_outdated"
    assert cluster.store().current == {"dc-0": 2}


@pytest.mark.case("rules:R15")
def test_a_rollback_between_look_and_retirement_wins(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler decides again on what it commits: a rollback that came in between keeps the version."""
    _two_versions(cluster)
    cluster.pass_seconds(_WEEK_SECONDS)
    catalog = cluster.context.catalog
    commit, waiting = catalog.commit, [RollBack()]

    def raced(change: Change) -> bool:
        if waiting and change.operation.what == "retire version":
            cluster.client.roll_back("flights", waiting.pop())
        return commit(change)

    monkeypatch.setattr(catalog, "commit", raced)
    cluster.round()
    assert waiting == []
    assert (cluster.status(1), cluster.store().current) == ("current", {"dc-0": 1})
    assert [r for r in cluster.client.reclaims() if r.kind == "tree"] == []


def test_a_source_of_a_running_rebuild_is_kept(cluster: Cluster) -> None:
    """A backup whose retention ends while it is read is retired only when the rebuild has ended."""
    _two_versions(cluster)
    allowed = RepushRequest(RepushProperties(input_topic="flights_v1"), allow_not_serving=True)
    rebuild = cluster.begin(cluster.repush_plan(request=allowed))
    cluster.seal(rebuild)
    cluster.clock.advance(_WEEK_SECONDS * 1000)
    for node in cluster.nodes:
        cluster.report(node, lambda replica: None if replica.version == 3 else replica)
    collect(cluster.context, cluster.store())
    assert cluster.status(1) == "backup"
    cluster.client.kill_rebuild(rebuild.id)
    cluster.settle(2)
    assert cluster.status(1) == "retired"


@pytest.mark.case("rules:R15")
def test_only_files_of_ended_attempts_are_orphans(cluster: Cluster) -> None:
    """Beside a sealed version, files that its manifest does not name go after the grace; files of nobody known stay."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    directory = cluster.version(1).path
    cluster.deep.put(f"{directory}/base/p00000-s00-attempt-9.parquet", b"of a task that ran twice")
    strangers = [f"stores/{cluster.store().uid}/v9/somebody-e1/base/x.parquet", "stores/unknown/v1/r-e1/x.parquet"]
    for path in strangers:
        cluster.deep.put(path, b"whose is this?")
    cluster.seal(rebuild)
    named = sorted(p for p in cluster.files(directory) if "attempt-9" not in p)
    cluster.settle()
    cluster.pass_seconds(599)
    cluster.settle(1)
    assert len(cluster.files(directory)) == len(named) + 1
    cluster.pass_seconds(2)
    cluster.settle(1)
    assert cluster.files(directory) == named
    cluster.pass_seconds(10 * _WEEK_SECONDS)
    cluster.settle(3)
    assert set(strangers) <= set(cluster.files())


@pytest.mark.case("rules:R15")
def test_a_note_about_an_unknown_owner_deletes_nothing(cluster: Cluster) -> None:
    """An intent whose store or version the catalog does not know, or that serves again, is dropped without an act."""
    _two_versions(cluster)
    uid = cluster.store().uid
    cluster.deep.put("stores/unknown/v1/r-e1/x.parquet", b"x")
    before = cluster.files()
    targets = [f"{uid}\n2", f"{uid}\n99", "unknown\n1"]
    puts = tuple(
        PutReclaim(Reclaim(f"{kind}-{n}", kind, "dc-0", target, 0, "a note of old"))
        for kind in ("tree", "orphans")
        for n, target in enumerate(targets)
    )
    cluster.context.catalog.commit(Change(cluster.context.operation("notes", "flights", "test"), puts))
    cluster.round()
    assert cluster.files() == before
    assert not {row.id for row in cluster.client.reclaims()} & {f"tree-{n}" for n in range(3)}


@pytest.mark.case("rules:R2", "stores:I5")
def test_the_log_is_truncated_below_low_water_only(cluster: Cluster) -> None:
    """What a backup or the next push may still need stays; the mark moves first, the log follows after the grace."""
    store = cluster.create(rewind_seconds=100)
    feed = store.feeds[0]
    cluster.serve(cluster.push_plan())
    cluster.write(feed, 40)
    cluster.pass_seconds(10)
    cluster.serve(cluster.repush_plan())
    starts = cluster.there(2).start
    cluster.write(feed, 10, "late")

    def begins() -> dict[int, int]:
        parts = range(feed.partitions)
        return {p: cluster.log.offsets(TopicPartition(feed.topic, feed.topic_uid, p)).begin for p in parts}

    cluster.pass_seconds(1_000)
    cluster.settle(2)
    cluster.pass_seconds(1_000)
    cluster.settle(2)
    assert set(begins().values()) == {0}, "version 1 is a backup and starts at 0"
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(2)
    cluster.pass_seconds(2)
    cluster.settle(1)
    assert cluster.store().feeds[0].low_water == tuple(starts.values())
    assert set(begins().values()) == {0}, "the catalog moves first"
    cluster.pass_seconds(601)
    cluster.settle(1)
    assert begins() == {at.partition: offset for at, offset in starts.items()}
    assert sum(begins().values()) == 40


def test_a_topic_that_is_gone_needs_no_truncation(cluster: Cluster) -> None:
    """A truncation that is due when its topic is gone is done, not tried for ever."""
    operation = cluster.context.operation("notes", "flights", "test")
    note = PutReclaim(Reclaim("truncate-1", "truncate", "dc-0", "gone_rt\nuid\n0\n5", 0, "below low water"))
    cluster.context.catalog.commit(Change(operation, (note,)))
    cluster.round()
    assert cluster.client.reclaims() == []


@pytest.mark.case("rules:R15")
def test_a_long_read_holds_its_version_for_a_while(cluster: Cluster) -> None:
    """A held backup outlives its retention until the hold ends; a retired one cannot be held any more."""
    _two_versions(cluster, backup_retention_seconds=_HOUR_SECONDS)
    cluster.pass_seconds(_HOUR_SECONDS - 60)
    cluster.client.hold_version("flights", HoldVersion(version=1, seconds=600))
    cluster.pass_seconds(599)
    cluster.settle(2)
    assert cluster.status(1) == "backup"
    cluster.pass_seconds(1)
    cluster.settle(1)
    assert cluster.status(1) == "retired"
    again = refused(Refused, lambda: cluster.client.hold_version("flights", HoldVersion(version=1, seconds=600)))
    assert again.code == "version_gone"


@pytest.mark.case("rules:R15")
def test_a_long_read_that_ends_lets_its_version_go(cluster: Cluster) -> None:
    """A version is kept as long as one of its reads holds it; holds of reads that never say so end by themselves."""
    _two_versions(cluster, backup_retention_seconds=_HOUR_SECONDS)
    cluster.pass_seconds(_HOUR_SECONDS - 60)
    client = cluster.client
    for hold, seconds in (("one", 600), ("two", 600), ("crashed", 70)):
        client.hold_version("flights", HoldVersion(version=1, seconds=seconds, hold=hold))
    cluster.pass_seconds(120)
    for hold in ("one", "one", "unknown"):
        client.hold_version("flights", HoldVersion(version=1, seconds=0, hold=hold))
        cluster.settle(2)
        assert cluster.status(1) == "backup"
    assert cluster.store().holds == {1: {"two": cluster.clock() + 480_000}}
    client.hold_version("flights", HoldVersion(version=1, seconds=0, hold="two"))
    assert cluster.store().holds == {}
    cluster.settle(1)
    assert cluster.status(1) == "retired"
    client.hold_version("flights", HoldVersion(version=1, seconds=0, hold="two"))


@pytest.mark.case("rules:R8")
def test_a_topic_that_got_more_partitions_is_told_of(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has those again that it was made with; a log that does not answer, or another topic, changes nothing."""
    store = cluster.create()
    feed = store.feeds[0]

    def told(found: TopicSpec | Unreachable) -> str:
        def topic(_name: str) -> TopicSpec:
            if isinstance(found, Unreachable):
                raise found
            return found

        with monkeypatch.context() as patch:
            patch.setattr(cluster.log, "topic", topic)
            cluster.pass_seconds(2)
            cluster.round()
        return " ".join(problem.what for problem in cluster.client.status().problems)

    spec = TopicSpec(feed.topic, feed.topic_uid, feed.partitions)
    assert "partitions" not in told(spec)
    assert f"has 9 partitions, and was made with {feed.partitions}" in told(replace(spec, partitions=9))
    assert "has 9 partitions" in told(Unreachable("log_unreachable", "the log does not answer"))
    assert "has 9 partitions" in told(replace(spec, uid="another"))
    assert "partitions" not in told(spec)


def test_what_killed_repairs_left_goes_with_a_version(cluster: Cluster, tmp_path: Path) -> None:
    """A repair that was killed long ago has left files that nobody names; one that is at work keeps its own."""
    _two_versions(cluster)
    store = cluster.store()
    left, at_work = (repair_path(store.uid, attempt) for attempt in ("attempt-1", "attempt-2"))
    day_later = cluster.clock() + (_WEEK_SECONDS + 600) * 1_000
    for directory, age_seconds in ((left, 2 * 86_400), (at_work, 60)):
        cluster.deep.put(f"{directory}/p0", b"rows")
        at_seconds = day_later / 1000 - age_seconds
        os.utime(tmp_path / "deep" / directory / "p0", (at_seconds, at_seconds))
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(1)
    cluster.pass_seconds(600)
    cluster.round()
    assert (cluster.status(1), cluster.files(left), len(cluster.files(at_work))) == ("reclaimed", [], 1)
