"""The topics that bases go through: announced with their version, made, named in the manifest, gone with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from anew.core.errors import AnewError, Failed, Refused, Unreachable
from anew.core.stores.store import VersionTopic
from anew.log.interface import TopicSpec
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.test_patience import a_run, run_to_end

_WEEK_SECONDS = 7 * 86_400


def _made(cluster: Cluster, number: int) -> VersionTopic:
    topic = cluster.there(number).topic
    assert topic is not None
    return topic


@contextmanager
def _log_refuses(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: AnewError) -> Iterator[None]:
    """While this lasts the log makes no topic."""

    def refuse(_spec: TopicSpec) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "create_topic", refuse)
        yield


def _away() -> Unreachable:
    return Unreachable("log_unreachable", "the log does not answer")


@pytest.mark.case("rules:R23")
def test_a_version_gets_a_topic_of_its_own(cluster: Cluster) -> None:
    """As many partitions as the version has sub-partitions, one name in catalog and log; none where files are used."""
    cluster.create(transport="log", partitions=3, amplification_factor=2)
    cluster.begin(cluster.push_plan())
    topic = _made(cluster, 1)
    assert topic.ready
    assert cluster.log.topic("flights_v1") == TopicSpec("flights_v1", topic.uid, 6)
    cluster.client.kill_rebuild(cluster.client.rebuilds()[0].id)
    cluster.update(transport="files")
    cluster.begin(cluster.push_plan())
    assert cluster.there(2).topic is None
    assert cluster.log.topic("flights_v2") is None


def test_somebody_elses_topic_is_in_the_way(cluster: Cluster) -> None:
    """A topic of the name that no version made refuses the rebuild before anything is made, and is left alone."""
    cluster.create(transport="log")
    foreign = cluster.log.create_topic(TopicSpec("flights_v1", "theirs", 1))
    plan, before = cluster.push_plan(), cluster.store()
    error = refused(Refused, lambda: cluster.begin(plan))
    assert (error.code, error.found) == ("topic_exists", "uid theirs")
    assert cluster.store() == before
    assert cluster.log.topic("flights_v1") == foreign


@pytest.mark.parametrize(
    "error", [_away(), Refused("topic_refused", "there are too many topics")], ids=["unreachable", "refused"]
)
def test_a_topic_that_cannot_be_made_yet_is_made_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: AnewError
) -> None:
    """The version is begun with its topic announced; a later round makes it."""
    cluster.create(transport="log")
    with _log_refuses(cluster, monkeypatch, error):
        rebuild = cluster.begin(cluster.push_plan())
        cluster.round()
        assert not _made(cluster, 1).ready
        assert cluster.client.rebuild(rebuild.id).status == "running"
    cluster.round()
    assert _made(cluster, 1).ready
    assert cluster.log.topic("flights_v1") is not None


def test_a_topic_goes_with_its_version(cluster: Cluster) -> None:
    """A backup's topic stays until its retention and its grace are over; the current version's stays for good."""
    cluster.create(transport="log")
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(1)
    assert cluster.status(1) == "retired"
    cluster.pass_seconds(599)
    cluster.round()
    assert cluster.log.topic("flights_v1") is not None
    cluster.pass_seconds(1)
    cluster.round()
    assert (cluster.status(1), cluster.log.topic("flights_v1")) == ("reclaimed", None)
    cluster.pass_seconds(10 * _WEEK_SECONDS)
    cluster.settle(3)
    assert cluster.log.topic("flights_v2") is not None


def test_topics_go_with_their_store(cluster: Cluster) -> None:
    """After the grace of a deleted store none of its topics is left."""
    cluster.create(transport="log")
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    cluster.client.delete_store("flights")
    cluster.round()
    assert cluster.log.topic("flights_v1") is not None
    cluster.pass_seconds(600)
    cluster.round()
    assert [cluster.log.topic(name) for name in ("flights_v1", "flights_v2", "flights_rt")] == [None, None, None]


def test_the_topic_of_a_failed_version_goes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it was made although its version had ended, by a controller that stood still before the act."""
    cluster.create(transport="log")
    with _log_refuses(cluster, monkeypatch, _away()):
        rebuild = cluster.begin(cluster.push_plan())
    stale = cluster.store()
    cluster.client.kill_rebuild(rebuild.id)
    cluster.settle(1)
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(2)
    assert cluster.status(1) == "reclaimed"
    catalog = cluster.context.catalog
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "stores", lambda: [stale])
        cluster.round()
    assert cluster.log.topic("flights_v1") is None


def test_a_driver_waits_for_its_topic(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the controller has made it, for as long as its patience lasts; then the version has failed."""
    cluster.create(transport="log")
    plan = cluster.empty_push_plan()
    with _log_refuses(cluster, monkeypatch, _away()), pytest.raises(Failed) as caught:
        run_to_end(plan, a_run(cluster, cluster.client, "r-1"))
    assert caught.value.code == "topic_not_made"
    assert cluster.status(1) in ("failed", "retired")
    assert run_to_end(cluster.empty_push_plan(), a_run(cluster, cluster.client, "r-2")).status == "succeeded"
