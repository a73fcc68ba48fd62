"""Hybrid to batch (rule R10): writes are closed, their ends are frozen, and the swap waits until they are applied."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from anew.api.stores.replicas import ReplicaReport
from anew.catalog.change import Change
from anew.core.errors import Refused, Unreachable
from anew.core.feed import FeedPartition, PositionMap
from anew.core.stores.plan import Plan
from anew.core.stores.rebuild import StoreRebuild
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicSpec
from tests.component.controller.harness import Cluster, refused

Acknowledged = list[tuple[FeedPartition, int]]


def _to_batch(cluster: Cluster) -> None:
    """A hybrid store that serves version 1 with some writes, and is to become batch."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.write(store.feeds[0], 20)
    cluster.update(hybrid=False)


def _sealed(cluster: Cluster, plan: Plan) -> StoreRebuild:
    rebuild = cluster.begin(plan)
    cluster.seal(rebuild)
    return rebuild


class _Writer:
    """Writes on and on, and keeps what was acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._feed = cluster, cluster.store().feeds[0]
        self._numbers = itertools.count()
        self.acknowledged: Acknowledged = []
        self.refusals = 0

    def write(self) -> None:
        """A few more, until one is refused."""
        try:
            for _ in range(7):
                self.acknowledged += self._cluster.write(self._feed, 1, f"written-{next(self._numbers)}")
        except Refused as error:
            if error.code != "topic_closed":
                raise
            self.refusals += 1

    def beyond(self, stop: PositionMap | None) -> Acknowledged:
        """What was acknowledged and is not below a stop."""
        assert stop is not None
        return [(at, offset) for at, offset in self.acknowledged if offset >= stop[at]]

    def write_until_served(self, number: int, rounds: int = 15) -> None:
        """Write before, between and after all steps of reports and rounds, until a version is current."""
        for _ in range(rounds):
            for node in self._cluster.nodes:
                self._cluster.report(node)
            self.write()
            self._cluster.round()
            self.write()
            if self._cluster.status(number) == "current":
                return
        raise AssertionError(f"version {number} is {self._cluster.status(number)}")


@pytest.mark.case("stores:H5", "rules:R10")
def test_writes_end_before_the_swap(cluster: Cluster) -> None:
    """All that was acknowledged is below the stop, the version is ready only there, and writes stay closed."""
    _to_batch(cluster)
    assert cluster.client.routing("flights").feed is not None, "until then the version that serves takes writes"
    _sealed(cluster, cluster.repush_plan())
    assert (cluster.store().must_close(cluster.version(2)), cluster.version(2).stop) == (True, None)
    writer = _Writer(cluster)
    writer.write_until_served(2)
    version = cluster.version(2)
    assert (version.config.hybrid, version.stop, version.fabrics["dc-0"].ready_target) == (
        False,
        cluster.ends(cluster.store().feeds[0]),
        version.stop,
    )
    assert len(writer.acknowledged) > 20
    assert writer.refusals > 0
    assert writer.beyond(version.stop) == []
    assert all(version.fabrics["dc-0"].start[at] <= offset for at, offset in writer.acknowledged)
    assert cluster.client.routing("flights").feed is None
    done = [row.what for row in reversed(cluster.client.history("flights"))]
    steps = ["close writes", "open or close topics", "topics opened or closed", "freeze stop", "ready", "swap"]
    assert sorted(steps, key=lambda what: len(done) - done[::-1].index(what)) == steps


@pytest.mark.case("rules:R10")
def test_a_writer_that_has_the_log_open_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """Routing gives no feed as soon as writes are to end, and a log that was opened long before refuses appends."""
    _to_batch(cluster)
    old_routing = cluster.client.routing("flights")
    other = EmbeddedLog(tmp_path / "log", clock=cluster.clock, durable=False)
    writing = cluster.log
    try:
        cluster.log = other
        cluster.write(cluster.store().feeds[0], 20, "warm")
        _sealed(cluster, cluster.repush_plan())
        cluster.until(lambda: cluster.version(2).closing)
        assert cluster.client.routing("flights").feed is None
        cluster.until(lambda: cluster.version(2).stop is not None)
        known = old_routing.feed
        assert known is not None
        error = refused(Refused, lambda: cluster.write(known, 1, "late"))
        assert error.code == "topic_closed"
    finally:
        cluster.log = writing
        other.close()


@pytest.mark.case("rules:R10")
def test_it_is_ready_only_where_writes_ended(cluster: Cluster) -> None:
    """A replica that lacks one record before the stop holds the swap up, however small its lag."""
    _to_batch(cluster)
    rebuild = _sealed(cluster, cluster.repush_plan())
    cluster.until(lambda: cluster.version(2).stop is not None)
    stop = cluster.version(2).stop
    assert stop is not None

    def one_short(replica: ReplicaReport) -> ReplicaReport:
        if replica.version == 1:
            return replica
        at = max(replica.position)
        return replica.model_copy(update={"position": replica.position.with_offset(at, stop[at] - 1)})

    for _ in range(3):
        for node in cluster.nodes:
            cluster.report(node, one_short)
        cluster.round()
        assert (cluster.status(2), cluster.store().current) == ("loading", {"dc-0": 1})
    cluster.until(lambda: cluster.client.rebuild(rebuild.id).status == "succeeded")
    assert cluster.store().current == {"dc-0": 2}


_STEPS = ["aim", "close writes", "open or close topics", "topics opened or closed", "freeze stop", "ready", "swap"]


@pytest.mark.case("rules:R10", "rules:R22")
@pytest.mark.parametrize("step", _STEPS)
def test_a_controller_that_dies_between_the_steps_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whichever commit it dies before, the next controller finds what is left to do, and no write is lost."""
    _to_batch(cluster)
    _sealed(cluster, cluster.repush_plan())
    writer, deaths = _Writer(cluster), _dying_before(cluster, monkeypatch, step)
    writer.write_until_served(2)
    assert deaths == [step, step]
    assert writer.beyond(cluster.version(2).stop) == []
    assert (writer.refusals > 0, cluster.store().feeds[0].closed) == (True, True)


