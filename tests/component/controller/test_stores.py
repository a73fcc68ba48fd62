"""Stores through the controller's HTTP face: making, changing and deleting them, and every refusal."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anew.api.stores.requests import CreateStore, UpdateStore
from anew.core.errors import InvalidRequest, NotFound, Refused, Unreachable
from anew.log.interface import TopicSpec
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from tests.component.controller.harness import Cluster, plain, refused

_WIDER = (
    '{"type": "record", "name": "Value", "fields": [{"name": "text", "type": "string"},'
    ' {"name": "more", "type": "long", "default": 0}]}'
)


def _create(**changes: Any) -> CreateStore:
    values: dict[str, Any] = {"name": "flights", "key_schema": KEY_SCHEMA, "value_schema": VALUE_SCHEMA}
    return CreateStore(**{**values, **changes})


def test_a_store_is_made_with_its_topic(cluster: Cluster) -> None:
    """A hybrid store has its real-time topic at once, its settings, and no version."""
    view = cluster.client.create_store(_create(settings={"hybrid": "true", "rt_partitions": 4}))
    assert (view.name, view.config.hybrid, view.config.partitions) == ("flights", True, 4)
    assert (view.pending, view.stale, view.fabrics["dc-0"].current) == ((), False, 0)
    (feed,) = cluster.store().feeds
    assert cluster.log.topic("flights_rt") == TopicSpec("flights_rt", feed.topic_uid, 4)
    assert (feed.ready, feed.incarnation, feed.low_water) == (True, 1, (0, 0, 0, 0))
    assert [row.what for row in cluster.client.history("flights")] == ["topics made", "create store"]


def _placing(source: str) -> dict[str, Any]:
    return {"settings": {"partitioner": "mine:Placing"}, "partitioner_source": source}


_BAD_CREATES: list[tuple[dict[str, Any], str]] = [
    ({"name": "Flights"}, "bad_store_name"),
    ({"name": "flights_v7"}, "bad_store_name"),
    ({"key_schema": "{"}, "bad_schema"),
    ({"value_schema": '{"type": "record", "name": "V"}'}, "bad_schema"),
    ({"value_schema": '"no_such_type"'}, "bad_schema"),
    ({"settings": {"partition": 8}}, "unknown_setting"),
    ({"settings": {"partitions": "many"}}, "bad_setting"),
    ({"settings": {"active_fabric": "dc-0"}}, "not_supported_yet"),
    ({"settings": {"amplification_factor": 0}}, "bad_setting"),
    ({"settings": {"amplification_factor": 65}}, "bad_setting"),
    ({"settings": {"partitions": 100_000, "amplification_factor": 2}}, "too_many_sub_partitions"),
    ({"settings": {"repush_schedule": "every day"}}, "bad_schedule"),
    ({"settings": {"repush_schedule": "0 3 * * *", "repush_when": "stale or"}}, "bad_condition"),
    ({"settings": {"repush_when": "stale"}}, "contradiction"),
    ({"settings": {"partitioner": "mine:Placing"}}, "bad_partitioner"),
    (
        {"settings": {"partitioner": "mine:Placing"}, "partitioner_source": "import nothing_of_that_name"},
        "bad_partitioner",
    ),
    (_placing("class Placing: pass"), "bad_partitioner"),
]


@pytest.mark.parametrize(("change", "code"), _BAD_CREATES)
def test_a_bad_create_is_refused_and_makes_nothing(cluster: Cluster, change: dict[str, Any], code: str) -> None:
    """A bad name, schema or setting is refused with what was found, and neither store nor topic nor history is left."""
    request = _create(**{"settings": {"hybrid": True}, **change})
    error = refused(InvalidRequest, lambda: cluster.client.create_store(request))
    assert error.code == code
    assert error.found is not None or error.hint is not None
    assert (cluster.client.stores(), cluster.client.history()) == ([], [])
    assert cluster.log.topic("flights_rt") is None


def test_a_taken_name_and_an_unknown_one_are_refused(cluster: Cluster) -> None:
    """A second store of a name is refused; one that is not there is not found, with the nearest name."""
    cluster.create()
    assert refused(Refused, lambda: cluster.create()).code == "store_exists"
    for act in (
        lambda: cluster.client.store("flihgts"),
        lambda: cluster.client.delete_store("flihgts"),
        lambda: cluster.client.update_store("flihgts", UpdateStore()),
        lambda: cluster.client.routing("flihgts"),
        lambda: cluster.client.snapshot("flihgts"),
    ):
        error = refused(NotFound, act)
        assert (error.code, error.hint) == ("unknown_store", "did you mean flights?")
    assert refused(NotFound, lambda: cluster.client.store("flights", 3)).code == "unknown_version"
    assert refused(InvalidRequest, lambda: cluster.client.routing("flights", "dc-9")).code == "unknown_fabric"
    assert len(cluster.client.stores()) == 1


@pytest.mark.case("rules:R22")
def test_a_repeated_create_is_the_same_store(cluster: Cluster) -> None:
    """The same request id and body give the same store; with another body it is refused and changes nothing."""
    first = cluster.client.create_store(_create(request_id="r-1"))
    again = cluster.client.create_store(_create(request_id="r-1"))
    assert first.uid == again.uid
    other = _create(request_id="r-1", settings={"partitions": 8})
    error = refused(InvalidRequest, lambda: cluster.client.create_store(other))
    assert (error.code, error.found) == ("request_id_reused", "r-1")
    assert cluster.store().config.partitions == 4


@pytest.mark.case("stores:H4")
def test_a_change_waits_for_the_next_version(cluster: Cluster) -> None:
    """Frozen settings are pending beside the version that keeps its own until a repush; live ones act at once."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    view = cluster.client.update_store(
        "flights", UpdateStore(settings={"partitions": "8", "compression": "zstd", "max_value_bytes": 99})
    )
    assert plain(view.pending) == [
        {"setting": "partitions", "now": 2, "wanted": 8},
        {"setting": "compression", "now": "none", "wanted": "zstd"},
    ]
    assert view.stale
    assert view.fabrics["dc-0"].versions[0].config.partitions == 2
    assert cluster.client.routing("flights").max_value_bytes == 99
    cluster.serve(cluster.repush_plan())
    after = cluster.client.store("flights")
    assert (after.pending, after.stale, after.fabrics["dc-0"].current) == ((), False, 2)
    configs = {v.number: v.config.partitions for v in after.fabrics["dc-0"].versions}
    assert configs == {1: 2, 2: 8}


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"partition": 8}, "unknown_setting"),
        ({"partitions": "x"}, "bad_setting"),
        ({"repush_when": "x"}, "bad_condition"),
        ({"rt_partitions": 8}, "fixed_setting"),
        ({"owner": "me", "skew_limit_seconds": 1}, "fixed_setting"),
    ],
)
def test_a_bad_change_changes_nothing(cluster: Cluster, settings: dict[str, Any], code: str) -> None:
    """An unknown, unparsable, later or fixed setting is refused, whatever came with it."""
    before = cluster.create()
    error = refused(InvalidRequest, lambda: cluster.client.update_store("flights", UpdateStore(settings=settings)))
    assert error.code == code
    assert cluster.store() == before


