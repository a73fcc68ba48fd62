"""Beginning rebuilds: what is let in, what is turned away, and that a refusal leaves nothing."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from anew.api.models import Heartbeat
from anew.api.rebuilds import StoreRebuildView, view_as
from anew.api.stores.replicas import ReplicaReport
from anew.api.stores.requests import UpdateStore
from anew.catalog.change import Change, PutStore
from anew.core.errors import InvalidRequest, Refused, Unreachable
from anew.core.feed import PositionMap
from anew.core.rebuild import Progress, Stage
from anew.core.stores.plan import Plan
from anew.core.stores.planning import RepushRequest
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import Store
from anew.log.interface import Offsets, TopicPartition, TopicSpec
from tests.cluster.commands import wait_until
from tests.component.controller.harness import Cluster, plain, refused


def _nothing_begun(cluster: Cluster, before: Store) -> None:
    assert cluster.store() == before
    assert cluster.client.rebuilds(running=True) == []


@pytest.mark.case("stores:A1")
def test_a_rebuild_goes_from_plan_to_serving(cluster: Cluster) -> None:
    """Begin, build, seal, load, swap: statuses, stages, ledger and source are on record at each step."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.pass_seconds(1)
    rebuild = cluster.begin(cluster.repush_plan())
    assert [row["version"] for row in plain(cluster.client.rebuilds(store="flights"))] == [2, 1]
    assert (cluster.status(2), cluster.version(2).source_version) == ("building", 1)
    cluster.seal(rebuild)
    assert (cluster.status(2), cluster.client.rebuild(rebuild.id).stage) == ("loading", "load")
    cluster.settle()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, view.stage, view.error) == ("succeeded", "done", None)
    assert set(view.timings) >= {"begin", "load", "swap"}
    made = view_as(view, StoreRebuildView)
    assert made.ledger is not None
    assert made.fingerprint is not None
    assert (made.ledger.read, made.fingerprint.source) == (1, made.fingerprint.target)
    assert (cluster.status(1), cluster.status(2), cluster.store().current) == ("backup", "current", {"dc-0": 2})


def test_a_load_is_measured_in_replicas(cluster: Cluster) -> None:
    """The build is done with the seal, whatever its driver told last; then replicas load, and then they catch up."""
    store = cluster.create(replicas=2)
    rebuild = cluster.begin(cluster.push_plan())
    told = Progress(done=3, total=8, records=4, bytes=5, total_bytes=9)
    beat = Heartbeat(epoch=rebuild.epoch, stage=Stage.BUILD, progress=told)
    cluster.client.heartbeat(rebuild.id, beat)
    assert cluster.client.rebuild(rebuild.id).progress == told
    cluster.seal(rebuild)
    cluster.client.heartbeat(rebuild.id, beat)
    assert _progress(cluster, rebuild) == (0, 4, "replicas loaded")
    cluster.report("node-1", _behind)
    assert _progress(cluster, rebuild) == (2, 4, "replicas loaded")
    assert cluster.client.rebuilds(store="flights")[0].progress.done == 2
    cluster.write(store.feeds[0], 20)
    cluster.report("node-2", _behind)
    cluster.round()
    assert _progress(cluster, rebuild) == (0, 4, "replicas caught up")
    cluster.report("node-1")
    assert _progress(cluster, rebuild) == (2, 4, "replicas caught up")
    cluster.settle()
    whole = Progress(done=8, total=8, records=1, bytes=9, total_bytes=9)
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, view.progress) == ("succeeded", whole)


def _behind(replica: ReplicaReport) -> ReplicaReport:
    """It has loaded the base and applied nothing."""
    return replica.model_copy(update={"position": PositionMap(dict.fromkeys(replica.position, 0))})


def _progress(cluster: Cluster, rebuild: StoreRebuild) -> tuple[int, int, str]:
    found = cluster.client.rebuild(rebuild.id).progress
    return found.done, found.total, found.unit


