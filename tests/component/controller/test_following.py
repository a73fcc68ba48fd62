"""Stores that jobs feed: a version that follows lives beside pushes, repushes and rollbacks until its job cuts over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anew.api.stores.replicas import ReplicaReport
from anew.api.stores.requests import RollBack, Seal, Swap
from anew.client.writer import Writer
from anew.controller.restore.findings import look
from anew.controller.restore.stores import rebuilt
from anew.core.errors import Refused
from anew.core.feed import FeedKind, PositionMap
from anew.core.ledger import Ledger
from anew.core.stores.jobfeeds import add_feed, drop_feed
from anew.core.stores.planning import PushOptions
from anew.core.stores.rebuild import Fingerprints
from anew.core.stores.store import Store, VersionStatus
from anew.segments.manifest import parse_manifest
from anew.testing.builders import FABRIC
from tests.component.controller.feeding import (
    announced,
    change,
    cut,
    cut_again,
    ends,
    feed_in_place,
    follow,
    known,
    put_out,
    readiness,
)
from tests.component.controller.harness import Cluster, opened_cluster, refused

_WEEK_SECONDS = 7 * 86_400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A store that takes no nearline writes, and has an empty version."""
    with opened_cluster(tmp_path) as cluster:
        cluster.create(hybrid=False)
        yield cluster


def _serve_empty(cluster: Cluster) -> int:
    """Push nothing, and have it served."""
    rebuild = cluster.begin(cluster.empty_push_plan())
    manifest = cluster.manifest_of(rebuild, empty=True)
    seal = Seal(
        epoch=rebuild.epoch,
        manifest=manifest,
        ledger=Ledger(),
        fingerprint=Fingerprints(source=0, target=0),
        records_per_s=1.0,
    )
    cluster.client.seal(rebuild.id, seal)
    cluster.until(lambda: cluster.client.rebuild(rebuild.id).status != "running")
    assert cluster.store().current == {FABRIC: rebuild.version}
    return rebuild.version


def _behind(replica: ReplicaReport) -> ReplicaReport:
    """A replica of a version that follows which has applied nothing yet."""
    return replica.model_copy(update={"position": PositionMap(dict.fromkeys(replica.position, 0))})


@pytest.mark.case("rules:R9")
def test_a_rewind_in_place_feeds_every_version(cluster: Cluster) -> None:
    """The generation's feed is in each version at once, its topic is made and stays open, and repushes take it over."""
    _serve_empty(cluster)
    feed = feed_in_place(cluster, 1)
    assert (feed.kind, feed.ready, feed.topic) == (FeedKind.GENERATION, True, "flights-clicks-1")
    put_out(cluster, feed, 20)
    cluster.settle(3)
    assert cluster.version(1).feeds == (feed.id,)
    assert cluster.serve(cluster.repush_plan()) == 2
    assert cluster.version(2).feeds == (feed.id,)
    assert cluster.there(2).start == ends(cluster, feed)
    assert cluster.version(2).unpushed
    put_out(cluster, feed, 5, batch=1)
    assert (known(cluster, feed).open, cluster.client.status().problems) == (True, ())


@pytest.mark.case("rules:R9")
def test_a_feed_that_comes_during_a_rebuild_is_in_what_it_makes(cluster: Cluster) -> None:
    """The driver seals without knowing of it; the version applies it from its first record and is swapped in."""
    _serve_empty(cluster)
    rebuild = cluster.begin(cluster.repush_plan())
    feed = feed_in_place(cluster, 1)
    put_out(cluster, feed, 20)
    cluster.client.seal(rebuild.id, cluster.seal_of(rebuild, start=rebuild.plan.target.start))
    cluster.until(lambda: cluster.client.rebuild(rebuild.id).status == "succeeded")
    version = cluster.version(2)
    assert (version.feeds, cluster.store().current) == ((feed.id,), {FABRIC: 2})
    assert cluster.there(2).start == PositionMap(dict.fromkeys(feed.feed_partitions(), 0))


