"""What the catalog forgets: by its age, some rows at a time, and never what something depends on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from anew.api.models import EndRebuild
from anew.api.stores.replicas import DeadLetter
from anew.catalog.change import Change, Put, PutRebuild, PutRequest, PutSegment, PutStore, PutTable
from anew.catalog.forget import ForgetHistory
from anew.controller.reconcile import Reconciler
from anew.controller.upkeep import forgetting
from anew.core.rebuild import RebuildStatus
from anew.testing.builders import a_rebuild, a_store, a_version
from anew.testing.table_builders import a_segment, a_table, a_table_rebuild
from tests.component.controller.conftest import Told
from tests.component.controller.harness import LIMITS, Cluster, node_report, plain

_DAY_SECONDS = 86_400
_MONTH_SECONDS = 30 * _DAY_SECONDS


def _due(cluster: Cluster) -> dict[tuple[str, str], tuple[str, int]]:
    """(what, store) → (act, rows), as a dry run of gc tells them."""
    items: list[dict[str, Any]] = cluster.http.post("/v1/gc", json={"dry_run": True}).json()["items"]
    return {(i["what"], i["store"]): (i["act"], i["count"]) for i in items if i["count"] is not None}


def _history(cluster: Cluster) -> list[str]:
    return [operation.what for operation in cluster.context.catalog.history(None, 10_000)]


def test_rows_go_when_their_retention_has_ended(cluster: Cluster) -> None:
    """History, request ids and past versions of a month ago are forgotten; what a younger store did is kept."""
    cluster.create(backup_retention_seconds=0)
    for _ in range(2):
        cluster.serve(cluster.push_plan())
    cluster.settle(2)
    cluster.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
    cluster.settle(2)
    uid = cluster.store().uid
    assert len(cluster.context.catalog.past_versions(uid, 9)) == 1
    cluster.pass_seconds(_MONTH_SECONDS - 7_200)
    cluster.create("younger")
    cluster.settle(2)
    assert _due(cluster) == {}
    cluster.pass_seconds(7_200 + LIMITS.reclaim_grace_seconds)
    due = _due(cluster)
    assert {what for what, _ in due} == {"history", "requests", "past versions", "rebuilds"}
    assert due["rebuilds", ""] == ("forget", 1)
    assert due["past versions", ""] == ("forget", 1)
    assert due["requests", ""] == ("forget", 2)
    cluster.settle(1)
    assert _due(cluster) == {}
    assert cluster.context.catalog.past_versions(uid, 9) == []
    assert ("begin full_push" in _history(cluster), _history(cluster).count("create store")) == (False, 1)
    assert cluster.store().current == {"dc-0": 2}
    # The rebuild that made what serves is told of for as long as that is there.
    assert [row["version"] for row in plain(cluster.client.rebuilds(store="flights"))] == [2]


def test_rows_go_a_bounded_number_at_a_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction removes more than a few; rounds go on until nothing is due, and gc does all at once."""
    monkeypatch.setattr(forgetting, "MOST_AT_ONCE", 10)
    for number in range(35):
        cluster.context.catalog.commit(Change(cluster.context.operation(f"op-{number}", "x", "test"), ()))
    cluster.pass_seconds(_MONTH_SECONDS + 1)
    left = []
    for _ in range(6):
        left.append(
            cluster.context.catalog.forgettable(ForgetHistory(cluster.clock.now_ms - _MONTH_SECONDS * 1000, 99))
        )
        cluster.round()
    assert left == [35, 25, 15, 5, 0, 0]
    for number in range(35):
        cluster.context.catalog.commit(Change(cluster.context.operation(f"op-{number}", "x", "test"), ()))
    cluster.pass_seconds(_MONTH_SECONDS + 3_000)
    told = cluster.http.post("/v1/gc", json={"dry_run": False}).json()["items"]
    assert [item["act"] for item in told if item["what"] == "history"] == ["forget"]
    assert _due(cluster) == {}


