"""Topics of our own: made, shown, kept and deleted by the controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anew.api.models import Collect, RestoreCatalog
from anew.api.topics import CreateTopic, TopicView
from anew.controller.topics import upkeep
from anew.core.errors import Failed, InvalidRequest, NotFound, Refused, Unreachable
from anew.core.topics.topic import Kept, Topic, TopicFormat
from anew.log import partition_file
from anew.log.interface import Retention, TopicPartition, TopicSpec
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA, some_records
from anew.testing.clock import NOON_MS
from anew.testing.memory.registry import MemoryRegistry
from anew.testing.raw_contract import raw_records
from tests.component.controller.harness import Cluster, opened_cluster, refused

_MONTH_SECONDS = 31 * 86_400


def _create(cluster: Cluster, name: str = "clicks", **fields: Any) -> TopicView:
    return cluster.client.create_topic(CreateTopic(name=name, **fields))


def _topic(cluster: Cluster, name: str = "clicks") -> Topic:
    topic = cluster.context.catalog.topic(name)
    assert topic is not None
    return topic


def _at(view: TopicView, partition: int = 0) -> TopicPartition:
    return TopicPartition(view.name, view.topic_uid, partition)


@contextmanager
def _log_is_away(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *methods: str) -> Iterator[None]:
    def away(*_: object, **__: object) -> Any:
        raise Unreachable("log_unreachable", "the log does not answer")

    with monkeypatch.context() as patch:
        for method in methods:
            patch.setattr(cluster.log, method, away)
        yield


def test_a_topic_is_made_in_the_log(cluster: Cluster) -> None:
    """Catalog and log know the same topic, with partitions and retention; the history says who made it."""
    view = _create(cluster, partitions=3, columns="a INT", retention_seconds=60, retention_bytes=1_000)
    assert (view.format, view.columns, view.ready, view.fabric) == (TopicFormat.JSON, "a INT", True, FABRIC)
    assert (view.retention_seconds, view.retention_bytes, view.created_at) == (60, 1_000, NOON_MS)
    made = cluster.log.topic("clicks")
    assert made == TopicSpec("clicks", view.topic_uid, 3)
    assert made.retention == Retention(60_000, 1_000)
    lines = [(line.what, line.actor) for line in cluster.client.history("clicks")]
    assert lines == [("topic made", "controller"), ("create topic", "tester")]


def test_what_a_topic_is_made_with_when_little_is_said(cluster: Cluster) -> None:
    """One partition of JSON values without columns, kept for ever."""
    view = _create(cluster)
    assert (view.partitions, view.format, view.columns) == (1, TopicFormat.JSON, None)
    assert _topic(cluster).kept == Kept()
    assert (view.retention_seconds, view.retention_bytes) == (None, None)


def test_schemas_get_ids(cluster: Cluster, tmp_path: Path) -> None:
    """Avro schemas are canonical, numbered by the catalog, or by the registry under the topic's subjects."""
    view = _create(cluster, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
    assert view.format is TopicFormat.AVRO
    assert view.key_schema == '"string"'
    assert (view.key_schema_id, view.value_schema_id) == (1, 2)
    registry = MemoryRegistry()
    with opened_cluster(tmp_path / "other", registry=registry) as other:
        view = _create(other, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
        assert [one.id for one in registry.versions("clicks-key")] == [view.key_schema_id]
        assert [one.id for one in registry.versions("clicks-value")] == [view.value_schema_id]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "clicks_rt"}, "bad_topic_name"),
        ({"name": "Clicks"}, "bad_topic_name"),
        ({"partitions": 0}, "bad_partitions"),
        ({"fabric": "dc-9"}, "unknown_fabric"),
        ({"columns": "a NONSENSE"}, "bad_columns"),
        ({"key_schema": KEY_SCHEMA}, "bad_topic_format"),
        ({"format": "avro"}, "bad_topic_format"),
        ({"format": "bytes", "columns": "a INT"}, "bad_topic_format"),
        ({"format": "json", "value_schema": VALUE_SCHEMA}, "bad_topic_format"),
        ({"key_schema": KEY_SCHEMA, "value_schema": VALUE_SCHEMA, "columns": "a INT"}, "bad_topic_format"),
        ({"key_schema": "nonsense", "value_schema": VALUE_SCHEMA}, "bad_schema"),
        ({"retention_seconds": 0}, "bad_request"),
        ({"retention_bytes": -1}, "bad_request"),
    ],
)
def test_a_bad_description_makes_nothing(cluster: Cluster, fields: dict[str, Any], code: str) -> None:
    """What is wrong is named, and neither catalog nor log changes."""
    answer = cluster.http.post("/v1/topics", json={"name": "clicks", **fields})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
    assert cluster.context.catalog.topics() == []
    assert cluster.log.topic("clicks") is None