def test_who_waits_for_a_stage_to_end_is_answered_when_it_does(cluster: Cluster) -> None:
    """A stage that is over, or an end, is told at once, and so is the present stage when the wait is over."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())

    def seconds_until(after: Stage, wait_seconds: float) -> tuple[str, float]:
        began = time.monotonic()
        view = cluster.client.rebuild(rebuild.id, after=after, wait_seconds=wait_seconds)
        return view.stage, time.monotonic() - began

    stage, seconds = seconds_until(Stage.BEGIN, 0.2)
    assert (stage, seconds >= 0.2) == ("begin", True)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(seconds_until, Stage.BEGIN, 30.0)
        wait_until(lambda: cluster.watch.waiting == 1, "the wait")
        cluster.seal(rebuild)
        stage, seconds = waiting.result(timeout=20)
        assert (stage, seconds < 20) == ("load", True)
        waiting = pool.submit(seconds_until, Stage.LOAD, 30.0)
        wait_until(lambda: cluster.watch.waiting == 1, "the wait")
        cluster.client.kill_rebuild(rebuild.id)
        assert waiting.result(timeout=20)[1] < 20
    assert seconds_until(Stage(cluster.client.rebuild(rebuild.id).stage), 30.0)[1] < 20


def test_a_controller_that_stops_lets_followers_go(cluster: Cluster) -> None:
    """They are told of the present stage at once, and the rest of their wait is nobody's work."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        waiting = pool.submit(cluster.client.rebuild, rebuild.id, after=Stage.BEGIN, wait_seconds=30.0)
        wait_until(lambda: cluster.watch.waiting == 1, "the wait")
        cluster.watch.close()
        assert waiting.result(timeout=60).stage == "begin"
        assert time.monotonic() - began < 20


@pytest.mark.case("stores:H1", "rules:R22")
def test_the_same_request_is_the_same_rebuild(cluster: Cluster) -> None:
    """Asking twice with one request id, even after the end, gives one version; another plan under it is refused."""
    cluster.create()
    plan = cluster.push_plan()
    first, again = cluster.begin(plan, "r-1"), cluster.begin(plan, "r-1")
    assert first.id == again.id
    assert len(cluster.store().versions) == 1
    cluster.client.kill_rebuild(first.id)
    assert cluster.begin(plan, "r-1").id == first.id
    other = cluster.push_plan()
    error = refused(InvalidRequest, lambda: cluster.begin(other, "r-1"))
    assert (error.code, error.found) == ("request_id_reused", "r-1")
    assert plan.id in str(error.expected)
    assert len(cluster.store().versions) == 1


@pytest.mark.case("stores:H1", "rules:R22")
def test_the_same_request_planned_again_is_the_same_rebuild(cluster: Cluster) -> None:
    """A request is what was asked for: a later plan of it is answered with what the first began, another is refused."""
    cluster.create()
    first = cluster.begin(cluster.push_plan().model_copy(update={"asked": "push"}), "r-1")
    cluster.client.kill_rebuild(first.id)
    later = cluster.push_plan()
    assert cluster.begin(later.model_copy(update={"asked": "push"}), "r-1").id == first.id
    error = refused(InvalidRequest, lambda: cluster.begin(later.model_copy(update={"asked": "another"}), "r-1"))
    assert error.code == "request_id_reused"
    (found,) = cluster.client.begun_by("r-1")
    assert (found.id, found.plan.asked) == (first.id, "push")
    assert cluster.client.begun_by("r-2") == []


@pytest.mark.case("stores:H1", "rules:R22")
def test_one_request_at_once_from_many_is_one_rebuild(cluster: Cluster) -> None:
    """A begin that is under way several times makes one version, and everybody is told of it."""
    cluster.create()
    plan = cluster.push_plan()
    with ThreadPoolExecutor(4) as pool:
        begun = list(pool.map(lambda _: cluster.begin(plan, "r-1"), range(8)))
    assert len({rebuild.id for rebuild in begun}) == 1
    assert len(cluster.store().versions) == 1