@pytest.mark.case("rules:R9", "rules:R17")
def test_a_parallel_rewind_from_its_begin_to_its_cut_back(cluster: Cluster) -> None:
    """An empty base is written and placed, replicas catch up beside repushes, and the job cuts over and back."""
    _serve_empty(cluster)
    old = feed_in_place(cluster, 1)
    put_out(cluster, old, 20)
    new, number = follow(cluster, 2, old)
    assert number == 2
    cluster.settle(3)
    there = cluster.there(number)
    assert there.manifest is not None
    manifest = parse_manifest(cluster.deep.get(there.manifest.path), there.manifest)
    assert (manifest.parts, len(manifest.sub_partitions), manifest.feeds) == ((), 2, (known(cluster, new),))
    assert [bool(nodes) for nodes in there.assignment.values()] == [True, True]
    put_out(cluster, new, 30)
    target = ends(cluster, new)
    for node in cluster.nodes:
        cluster.report(node, _behind)
    found = readiness(cluster, number, target)
    assert (found.caught_up, found.loaded, found.behind) == (False, True, 2)
    assert cluster.serve(cluster.repush_plan()) == 3
    assert (cluster.status(number), cluster.version(3).feeds) == ("following", (old.id,))
    cluster.settle(1)
    assert readiness(cluster, number, target).caught_up
    assert cut(cluster, number, old).current == {FABRIC: number}
    cluster.settle(2)
    assert (cluster.status(number), cluster.status(3)) == ("current", "backup")
    assert cluster.client.routing("flights").fed_by == ("clicks@2",)
    assert cut_again(cluster, new).current == {FABRIC: 3}
    assert cluster.store().schedule_held is None
    cluster.settle(2)
    assert (cluster.status(number), cluster.status(3)) == ("following", "current")


def test_what_is_announced_is_made_by_the_rounds(cluster: Cluster) -> None:
    """A job that dies after its commit leaves a version and a topic that the controller makes by itself."""
    _serve_empty(cluster)
    old = feed_in_place(cluster, 1)
    new, number = follow(cluster, 2, old)
    assert (known(cluster, new).ready, cluster.there(number).manifest) == (False, None)
    cluster.start_over()
    cluster.round()
    assert known(cluster, new).ready
    manifest = cluster.there(number).manifest
    assert manifest is not None
    change(
        cluster,
        "forget the base",
        lambda store: store.model_copy(
            update={
                "versions": tuple(
                    v.moved(v.fabrics, manifest=None) if v.number == number else v for v in store.versions
                )
            }
        ),
    )
    cluster.update(max_value_bytes=2_000_000)
    cluster.round()
    assert cluster.there(number).manifest == manifest, "what was written before is found, and not written again"


def test_a_topic_that_is_still_to_be_made_holds_up_no_rebuild(cluster: Cluster) -> None:
    """Between a job's commit and its topic, plans are made and begun: the feed is read from its first record."""
    _serve_empty(cluster)
    feed = announced(cluster, 1)
    change(cluster, "add feed", lambda store: add_feed(store, feed))
    plan = cluster.repush_plan()
    nothing = PositionMap(dict.fromkeys(feed.feed_partitions(), 0))
    assert (plan.source.end, plan.target.start, known(cluster, feed).ready) == (nothing, nothing, False)
    pushed = cluster.push_plan(options=PushOptions(supersede_job=True))
    assert pushed.target.start == nothing
    assert cluster.serve(plan) == 2
    assert known(cluster, feed).ready


def test_a_follower_waits_for_no_deadline(cluster: Cluster) -> None:
    """However long it takes to catch up, it neither fails nor is it told as a problem, and holds up no schedule."""
    _serve_empty(cluster)
    _, number = follow(cluster, 1)
    cluster.settle(2)
    cluster.update(repush_schedule="0 * * * *")
    for _ in range(8):
        cluster.pass_seconds(1_800)
        cluster.round()
    assert (cluster.status(number), cluster.client.status().problems) == ("following", ())
    assert cluster.launched, "a repush was due meanwhile, and began"