def test_a_taken_name_is_refused(cluster: Cluster) -> None:
    """Neither another topic of ours nor one that somebody else made in the log gives up its name."""
    _create(cluster)
    assert refused(Refused, lambda: _create(cluster, partitions=2)).code == "topic_exists"
    foreign = cluster.log.create_topic(TopicSpec("alerts", "theirs", 1))
    assert refused(Refused, lambda: _create(cluster, "alerts")).code == "topic_exists"
    assert cluster.context.catalog.topic("alerts") is None
    assert cluster.log.topic("alerts") == foreign


@pytest.mark.case("rules:R22")
def test_the_same_request_makes_one_topic(cluster: Cluster) -> None:
    """A repeat under its request id gets the first one's topic; with another body it is refused."""
    first = _create(cluster, request_id="r-1")
    assert _create(cluster, request_id="r-1") == first
    error = refused(InvalidRequest, lambda: _create(cluster, request_id="r-1", partitions=2))
    assert error.code == "request_id_reused"


@pytest.mark.case("rules:R22")
@pytest.mark.parametrize("repeats", [True, False])
def test_what_was_announced_is_made_later(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, repeats: bool) -> None:
    """Where the log does not answer the topic is announced; a repeat of the request makes it, or the next round."""
    with _log_is_away(cluster, monkeypatch, "create_topic"):
        assert not _create(cluster, request_id="r-1").ready
        cluster.round()
    if repeats:
        assert _create(cluster, request_id="r-1").ready
    else:
        cluster.round()
    topic = _topic(cluster)
    assert topic.ready
    assert cluster.log.topic("clicks") == TopicSpec("clicks", topic.topic_uid, 1)