@pytest.mark.case("rules:R22")
def test_a_rebuild_is_known_as_long_as_its_request(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both end their retention in one moment, no request that is still known names a rebuild that is gone."""
    monkeypatch.setattr(forgetting, "MOST_AT_ONCE", 2)
    cluster.create()
    others = tuple(PutRequest(f"other-{number}", "h", "x") for number in range(4))
    cluster.context.catalog.commit(Change(cluster.context.operation("op-0", "x", "test"), others))
    for number in range(6):
        rebuild = cluster.begin(cluster.push_plan(), f"again-{number}")
        cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=rebuild.epoch, error="it broke"))
    cluster.settle(2)
    cluster.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
    cluster.settle(2)
    assert cluster.store().versions == ()
    cluster.pass_seconds(_MONTH_SECONDS + 1)
    catalog, left = cluster.context.catalog, []
    for _ in range(10):
        known = [request for number in range(6) if (request := catalog.request(f"again-{number}")) is not None]
        assert [request for request in known if catalog.rebuild(request.result) is None] == []
        left.append((len(known), len(catalog.rebuilds(subject_uid=None, running_only=False))))
        cluster.round()
    assert left[0] == (6, 6)
    assert left[-1] == (0, 0)


def test_what_is_due_is_found_with_as_many_queries_whatever_there_is(cluster: Cluster) -> None:
    """Stores and tables whose old rebuilds are kept, because something names them, cost no query each."""
    catalog = cluster.context.catalog
    counts = []
    for first, last in ((0, 3), (3, 40)):
        puts: list[Put] = []
        for number in range(first, last):
            store, table = a_store(f"s{number}"), a_table(f"t{number}")
            segment = a_segment(table_uid=table.uid)
            build = segment.build.model_copy(update={"rebuild": f"load-{number}"})
            versions = (a_version(rebuild=f"push-{number}"),)
            ended: dict[str, Any] = {"status": RebuildStatus.SUCCEEDED, "created_at_ms": 1, "ended_at_ms": 2}
            puts += [
                PutStore(store.model_copy(update={"versions": versions}), None),
                PutTable(table, None),
                PutSegment(segment.model_copy(update={"build": build}), None),
                PutRebuild(a_rebuild(store, f"push-{number}", **ended), None),
                PutRebuild(a_table_rebuild(table, f"load-{number}", **ended), None),
            ]
        catalog.commit(Change(cluster.context.operation(f"op-{first}", "x", "test"), tuple(puts)))
        catalog.stores()
        with _statements() as said:
            assert [due.what for due in forgetting.counted(cluster.context)] == []
        counts.append(len(said))
        assert [text for text in said if "FROM segments" in text and "document" in text] == []
    assert counts[0] == counts[1]


@contextmanager
def _statements() -> Iterator[list[str]]:
    """The SQL that is executed meanwhile."""
    said: list[str] = []

    def hear(*told: Any) -> None:
        said.append(str(told[2]))

    sa.event.listen(sa.Engine, "before_cursor_execute", hear)
    try:
        yield said
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", hear)


def test_nothing_is_forgotten_while_the_cluster_is_paused(cluster: Cluster, told: Told) -> None:
    """A pause holds the catalog's rows too; the command that says what is due counts them."""
    cluster.create()
    cluster.client.pause(None)
    cluster.pass_seconds(_MONTH_SECONDS + 1)
    cluster.settle(2)
    lines = told("gc", "--dry-run")
    assert any("history" in line and "rows" in line and "forget" in line for line in lines)
    assert "create store" in _history(cluster)
    cluster.client.unpause(None)
    cluster.settle(1)
    assert "create store" not in _history(cluster)


@pytest.mark.case("rules:R16")
def test_a_deleted_store_goes_last_and_its_name_keeps_its_numbers(cluster: Cluster) -> None:
    """After its retention, when its files are gone: no row of it is left, and the next store of its name goes on."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.client.delete_store("flights")
    assert _due(cluster) == {("deleted store", "flights"): ("wait", 1)}
    cluster.pass_seconds(_MONTH_SECONDS - 1)
    cluster.settle(2)
    assert cluster.context.catalog.store_by_uid(store.uid) is not None
    cluster.pass_seconds(3_602)
    cluster.settle(2)
    catalog = cluster.context.catalog
    assert (catalog.store_by_uid(store.uid), catalog.deleted_stores()) == (None, [])
    assert (catalog.reclaims(None), cluster.files(f"stores/{store.uid}")) == ([], [])
    assert catalog.next_version("flights") == 2
    again = cluster.create()
    assert again.next_version == 2
    assert cluster.serve(cluster.push_plan()) == 2
    assert again.feeds[0].incarnation == store.feeds[0].incarnation + 1


@pytest.mark.case("rules:R16")
def test_a_deleted_store_waits_for_its_files(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While something of it is to be reclaimed its row stays, whatever its age: nothing of it is nobody's."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.client.delete_store("flights")
    with monkeypatch.context() as patched:
        patched.setattr("anew.controller.reconcile.reclaim_due", lambda _context, _apart: None)
        cluster.pass_seconds(2 * _MONTH_SECONDS)
        cluster.settle(2)
        assert cluster.context.catalog.store_by_uid(store.uid) is not None
        assert _due(cluster)["deleted store", "flights"] == ("wait", 1)
    cluster.pass_seconds(3_601)
    cluster.settle(2)
    assert cluster.context.catalog.store_by_uid(store.uid) is None


@pytest.mark.case("rules:R21")
def test_dead_letters_are_counted_until_nobody_reads_them(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set aside and old, a letter is counted while a version starts below it; one that waits is never forgotten."""
    cluster.create(rewind_seconds=60, backup_retention_seconds=0)
    cluster.serve(cluster.push_plan())
    (at, offset), *_ = cluster.write(cluster.store().feeds[0], 1)
    letter = DeadLetter(
        store_uid=cluster.store().uid, feed=at.feed, partition=at.partition, offset=offset, reason="its time is bad"
    )
    cluster.client.report(node_report("node-1", dead_letters=(letter,)))
    with monkeypatch.context() as patched:
        patched.setattr("anew.controller.reconcile.set_aside", lambda _context, _apart: None)
        cluster.pass_seconds(2 * _MONTH_SECONDS)
        cluster.settle(2)
        assert cluster.context.catalog.dead_letter_counts(waiting=True) == {cluster.store().uid: 1}
    cluster.pass_seconds(3_601)
    cluster.settle(2)
    assert cluster.context.catalog.dead_letter_counts() == {cluster.store().uid: 1}, "version 1 starts below it"
    cluster.serve(cluster.push_plan())
    cluster.pass_seconds(3_601)
    cluster.settle(3)
    cluster.pass_seconds(3_601)
    cluster.settle(3)
    assert cluster.context.catalog.dead_letter_counts() == {}


def test_each_retention_is_a_setting_of_its_own(cluster: Cluster) -> None:
    """With a history of a day the rest is kept for its month."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    shorter = replace(cluster.context.limits, row_retention=replace(LIMITS.row_retention, history=_DAY_SECONDS))
    cluster.pass_seconds(_DAY_SECONDS + 3_601)
    Reconciler(replace(cluster.context, limits=shorter)).round()
    assert "create store" not in _history(cluster)
    assert _due(cluster) == {}
    assert len(cluster.client.rebuilds(store="flights")) == 1