@pytest.mark.case("rules:R15")
def test_nobody_but_its_job_serves_or_reclaims_it(cluster: Cluster) -> None:
    """Swaps and rollbacks to it are refused, with --force too, and no retention is over for it."""
    _serve_empty(cluster)
    _, number = follow(cluster, 1)
    cluster.settle(2)
    for act in (
        lambda: cluster.client.swap("flights", Swap(version=number, force=True)),
        lambda: cluster.client.roll_back("flights", RollBack(to=number, force=True)),
    ):
        assert refused(Refused, act).code == "bad_transition"
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(3)
    assert cluster.status(number) == "following"
    shown = {version.number: version.status for version in cluster.client.store("flights").fabrics[FABRIC].versions}
    assert shown[number] is VersionStatus.FOLLOWING


@pytest.mark.case("rules:R9")
def test_what_others_wrote_is_not_cut_off(cluster: Cluster) -> None:
    """A store that was pushed to is no store for an empty base, whatever its job says."""
    cluster.serve(cluster.push_plan())
    old = feed_in_place(cluster, 1)
    error = refused(Refused, lambda: follow(cluster, 2, old))
    assert (error.code, error.found) == ("store_has_other_writers", "rows that flights_v1 was pushed with")


def test_nearline_writes_are_other_writers(tmp_path: Path) -> None:
    """Records in the store's own topic would be missing: refused, once there is one."""
    with opened_cluster(tmp_path) as cluster:
        cluster.create()
        _serve_empty(cluster)
        feed_of_writers = cluster.store().feeds[0]
        _, number = follow(cluster, 1)
        assert cluster.version(number).feeds[0] == feed_of_writers.id
        cluster.write(feed_of_writers, 1)
        error = refused(Refused, lambda: follow(cluster, 2))
        assert (error.code, error.found) == ("store_has_other_writers", f"nearline writes in {feed_of_writers.id}")


@pytest.mark.case("rules:R10")
def test_a_store_of_jobs_takes_no_writes_and_says_why(cluster: Cluster) -> None:
    """Its topics accept what jobs append; a writer is told that a job feeds the store."""
    _serve_empty(cluster)
    feed = feed_in_place(cluster, 1)
    cluster.settle(3)
    put_out(cluster, feed, 1)
    routing = cluster.client.routing("flights")
    assert (routing.feed, routing.fed_by) == (None, ("clicks@1",))
    error = refused(Refused, lambda: Writer(routing, cluster.log))
    assert (error.code, "clicks@1" in str(error.found)) == ("not_hybrid", True)


@pytest.mark.case("rules:R10")
def test_ending_nearline_writes_leaves_a_job_s_feed_open(tmp_path: Path) -> None:
    """A hybrid store that a job feeds goes to batch: its own topic closes at a stop, the job's goes on without one."""
    with opened_cluster(tmp_path) as cluster:
        cluster.create()
        _serve_empty(cluster)
        own = cluster.store().feeds[0]
        job = feed_in_place(cluster, 1)
        cluster.write(own, 10)
        put_out(cluster, job, 10)
        cluster.update(hybrid=False)
        assert cluster.serve(cluster.repush_plan()) == 2
        version = cluster.version(2)
        assert version.stop == ends(cluster, own)
        assert (known(cluster, own).open, known(cluster, job).open) == (False, True)
        put_out(cluster, job, 10, batch=1)
        assert cluster.serve(cluster.repush_plan()) == 3
        assert cluster.version(3).stop == version.stop
        assert cluster.client.status().problems == ()