@pytest.mark.case("stores:H5")
def test_hybrid_does_not_change_while_a_version_is_made(cluster: Cluster) -> None:
    """A store may become hybrid and gets its topic; while a push runs that is refused, afterwards it is pending."""
    cluster.create(hybrid=False)
    assert cluster.store().feeds == ()
    cluster.client.update_store("flights", UpdateStore(settings={"hybrid": True}))
    assert cluster.log.topic("flights_rt") is not None
    rebuild = cluster.begin(cluster.push_plan())
    before = cluster.store()
    error = refused(Refused, lambda: cluster.client.update_store("flights", UpdateStore(settings={"hybrid": False})))
    assert (error.code, error.found) == ("rebuild_running", "hybrid = False")
    assert cluster.store() == before
    cluster.client.kill_rebuild(rebuild.id)
    cluster.client.update_store("flights", UpdateStore(settings={"hybrid": False}))
    assert not cluster.store().config.hybrid


def test_value_schemas_evolve(cluster: Cluster) -> None:
    """A compatible schema becomes the newest and the old one stays; the same again is nothing; others are refused."""
    first = cluster.create()
    cluster.client.update_store("flights", UpdateStore(value_schema=_WIDER))
    cluster.client.update_store("flights", UpdateStore(value_schema=_WIDER))
    after = cluster.store()
    assert len(after.schemas) == 2
    assert after.newest_schema_id > first.newest_schema_id
    assert after.schemas[first.newest_schema_id] == first.schemas[first.newest_schema_id]
    bad = UpdateStore(value_schema='{"type": "record", "name": "Value", "fields": [{"name": "other", "type": "int"}]}')
    refused(InvalidRequest, lambda: cluster.client.update_store("flights", bad))
    unreadable = UpdateStore(value_schema="nonsense")
    assert refused(InvalidRequest, lambda: cluster.client.update_store("flights", unreadable)).code == "bad_schema"
    assert cluster.store() == after


