"""What a person on call is told of rebuilds: drivers that are silent, and failures until somebody has seen them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anew.api.models import EndRebuild
from anew.controller.engine.drivers import failed_subject
from anew.core.errors import NotFound
from anew.core.rebuild import Stage, driver_of
from anew.core.stores.rebuild import StoreRebuild
from tests.component.controller.harness import LIMITS, Cluster, opened_cluster, plain, refused
from tests.component.controller.tables.tables_harness import opened_tables


def _problems(cluster: Cluster) -> list[str]:
    for node in ("node-1", "node-2"):
        cluster.report(node)
    return [problem.what for problem in cluster.client.status().problems]


def _failed(cluster: Cluster, error: str = "the input has no column key") -> StoreRebuild:
    rebuild = cluster.begin(cluster.push_plan())
    cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=rebuild.epoch, error=f"{error}\nTraceback"))
    return rebuild


def _metric(cluster: Cluster, name: str) -> str | None:
    lines = cluster.http.get("/metrics").text.splitlines()
    return next((line for line in lines if line.startswith(name)), None)


def test_a_driver_that_is_silent_is_a_problem(cluster: Cluster) -> None:
    """Well before its lease ends: since when, which process, and how to go on; a sign of life ends it."""
    cluster.create()
    cluster.round()
    rebuild = cluster.begin(cluster.push_plan())
    assert not cluster.beat(rebuild, Stage.BUILD)
    heard_ms = cluster.clock()
    assert _problems(cluster) == []
    cluster.pass_seconds(15)
    (problem,) = [p for p in cluster.client.status().problems if "driver" in p.what]
    assert (rebuild.id in problem.what, "15 s" in problem.what, problem.since_ms) == (True, True, heard_ms)
    assert problem.hint == f"anew rebuild resume {rebuild.id}, or: anew rebuild kill {rebuild.id}"
    view = cluster.client.rebuild(rebuild.id).driver
    assert (view.heard_at_ms, view.silent_ms) == (heard_ms, 15_000)
    assert _metric(cluster, "anew_rebuilds_silent") == "anew_rebuilds_silent 1.0"
    assert not cluster.beat(rebuild, Stage.BUILD)
    assert _problems(cluster) == []
    assert cluster.client.rebuild(rebuild.id).driver.silent_ms is None


def test_no_driver_is_missed_once_it_is_not_needed(cluster: Cluster) -> None:
    """From the seal on the controller goes on by itself: a driver that is gone is no problem."""
    cluster.create()
    cluster.round()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)
    cluster.pass_seconds(15)
    assert not [problem for problem in _problems(cluster) if "driver" in problem]


def test_a_failure_stays_a_problem_until_it_is_seen(cluster: Cluster) -> None:
    """Status and metrics name it, with its first line and the commands; seen, it is history, however often."""
    cluster.create()
    rebuild = _failed(cluster)
    assert _problems(cluster) == [f"rebuild {rebuild.id} of flights failed: the input has no column key"]
    assert f"anew rebuild seen {rebuild.id}" in cluster.client.status().problems[0].hint
    assert _metric(cluster, "anew_rebuild_failed{") == 'anew_rebuild_failed{subject="flights"} 1.0'
    for _ in range(2):
        assert plain(cluster.client.see_failure(rebuild.id)) == {"rebuild": rebuild.id, "seen": True}
        assert (_problems(cluster), _metric(cluster, "anew_rebuild_failed{")) == ([], None)
    assert refused(NotFound, lambda: cluster.client.see_failure("no-such")).code == "unknown_rebuild"


def test_a_failure_is_seen_although_its_record_is_forgotten(tmp_path: Path) -> None:
    """What is told may be put away for as long as it is told, however long records are kept."""
    with opened_cluster(tmp_path, replace(LIMITS, failure_shown_seconds=60 * 86_400)) as cluster:
        cluster.create()
        rebuild = _failed(cluster)
        cluster.pass_seconds(31 * 86_400)
        for _ in range(3):
            cluster.settle(1)
            cluster.pass_seconds(3_700)
        assert refused(NotFound, lambda: cluster.client.rebuild(rebuild.id)).code == "unknown_rebuild"
        assert any(rebuild.id in problem for problem in _problems(cluster))
        # By it a token for single stores is let in.
        assert failed_subject(cluster.context, rebuild.id) == "flights"
        cluster.client.see_failure(rebuild.id)
        assert failed_subject(cluster.context, rebuild.id) is None
        assert not any(rebuild.id in problem for problem in _problems(cluster))


def test_seeing_an_older_failure_leaves_the_newer_one(cluster: Cluster) -> None:
    """Each failure is seen by its own id."""
    cluster.create()
    older, newer = _failed(cluster, "first"), _failed(cluster, "second")
    cluster.client.see_failure(older.id)
    assert _problems(cluster) == [f"rebuild {newer.id} of flights failed: second"]


@pytest.mark.parametrize("ends_by", ["success", "time", "deletion"])
def test_a_failure_is_over_when_it_does_not_matter_any_more(cluster: Cluster, ends_by: str) -> None:
    """A later rebuild went well, the time that is set has passed, or the store is another one."""
    cluster.create()
    _failed(cluster)
    cluster.clock.advance(1_000)
    if ends_by == "success":
        cluster.serve(cluster.push_plan())
    elif ends_by == "time":
        cluster.clock.advance(86_400_000)
    else:
        cluster.client.delete_store("flights")
        cluster.create()
    assert not [problem for problem in _problems(cluster) if "failed" in problem]


def test_who_killed_a_rebuild_need_not_be_told(cluster: Cluster) -> None:
    """A rebuild that somebody ended is no failure."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.client.kill_rebuild(rebuild.id)
    assert _problems(cluster) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ann@host.example:4711/ab12cd", ("ann", "host.example", 4711, "")),
        ("ann@host:4711/ab12cd /home/a b/driver-1.log", ("ann", "host", 4711, "/home/a b/driver-1.log")),
        ("a@b@host:1", ("a@b", "host", 1, "")),
        ("", ("", "", None, "")),
        ("somebody", ("somebody", "", None, "")),
    ],
)
def test_a_driver_s_name_says_where_it_is(name: str, expected: tuple[str, str, int | None, str]) -> None:
    """Actor, host, pid and log; any other text is taken as it is."""
    driver = driver_of(name)
    assert (driver.actor, driver.host, driver.pid, driver.log) == expected


def test_a_table_of_the_same_name_hides_no_failure(tmp_path: Path) -> None:
    """A store and a table may have one name: what went well of the one says nothing of the other."""
    with opened_tables(tmp_path) as tables:
        cluster = tables.cluster
        cluster.create("trips")
        tables.create("trips")
        cluster.pass_seconds(5)
        rebuild = cluster.begin(cluster.push_plan("trips"))
        cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=rebuild.epoch, error="the input has no column key"))
        tables.load("s1", name="trips")
        (problem,) = [what for what in _problems(cluster) if "failed" in what]
        assert rebuild.id in problem