def _dying_before(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str) -> list[str]:
    """Let the controller die twice before a commit; its deaths so far."""
    catalog, deaths = cluster.context.catalog, list[str]()
    commit = catalog.commit

    def dying(change: Change) -> bool:
        if change.operation.what == step and len(deaths) < 2:
            deaths.append(step)
            cluster.start_over()
            raise Unreachable("catalog_unreachable", "the controller dies here")
        return commit(change)

    monkeypatch.setattr(catalog, "commit", dying)
    return deaths


@pytest.mark.case("rules:R10", "rules:R22")
def test_a_topic_that_is_closed_in_part_is_not_closed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that fails while its partitions are closed one by one is asked again before anything is frozen."""
    _to_batch(cluster)
    _sealed(cluster, cluster.repush_plan())
    writer, set_open, failures = _Writer(cluster), cluster.log.set_open, list[PositionMap | None]()

    def flaky(spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        if len(failures) < 3:
            set_open(replace(spec, partitions=2), is_open=is_open, epoch=epoch)
            failures.append(cluster.version(2).stop)
            raise Unreachable("log_unreachable", "the log does not answer")
        set_open(spec, is_open=is_open, epoch=epoch)

    monkeypatch.setattr(cluster.log, "set_open", flaky)
    writer.write_until_served(2)
    assert failures == [None, None, None]
    assert writer.beyond(cluster.version(2).stop) == []


@pytest.mark.case("rules:R10")
@pytest.mark.parametrize("closed", [True, False], ids=["rule", "hole"])
def test_without_closed_logs_a_write_would_be_lost(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    closed: bool,  # noqa: FBT001 - a case
) -> None:
    """Were the ends frozen while the logs still take writes, some would be acknowledged beyond the stop."""
    _to_batch(cluster)
    _sealed(cluster, cluster.repush_plan())
    if not closed:
        monkeypatch.setattr(cluster.log, "set_open", lambda *_args, **_named: None)
    writer = _Writer(cluster)
    writer.write_until_served(2)
    assert (writer.beyond(cluster.version(2).stop) == []) == closed


@pytest.mark.case("rules:R10", "rules:R17")
def test_writes_that_cannot_be_closed_fail_the_version(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that does not let itself be closed before the deadline fails the version, and writes are open again."""
    _to_batch(cluster)
    rebuild = _sealed(cluster, cluster.repush_plan())

    def away(*_args: object, **_named: object) -> None:
        raise Unreachable("log_unreachable", "the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "set_open", away)
        cluster.until(lambda: cluster.version(2).closing)
        cluster.settle(3)
        assert cluster.client.rebuild(rebuild.id).status == "running"
        cluster.pass_seconds(301)
        cluster.settle(1)
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "could not be closed" in str(view.error)) == ("failed", True)
    cluster.settle(2)
    feed = cluster.store().feeds[0]
    assert (feed.open, feed.moving, cluster.client.routing("flights").feed) == (True, False, feed)
    cluster.write(feed, 8, "again")
    assert cluster.store().current == {"dc-0": 1}
