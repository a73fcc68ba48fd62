"""gc and pause: what goes, what stays and why; what is left alone, and what a pause stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anew.api.models import Collect, ResumeRebuild
from anew.api.rebuilds import StoreStart
from anew.api.stores.requests import RollBack
from anew.catalog.change import Change, PutReclaim, Reclaim
from anew.core.errors import NotFound, Refused
from anew.core.moment import utc_text
from anew.core.stores.planning import RepushRequest
from tests.component.controller.harness import LIMITS, Cluster, opened_cluster, plain, refused

_WEEK_SECONDS = 7 * 86_400
Rows = dict[tuple[str, str], tuple[str, str]]


def _gc(cluster: Cluster, store: str | None = None, *, dry_run: bool = False) -> Any:
    return plain(cluster.client.collect(Collect(store=store, dry_run=dry_run)))


def _rows(answer: dict[str, Any], *whats: str) -> Rows:
    """(what, name) → (act, why)."""
    rows = {(item["what"], item["name"]): (item["act"], item["why"]) for item in answer["items"]}
    return {key: row for key, row in rows.items() if not whats or key[0] in whats}


def _two_versions(cluster: Cluster, name: str = "flights") -> None:
    cluster.create(name)
    cluster.serve(cluster.push_plan(name))
    cluster.serve(cluster.repush_plan(name))


@pytest.mark.case("stores:H8")
def test_a_dry_run_says_what_would_go_and_why(cluster: Cluster) -> None:
    """Versions that stay and that go, each with its reason, and nothing is changed; the run itself says the same."""
    _two_versions(cluster)
    until = utc_text(cluster.there(1).since_ms + _WEEK_SECONDS * 1000)
    assert _rows(_gc(cluster, dry_run=True), "version") == {
        ("version", "1"): ("keep", f"backup in dc-0, until {until}"),
        ("version", "2"): ("keep", "current in dc-0"),
    }
    cluster.pass_seconds(_WEEK_SECONDS)
    before, revision = cluster.store(), cluster.context.catalog.revision()
    answer = _gc(cluster, "flights", dry_run=True)
    gone = ("retire", "its retention of 604800 s has ended")
    assert _rows(answer, "version") == {("version", "1"): gone, ("version", "2"): ("keep", "current in dc-0")}
    assert (answer["dry_run"], answer["skipped"]) == (True, {})
    assert (cluster.store(), cluster.context.catalog.revision()) == (before, revision)
    done = _gc(cluster, "flights")
    assert (_rows(done), done["dry_run"], cluster.status(1)) == (_rows(answer), False, "retired")


@pytest.fixture
def short_wait(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster in which a version between two plain repushes stays for a minute."""
    with opened_cluster(tmp_path, replace(LIMITS, repush_source_wait_seconds=60)) as opened:
        yield opened


@pytest.mark.case("stores:H7", "stores:H8")
def test_a_dry_run_goes_by_the_controller_s_own_wait(short_wait: Cluster) -> None:
    """What gc says of a version between two repushes is what gc does."""
    cluster = short_wait
    _two_versions(cluster)
    cluster.serve(cluster.repush_plan())
    until = utc_text(cluster.there(2).since_ms + 60_000)
    told = _rows(_gc(cluster, dry_run=True), "version")
    assert told["version", "2"] == ("keep", f"backup in dc-0, though version 3 holds the same data, until {until}")
    cluster.pass_seconds(60)
    told = _rows(_gc(cluster, dry_run=True), "version")
    assert told["version", "2"] == ("retire", "version 3 holds the same data, and it was a backup for 60 s")
    _gc(cluster)
    assert [cluster.status(number) for number in (1, 2, 3)] == ["backup", "retired", "current"]


@pytest.mark.case("stores:H8", "rules:R15")
def test_what_waits_for_its_grace_is_shown(cluster: Cluster) -> None:
    """A retired version's files wait until a time that is shown, then gc takes them; another store's are not named."""
    _two_versions(cluster)
    cluster.create("other")
    rebuild = cluster.begin(cluster.repush_plan())
    directory = cluster.version(3).path
    cluster.manifest_of(rebuild)
    cluster.client.kill_rebuild(rebuild.id)
    _gc(cluster)
    due_ms = cluster.clock() + 600_000
    answer = _gc(cluster, "flights", dry_run=True)
    (item,) = [item for item in answer["items"] if item["act"] == "wait" and directory in item["name"]]
    assert (item["what"], item["why"], item["not_before_ms"]) == (
        "files",
        "flights: killed: killed by tester",
        due_ms,
    )
    assert not [i for i in _gc(cluster, "other", dry_run=True)["items"] if directory in i["name"]]
    cluster.clock.advance(600_000)
    due = [i["act"] for i in _gc(cluster, dry_run=True)["items"] if directory in i["name"] and i["what"] == "files"]
    assert due == ["reclaim"]
    _gc(cluster)
    assert (cluster.files(directory), cluster.status(3)) == ([], "reclaimed")