@pytest.mark.case("rules:R16")
def test_a_name_that_comes_back_goes_on_counting(cluster: Cluster) -> None:
    """A deleted store's name is free at once: another uid, another topic, other files, and version numbers go on."""
    old = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.write(old.feeds[0], 5)
    cluster.client.delete_store("flights")
    assert cluster.client.stores() == []
    new = cluster.create()
    assert (new.uid != old.uid, new.next_version) == (True, 2)
    assert new.feeds[0].id != old.feeds[0].id
    assert set(cluster.ends(new.feeds[0]).values()) == {0}
    assert cluster.serve(cluster.push_plan()) == 2
    cluster.pass_seconds(601)
    cluster.round()
    assert cluster.files(f"stores/{old.uid}") == []
    assert cluster.files(f"stores/{new.uid}") != []
    topic = cluster.log.topic("flights_rt")
    assert topic is not None
    assert topic.uid == new.feeds[0].topic_uid
    cluster.settle()
    assert cluster.status(2) == "current"


def test_a_topic_of_somebody_else_is_not_taken(cluster: Cluster) -> None:
    """A topic that no store is known to own is not deleted for a new store: the create is refused and makes nothing."""
    cluster.log.create_topic(TopicSpec("flights_rt", "somebody's", 4))
    assert refused(Refused, lambda: cluster.create()).code == "topic_exists"
    assert cluster.client.stores() == []
    topic = cluster.log.topic("flights_rt")
    assert topic is not None
    assert topic.uid == "somebody's"


def test_a_deleted_store_s_files_go_after_the_grace(cluster: Cluster) -> None:
    """Deleting is refused while a rebuild runs; then files and topic wait for the grace and go, noted beforehand."""
    store = cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    error = refused(Refused, lambda: cluster.client.delete_store("flights"))
    assert (error.code, error.hint) == ("rebuild_running", f"anew rebuild kill {rebuild.id}")
    cluster.seal(rebuild)
    cluster.settle()
    cluster.write(store.feeds[0], 5)
    cluster.pass_seconds(2 * 86_400)
    cluster.settle(2)
    cluster.client.delete_store("flights")
    kinds = {row.kind for row in cluster.client.reclaims()}
    assert kinds >= {"tree", "topic"}
    cluster.pass_seconds(599)
    cluster.round()
    assert cluster.files() != []
    cluster.pass_seconds(2)
    cluster.round()
    assert (cluster.files(), cluster.log.topic("flights_rt"), cluster.client.reclaims()) == ([], None, [])


@pytest.mark.case("stores:A10")
def test_without_its_catalog_nothing_is_made(cluster: Cluster, tmp_path: Path) -> None:
    """A catalog that does not answer fails the request at once; afterwards there is no version, topic or file of it."""
    cluster.create()
    plan, before = cluster.push_plan(), cluster.store()
    with sqlite3.connect(tmp_path / "catalog.sqlite", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        for act in (lambda: cluster.begin(plan), lambda: cluster.create("other")):
            assert refused(Unreachable, act).code == "catalog_unreachable"
        other.execute("ROLLBACK")
    other.close()
    assert (cluster.store(), cluster.client.rebuilds(), cluster.files()) == (before, [], [])
    assert (cluster.log.topic("other_rt"), len(cluster.client.stores())) == (None, 1)
    assert cluster.begin(plan).version == 1


@pytest.mark.case("rules:R22")
def test_a_topic_that_cannot_be_made_now_is_made_later(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is announced before it is made: with the log away the store is there, says what waits, and gets it."""

    def away(_spec: TopicSpec) -> None:
        raise Unreachable("log_unreachable", "the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "create_topic", away)
        store = cluster.create()
        cluster.round()
        assert cluster.client.routing("flights").feed is None
        assert [p.what for p in cluster.client.status().problems] == [
            f"the topic of {store.feeds[0].id} is not made yet"
        ]
    cluster.round()
    assert cluster.client.status().healthy
    assert cluster.client.routing("flights").feed == cluster.store().feeds[0]
    assert cluster.store().feeds[0].topic_uid == store.feeds[0].topic_uid


@pytest.mark.case("rules:R22")
def test_one_request_at_once_from_many_is_one_store(cluster: Cluster) -> None:
    """A request that is under way several times makes one store, and everybody is told of it."""
    with ThreadPoolExecutor(4) as pool:
        views = list(pool.map(lambda _: cluster.client.create_store(_create(request_id="r-1")), range(8)))
    assert len({view.uid for view in views}) == 1
    assert len(cluster.client.stores()) == 1


def test_requests_of_another_form_are_refused(cluster: Cluster) -> None:
    """A body that does not fit is refused with the field, in the one shape that errors have."""
    answer = cluster.http.post("/v1/stores", json={"name": "flights", "colour": "red"})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["code"], set(error)) == ("bad_request", {"code", "message", "found", "expected", "hint"})
    assert "key_schema" in error["message"]