def test_of_many_begins_at_once_one_wins(cluster: Cluster) -> None:
    """Different requests for one plan at one time: one version is begun, the others are refused with a reason."""
    cluster.create()
    plan = cluster.push_plan()

    def attempt(number: int) -> str:
        try:
            return cluster.begin(plan, f"r-{number}").id
        except Refused as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(attempt, range(8)))
    assert len(cluster.store().versions) == 1
    assert sorted(outcomes)[:1] == [cluster.store().versions[0].rebuild]
    assert {outcome for outcome in outcomes if not outcome.startswith("id-")} <= {"plan_outdated", "rebuild_running"}
    assert sum(outcome.startswith("id-") for outcome in outcomes) == 1


def test_an_altered_plan_is_refused(cluster: Cluster) -> None:
    """A plan whose id is not the hash of its value is refused, whatever was changed in it."""
    before = cluster.create()
    plan = cluster.push_plan()
    altered = plan.model_copy(update={"target": plan.target.model_copy(update={"version": 9})})
    assert refused(InvalidRequest, lambda: cluster.begin(altered)).code == "plan_altered"
    _nothing_begun(cluster, before)


def test_a_plan_is_refused_once_something_moved(cluster: Cluster) -> None:
    """After a change of configuration, or another version, a plan is outdated (exit 3); more writes do not matter."""
    store = cluster.create()
    plan = cluster.push_plan()
    cluster.write(store.feeds[0], 3)
    cluster.client.update_store("flights", UpdateStore(settings={"owner": "somebody"}))
    Plan.model_validate_json(plan.model_dump_json())
    cluster.serve(Plan.model_validate_json(plan.model_dump_json()))
    late = refused(Refused, lambda: cluster.begin(plan))
    assert (late.code, late.exit_code) == ("plan_outdated", 3)
    repush = cluster.repush_plan()
    cluster.client.update_store("flights", UpdateStore(settings={"partitions": 8}))
    before = cluster.store()
    error = refused(Refused, lambda: cluster.begin(repush))
    assert (error.code, "configuration" in error.message) == ("plan_outdated", True)
    _nothing_begun(cluster, before)


def test_one_rebuild_runs_at_a_time(cluster: Cluster) -> None:
    """A plan made while another rebuild runs is refused with the command that ends that one."""
    cluster.create()
    running = cluster.begin(cluster.push_plan())
    error = refused(Refused, lambda: cluster.begin(cluster.push_plan()))
    assert (error.code, running.id in str(error.hint)) == ("rebuild_running", True)
    assert len(cluster.store().versions) == 1


def test_without_a_live_node_nothing_begins(cluster: Cluster) -> None:
    """With no node to load the version, begin is refused and names where to look."""
    before = cluster.create()
    plan = cluster.push_plan()
    cluster.clock.advance(7_000)
    assert refused(Refused, lambda: cluster.begin(plan)).code == "no_nodes"
    _nothing_begun(cluster, before)


@pytest.mark.case("rules:R2")
def test_a_plan_that_truncation_overtook_is_refused(cluster: Cluster) -> None:
    """The mark moves in the catalog first: a plan below it is refused although the log still holds the records."""
    store = cluster.create(rewind_seconds=0)
    feed = store.feeds[0]
    cluster.serve(cluster.push_plan())
    cluster.write(feed, 20)
    old = cluster.repush_plan()
    cluster.serve(cluster.repush_plan(request=RepushRequest()))
    assert refused(Refused, lambda: cluster.begin(old)).code == "plan_outdated"
    stale = cluster.push_plan(as_of_ms=cluster.clock() - 60_000)
    cluster.pass_seconds(7 * 86_400 + 1)
    cluster.settle(2)
    cluster.pass_seconds(2)
    cluster.round()
    assert sum(cluster.store().feeds[0].low_water) == 20
    assert sum(o for o in stale.target.start.values()) == 0
    before = cluster.store()
    assert sum(_begins(cluster)) == 0, "the log itself is truncated only after the grace"
    assert refused(Refused, lambda: cluster.begin(stale)).code == "truncated_above_start"
    _nothing_begun(cluster, before)
    cluster.pass_seconds(601)
    cluster.round()
    assert sum(_begins(cluster)) == 20