@pytest.mark.case("stores:H8", "rules:R15")
def test_files_of_ended_attempts_are_found(cluster: Cluster) -> None:
    """The directory of an attempt that ended goes after the grace, though nothing notes it; a stranger's stays."""
    _two_versions(cluster)
    uid = cluster.store().uid
    ended = cluster.store().versions[0].rebuild
    left = [
        f"stores/{uid}/v1/{ended}-e0/base/x.parquet",
        f"stores/{uid}/v9/somebody-e1/x.parquet",
        f"stores/{uid}/note",
    ]
    for path in left:
        cluster.deep.put(path, b"whose is this?")
    expected = {
        ("files", f"stores/{uid}/v1/{ended}-e0"): ("reclaim", f"left by an ended attempt of {ended}"),
        ("files", f"stores/{uid}/v9/somebody-e1"): ("keep", "its owner is unknown"),
        ("files", f"stores/{uid}/note"): ("keep", "its owner is unknown"),
    }
    told = _rows(_gc(cluster, dry_run=True), "files")
    assert {key: row for key, row in told.items() if key in expected} == expected
    assert not [name for _, name in told if name in {version.path for version in cluster.store().versions}]
    _gc(cluster)
    assert set(left) <= set(cluster.files())
    cluster.pass_seconds(600)
    _gc(cluster)
    assert set(left) & set(cluster.files()) == set(left[1:])
    assert all(len(cluster.files(version.path)) == 2 for version in cluster.store().versions)


@pytest.mark.case("rules:R15", "rules:R22")
def test_what_a_resumed_rebuild_left_is_found(cluster: Cluster) -> None:
    """The directory of an epoch that was taken over is nobody's; that of the epoch that builds is not looked at."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.manifest_of(rebuild)
    cluster.pass_seconds(10)
    taken = cluster.client.resume_rebuild(rebuild.id, ResumeRebuild(driver="second"), StoreStart).rebuild
    cluster.manifest_of(taken)
    told = _rows(_gc(cluster, dry_run=True), "files")
    old, new = cluster.version(1).path.replace("-e2", "-e1"), cluster.version(1).path
    assert told["files", old] == ("reclaim", f"left by an ended attempt of {rebuild.id}")
    assert ("files", new) not in told


@pytest.mark.case("rules:R15")
def test_a_version_that_was_taken_for_an_orphan_is_not_deleted(cluster: Cluster) -> None:
    """A note of old about a directory that a version owns by now, or that holds one, is dropped without an act."""
    _two_versions(cluster)
    path, before = cluster.version(2).path, cluster.files()
    notes = tuple(
        PutReclaim(Reclaim(f"orphan-{n}", "tree", "dc-0", target, 0, "taken for an orphan"))
        for n, target in enumerate((path, path.rpartition("/")[0]))
    )
    cluster.context.catalog.commit(Change(cluster.context.operation("notes", "flights", "test"), notes))
    cluster.round()
    assert cluster.files() == before
    assert not [row for row in cluster.client.reclaims() if row.id.startswith("orphan-")]


@pytest.mark.case("rules:R15")
def test_a_rebuild_that_ends_while_gc_looks_keeps_its_files(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are listed before their owners are read, so that a version made meanwhile is no orphan."""
    _two_versions(cluster)
    real, served = type(cluster.deep).list, list[int]()

    def slow(deep: Any, prefix: str) -> Any:
        if not served:
            served.append(3)
            cluster.serve(cluster.repush_plan())
        return real(deep, prefix)

    monkeypatch.setattr(type(cluster.deep), "list", slow)
    answer = _gc(cluster)
    assert cluster.status(3) == "current"
    assert ("files", cluster.version(3).path) not in _rows(answer)
    cluster.pass_seconds(601)
    _gc(cluster)
    assert len(cluster.files(cluster.version(3).path)) == 2