def test_a_full_push_must_be_meant(cluster: Cluster) -> None:
    """Refused into a store that a job feeds; where it is meant, the job's records count from the input's time on."""
    _serve_empty(cluster)
    feed = feed_in_place(cluster, 1)
    put_out(cluster, feed, 10)
    assert refused(Refused, cluster.push_plan).code == "fed_by_job"
    number = cluster.serve(cluster.push_plan(options=PushOptions(supersede_job=True)))
    assert (cluster.version(number).feeds, cluster.version(number).unpushed) == ((feed.id,), False)
    assert refused(Refused, lambda: follow(cluster, 2, feed)).code == "store_has_other_writers"


@pytest.mark.case("rules:R2")
def test_a_job_s_feed_is_truncated_below_what_its_versions_need(cluster: Cluster) -> None:
    """A version that replaces it does not hold it back; its own feed stays whole for its empty base."""
    cluster.update(rewind_seconds=0, backup_retention_seconds=0)
    _serve_empty(cluster)
    old = feed_in_place(cluster, 1)
    put_out(cluster, old, 40)
    new, _ = follow(cluster, 2, old)
    cluster.settle(2)
    put_out(cluster, new, 40)
    cluster.serve(cluster.repush_plan())
    cluster.pass_seconds(4_000)
    cluster.until(lambda: cluster.status(1) in ("retired", "reclaimed"))
    for _ in range(4):
        cluster.pass_seconds(5)
        cluster.round()
    assert known(cluster, old).low_water == tuple(ends(cluster, old).values())
    assert known(cluster, new).low_water == (0,) * new.partitions


@pytest.mark.case("rules:R9")
def test_a_feed_goes_after_its_versions(cluster: Cluster) -> None:
    """The feed of a generation that was cut off leaves the store once nothing names it."""
    cluster.update(backup_retention_seconds=0)
    _serve_empty(cluster)
    old = feed_in_place(cluster, 1)
    _, number = follow(cluster, 2, old)
    cluster.settle(2)
    cut(cluster, number, old)
    assert refused(Refused, lambda: change(cluster, "drop feed", lambda s: drop_feed(s, old.id))).code == "feed_in_use"
    for _ in range(4):
        cluster.pass_seconds(700)
        cluster.settle(2)
    assert cluster.status(1) == "reclaimed"
    assert [feed.id for feed in change(cluster, "drop feed", lambda s: drop_feed(s, old.id)).feeds] == [
        feed.id for feed in cluster.store().feeds if feed.id != old.id
    ]


def test_a_restored_catalog_knows_what_follows(cluster: Cluster) -> None:
    """By its record a follower follows on, its base written or not, and does not serve for a version that is lost."""
    _serve_empty(cluster)
    old = feed_in_place(cluster, 1)
    _, number = follow(cluster, 2, old)
    unwritten = _restored(cluster, cluster.store())
    assert unwritten.status_of(number) == "following"
    cluster.settle(3)
    written = _restored(cluster, cluster.store())
    assert (written.status_of(number), written.current) == ("following", {FABRIC: 1})
    cluster.deep.delete_tree(cluster.version(1).path)
    lost = _restored(cluster, cluster.store())
    assert (lost.status_of(1), lost.status_of(number), lost.current) == ("failed", "following", {FABRIC: 0})


def test_without_a_record_what_a_push_made_serves(cluster: Cluster) -> None:
    """Nobody knows whether a job has cut over to what followed it; what was begun after a record is left out."""
    _serve_empty(cluster)
    old = feed_in_place(cluster, 1)
    before = cluster.store()
    _, number = follow(cluster, 2, old)
    cluster.settle(3)
    assert _restored(cluster, None).current == {FABRIC: 1}
    assert _restored(cluster, before).version(number) is None


def _restored(cluster: Cluster, record: Store | None) -> Store:
    (found,) = look(cluster.context.fabrics.values())
    made = rebuilt(replace(found, record=record), (FABRIC,), cluster.clock())
    assert made is not None
    return made.store