def _begins(cluster: Cluster) -> list[int]:
    feed = cluster.store().feeds[0]
    return [
        cluster.log.offsets(TopicPartition(feed.topic, feed.topic_uid, partition)).begin
        for partition in range(feed.partitions)
    ]


@pytest.mark.case("rules:R3")
def test_a_topic_that_was_made_again_is_not_read(cluster: Cluster) -> None:
    """A topic of the same name with another identity refuses the plan: its offsets mean something else."""
    feed = cluster.create().feeds[0]
    plan = cluster.push_plan()
    before = cluster.store()
    cluster.log.delete_topic(feed.topic, feed.topic_uid)
    cluster.log.create_topic(TopicSpec(feed.topic, "another", feed.partitions))
    error = refused(Refused, lambda: cluster.begin(plan))
    assert (error.code, error.expected) == ("topic_lost", feed.topic_uid)
    _nothing_begun(cluster, before)


@pytest.mark.case("rules:R3")
def test_a_log_that_lost_its_tail_is_not_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that reads beyond the log's end is refused instead of taking the rest for empty."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.write(store.feeds[0], 20)
    plan, before = cluster.repush_plan(), cluster.store()
    real = cluster.log.offsets
    monkeypatch.setattr(cluster.log, "offsets", lambda at: Offsets(real(at).begin, max(0, real(at).end - 1)))
    assert refused(Refused, lambda: cluster.begin(plan)).code == "log_lost_tail"
    _nothing_begun(cluster, before)


@pytest.mark.case("stores:B4")
@pytest.mark.parametrize(("failures", "answered"), [(2, True), (10**6, False)])
def test_an_end_that_cannot_be_read_is_never_empty(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
    answered: bool,  # noqa: FBT001 - a case
) -> None:
    """An end offset that is not answered is asked for again, and then fails the plan; it is never taken for 0."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.write(store.feeds[0], 20)
    real, left = cluster.log.offsets, [failures]

    def flaky(at: TopicPartition) -> Offsets:
        if at.partition == 2 and left[0] > 0:
            left[0] -= 1
            raise Unreachable("log_unreachable", "the log does not answer")
        return real(at)

    monkeypatch.setattr(cluster.log, "offsets", flaky)
    if answered:
        assert sum(cluster.repush_plan().source.end.values()) == 20
    else:
        assert refused(Unreachable, cluster.repush_plan).code == "log_unreachable"
        assert left[0] == failures - 3


def test_begin_judges_again_when_the_store_moved_meanwhile(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harmless change between load and commit does not turn a good plan away; one that matters does."""
    cluster.create()
    catalog = cluster.context.catalog
    commit, moves = catalog.commit, [{"owner": "me"}, {"owner": "you"}]

    def disturbed(change: Change) -> bool:
        if moves and change.operation.what.startswith("begin"):
            store = cluster.store()
            moved = store.model_copy(update={"config": store.config.model_copy(update=moves.pop())})
            commit(Change(cluster.context.operation("disturb", "flights", "test"), (PutStore(moved, store.revision),)))
        return commit(change)

    monkeypatch.setattr(catalog, "commit", disturbed)
    first = cluster.begin(cluster.push_plan())
    assert (first.version, moves) == (1, [])
    cluster.client.kill_rebuild(first.id)
    plan = cluster.push_plan()
    moves.append({"partitions": 9})  # type: ignore[dict-item]  # any field of the configuration
    assert refused(Refused, lambda: cluster.begin(plan)).code == "plan_outdated"
    assert len(cluster.store().versions) == 1