@pytest.mark.case("rules:R22")
def test_a_crash_after_the_log_made_it_is_finished(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's topic is found again by the uid that was chosen for it, and no second one is made."""
    make = cluster.log.create_topic

    def made_and_died(spec: TopicSpec) -> TopicSpec:
        make(spec)
        raise Unreachable("log_unreachable", "the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "create_topic", made_and_died)
        _create(cluster)
    made = cluster.log.topic("clicks")
    assert made is not None
    cluster.round()
    assert (_topic(cluster).ready, _topic(cluster).topic_uid) == (True, made.uid)


def test_a_topic_deleted_before_it_was_made_leaves_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted while the log is away is not made by any later round, and what was made late goes at once."""
    with _log_is_away(cluster, monkeypatch, "create_topic"):
        _create(cluster)
    make = cluster.log.create_topic

    def deleted_meanwhile(spec: TopicSpec) -> TopicSpec:
        made = make(spec)
        cluster.client.delete_topic("clicks")
        return made

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "create_topic", deleted_meanwhile)
        cluster.round()
    assert cluster.log.topic("clicks") is None
    cluster.pass_seconds(600)
    cluster.round()
    assert cluster.log.topic("clicks") is None


def test_topics_are_listed_by_name(cluster: Cluster) -> None:
    """Without facts, for which each log would have to be asked."""
    for name in ("clicks", "alerts", "zones"):
        _create(cluster, name)
    assert [(view.name, view.facts) for view in cluster.client.topics()] == [
        ("alerts", None),
        ("clicks", None),
        ("zones", None),
    ]


def test_a_topic_is_shown_with_what_its_log_says(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention, compaction, and each partition's range and oldest time; or why the log says nothing."""
    view = _create(cluster, partitions=2, retention_seconds=60)
    cluster.log.append_raw(_at(view), raw_records([(None, b"{}"), (None, b"{}")]))
    shown = cluster.client.topic("clicks")
    assert shown.facts is not None
    assert (shown.facts.retention_seconds, shown.facts.compacted) == (60, False)
    found = [(p.begin, p.end, p.oldest_ms) for p in shown.facts.partitions]
    assert found == [(0, 2, cluster.clock.now_ms), (0, 0, None)]
    assert cluster.client.topic("clicks", facts=False).facts is None
    with _log_is_away(cluster, monkeypatch, "facts"):
        away = cluster.client.topic("clicks")
        assert (away.facts, "does not answer" in str(away.log_error)) == (None, True)
    error = refused(NotFound, lambda: cluster.client.topic("click"))
    assert (error.code, "clicks" in str(error.hint)) == ("unknown_topic", True)


@pytest.mark.case("rules:R2", "rules:R15")
def test_a_deleted_topic_goes_after_the_grace(cluster: Cluster) -> None:
    """Its name is gone at once; the log's topic stays for the grace, in which gc shows it, and then goes."""
    view = _create(cluster)
    cluster.client.delete_topic("clicks")
    assert refused(NotFound, lambda: cluster.client.topic("clicks")).code == "unknown_topic"
    cluster.pass_seconds(599)
    cluster.round()
    assert cluster.log.topic("clicks") is not None
    items = cluster.client.collect(Collect(dry_run=True)).items
    assert [(item.what, item.act) for item in items if item.name == f"{view.uid}/topic"] == [("topic", "wait")]
    cluster.pass_seconds(1)
    cluster.round()
    assert cluster.log.topic("clicks") is None


@pytest.mark.case("rules:R16")
def test_a_name_that_is_needed_again_shares_nothing(cluster: Cluster) -> None:
    """A topic that is made under the name of a deleted one is empty, has another identity, and outlives its grace."""
    first = _create(cluster)
    cluster.log.append(_at(first), some_records(3))
    cluster.client.delete_topic("clicks")
    second = _create(cluster)
    assert (second.incarnation, first.incarnation) == (2, 1)
    assert second.topic_uid != first.topic_uid
    assert cluster.log.offsets(_at(second)).end == 0
    cluster.pass_seconds(600)
    cluster.round()
    assert cluster.log.topic("clicks") == TopicSpec("clicks", second.topic_uid, 1)


def test_only_the_topic_that_was_meant_is_deleted(cluster: Cluster) -> None:
    """A topic that somebody made in the place of a lost one is not ours, and stays."""
    view = _create(cluster)
    cluster.log.delete_topic("clicks", view.topic_uid)
    foreign = cluster.log.create_topic(TopicSpec("clicks", "theirs", 1))
    cluster.client.delete_topic("clicks")
    cluster.pass_seconds(600)
    cluster.round()
    assert cluster.log.topic("clicks") == foreign


def test_a_deleted_topic_is_forgotten(cluster: Cluster) -> None:
    """When its log's topic has gone and the retention of deleted ones is over, the catalog lets it go."""
    _create(cluster)
    cluster.client.delete_topic("clicks")
    for _ in range(3):
        cluster.pass_seconds(_MONTH_SECONDS)
        cluster.round()
    assert cluster.context.catalog.deleted_topics() == []


def test_a_catalog_with_a_topic_is_no_place_for_a_restore(cluster: Cluster) -> None:
    """A topic counts as something that a restore would meet, also one that was deleted."""
    assert cluster.client.restore_catalog(RestoreCatalog(dry_run=True)).empty
    _create(cluster)
    assert not cluster.client.restore_catalog(RestoreCatalog(dry_run=True)).empty
    cluster.client.delete_topic("clicks")
    assert not cluster.client.restore_catalog(RestoreCatalog(dry_run=True)).empty


# -- retention -------------------------------------------------------------------------------------------------------


def _write(cluster: Cluster, view: TopicView, count: int = 2) -> None:
    for partition in range(view.partitions):
        cluster.log.append_raw(_at(view, partition), raw_records([(None, b"{}")] * count))


def _begins(cluster: Cluster, view: TopicView) -> list[int]:
    return [cluster.log.offsets(_at(view, partition)).begin for partition in range(view.partitions)]


def test_upkeep_applies_retention(cluster: Cluster) -> None:
    """In every partition what is older than the retention goes; a topic that is kept for ever loses nothing."""
    kept, ever = _create(cluster, partitions=2, retention_seconds=60), _create(cluster, "alerts", partitions=2)
    for _ in range(3):
        _write(cluster, kept)
        _write(cluster, ever)
        cluster.pass_seconds(30)
    cluster.round()
    assert (_begins(cluster, kept), _begins(cluster, ever)) == ([2, 2], [0, 0])


def test_nothing_is_forgotten_while_the_cluster_is_paused(cluster: Cluster) -> None:
    """A pause keeps records as it keeps files, so that somebody can look at them."""
    view = _create(cluster, retention_seconds=60)
    _write(cluster, view)
    _write(cluster, view)
    cluster.client.pause(None)
    cluster.pass_seconds(600)
    cluster.round()
    assert _begins(cluster, view) == [0]
    cluster.client.unpause(None)
    cluster.pass_seconds(1)
    cluster.round()
    assert _begins(cluster, view) == [2]


def test_one_failing_topic_stops_no_other(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be kept in order is told as a step that fails; all others have theirs."""
    views = [_create(cluster, name, retention_seconds=60) for name in ("alerts", "clicks", "zones")]
    for view in views:
        _write(cluster, view)
        _write(cluster, view)
    cluster.pass_seconds(600)
    apply = cluster.log.apply_retention

    def apply_or_fail(at: TopicPartition, retention: Retention) -> int:
        if at.topic == "clicks":
            raise Failed("log_corrupt", "a partition does not hold what was appended")
        return apply(at, retention)

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "apply_retention", apply_or_fail)
        cluster.round()
    assert [_begins(cluster, view) for view in views] == [[2], [0], [2]]
    assert "retention of clicks" in cluster.context.failing


def test_what_a_round_leaves_goes_in_the_next(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that was not kept in order for long is put in order in bounded steps, without waiting between rounds."""
    monkeypatch.setattr(partition_file, "FORGOTTEN_ROWS", 2)
    monkeypatch.setattr(upkeep, "MOST_STEPS", 3)
    view = _create(cluster, retention_seconds=60)
    for _ in range(20):
        _write(cluster, view, 1)
    cluster.pass_seconds(600)
    begins = []
    for _ in range(4):
        cluster.reconciler.round()
        begins += _begins(cluster, view)
    assert begins == [6, 12, 18, 19]


def test_a_round_looks_at_a_bounded_number_of_partitions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more partitions the next rounds take the rest, without waiting for the next time that retention is due."""
    monkeypatch.setattr(upkeep, "MOST_PARTITIONS", 4)
    views = [_create(cluster, f"t{number}", partitions=2, retention_seconds=60) for number in range(5)]
    for view in views:
        _write(cluster, view)
        _write(cluster, view)
    cluster.pass_seconds(600)
    done = []
    for _ in range(3):
        cluster.reconciler.round()
        done.append(sum(_begins(cluster, view) == [2, 2] for view in views))
    assert done == [2, 4, 5]