@pytest.mark.case("rules:R15")
def test_a_rollback_wins_over_gc(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody rolls back between gc's look and its act: the backup serves and is not retired, its files stay."""
    _two_versions(cluster)
    cluster.pass_seconds(_WEEK_SECONDS)
    catalog, waiting = cluster.context.catalog, [RollBack()]
    commit = catalog.commit

    def raced(change: Change) -> bool:
        if waiting and change.operation.what == "retire version":
            cluster.client.roll_back("flights", waiting.pop())
        return commit(change)

    monkeypatch.setattr(catalog, "commit", raced)
    assert _rows(_gc(cluster), "version")["version", "1"][0] == "retire"
    assert (waiting, cluster.status(1), cluster.store().current) == ([], "current", {"dc-0": 1})
    cluster.pass_seconds(601)
    _gc(cluster)
    assert len(cluster.files(cluster.version(1).path)) == 2


def test_a_store_that_is_made_anew_is_left_alone(cluster: Cluster) -> None:
    """The only store with a running rebuild refuses gc; beside others it is skipped and named."""
    _two_versions(cluster)
    rebuild = cluster.begin(cluster.repush_plan())
    why = f"flights_v3 is made by {rebuild.id}"
    cluster.clock.advance(_WEEK_SECONDS * 1000)
    for asked in ("flights", None):
        error = refused(Refused, lambda asked=asked: _gc(cluster, asked))  # type: ignore[misc]  # bound in the loop
        assert (error.code, error.found, "--dry-run" in str(error.hint)) == ("rebuild_running", {"flights": why}, True)
    assert _gc(cluster, dry_run=True)["skipped"] == {"flights": why}
    cluster.create("other")
    assert _gc(cluster)["skipped"] == {"flights": why}
    assert cluster.status(1) == "backup"
    cluster.client.kill_rebuild(rebuild.id)
    assert _gc(cluster)["skipped"] == {}
    assert (cluster.status(1), cluster.status(3)) == ("retired", "retired")


@pytest.mark.case("stores:H10")
def test_a_store_that_waits_for_a_swap_is_collected(cluster: Cluster) -> None:
    """A deferred version is kept, with the reason, and does not keep others."""
    _two_versions(cluster)
    cluster.serve(cluster.repush_plan(request=RepushRequest(defer_swap=True)))
    cluster.pass_seconds(_WEEK_SECONDS)
    told = _rows(_gc(cluster), "version")
    assert told["version", "3"] == ("keep", "deferred in dc-0, as it was asked for, until somebody swaps or kills it")
    assert [cluster.status(number) for number in (1, 2, 3)] == ["retired", "current", "deferred"]


def test_gc_of_an_unknown_store_is_not_found(cluster: Cluster) -> None:
    """The nearest name is given, and nothing is collected."""
    cluster.create()
    error = refused(NotFound, lambda: _gc(cluster, "flihgts"))
    assert (error.code, error.hint) == ("unknown_store", "did you mean flights?")


@pytest.mark.parametrize("store", ["flights", None])
def test_a_pause_stops_retiring_and_reclaiming(cluster: Cluster, store: str | None) -> None:
    """While a store, or the cluster, is paused its versions and files stay and gc is refused; unpaused, they go."""
    _two_versions(cluster)
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.manifest_of(rebuild)
    cluster.client.kill_rebuild(rebuild.id)
    cluster.settle(1)
    directory = cluster.version(3).path
    assert cluster.client.pause(store).paused == "paused by tester"
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(3)
    assert (cluster.status(1), cluster.status(3), cluster.files(directory) != []) == ("backup", "retired", True)
    error = refused(Refused, lambda: _gc(cluster))
    assert (error.code, error.found) == ("paused", {"flights": "paused by tester"})
    assert _rows(_gc(cluster, dry_run=True), "version")["version", "1"][0] == "retire"
    assert cluster.client.pause(store).paused == "paused by tester"
    assert cluster.client.unpause(store).paused is None
    cluster.settle(1)
    assert (cluster.status(1), cluster.status(3), cluster.files(directory)) == ("retired", "reclaimed", [])


def test_a_paused_store_does_not_stop_others(cluster: Cluster) -> None:
    """One store is paused: its own things stay, the other's go, and gc names the one that it leaves alone."""
    for name in ("a", "b"):
        _two_versions(cluster, name)
    cluster.client.pause("a")
    cluster.clock.advance(_WEEK_SECONDS * 1000)
    assert _gc(cluster)["skipped"] == {"a": "paused by tester"}
    assert (cluster.status(1, "a"), cluster.status(1, "b")) == ("backup", "retired")
    assert (cluster.client.store("a").paused, cluster.client.store("b").paused) == ("paused by tester", None)
    cluster.pass_seconds(601)
    cluster.settle(1)
    assert (cluster.status(1, "a"), cluster.status(1, "b")) == ("backup", "reclaimed")
    assert refused(Refused, lambda: _gc(cluster, "a")).code == "paused"


def test_pushes_and_swaps_go_on_while_paused(cluster: Cluster) -> None:
    """A pause is for what starts by itself: what somebody asks for is done."""
    cluster.create()
    cluster.client.pause(None)
    cluster.client.pause("flights")
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    cluster.client.roll_back("flights", RollBack())
    assert cluster.store().current == {"dc-0": 1}
    answer = cluster.client.unpause("flights")
    assert plain(answer) == {"store": "flights", "paused": "paused by tester", "stores": {}}
    assert (cluster.store().paused, cluster.client.store("flights").paused) == (None, None)
