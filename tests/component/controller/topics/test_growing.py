"""Topics of our own that get more partitions: by us, by somebody else, and with crashes in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anew.api.topics import AlterTopic, CreateTopic, TopicView
from anew.core.errors import Failed, InvalidRequest, NotFound, Refused, Unreachable
from anew.core.topics.topic import Topic
from anew.log.interface import Offsets, TopicPartition, TopicSpec
from anew.testing.raw_contract import raw_records
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.jobs.jobs_harness import CLASSES, EVENTS, Jobs
from tests.component.controller.topics.conftest import Opened, Ran

_NAME = "clicks"


def _create(cluster: Cluster, **fields: Any) -> TopicView:
    return cluster.client.create_topic(CreateTopic(**{"name": _NAME, "partitions": 2, **fields}))


def _alter(cluster: Cluster, partitions: int, name: str = _NAME) -> TopicView:
    return cluster.client.alter_topic(name, AlterTopic(partitions=partitions))


def _topic(cluster: Cluster) -> Topic:
    topic = cluster.context.catalog.topic(_NAME)
    assert topic is not None
    return topic


def _count(cluster: Cluster) -> int:
    spec = cluster.log.topic(_NAME)
    assert spec is not None
    return spec.partitions


def _at(view: TopicView, partition: int) -> TopicPartition:
    return TopicPartition(view.name, view.topic_uid, partition)


def test_a_topic_gets_partitions(cluster: Cluster) -> None:
    """Catalog and log have as many, the records of before are there, and the history says who wanted it."""
    view = _create(cluster)
    cluster.log.append_raw(_at(view, 1), raw_records([(None, b"{}")]))
    after = _alter(cluster, 4)
    assert (after.partitions, after.growing_to, after.topic_uid) == (4, None, view.topic_uid)
    assert [cluster.log.offsets(_at(view, p)).end for p in range(4)] == [0, 1, 0, 0]
    lines = [(line.what, line.actor) for line in cluster.client.history(_NAME)]
    assert lines[:2] == [("partitions added", "controller"), ("alter topic", "tester")]
    revision = cluster.context.catalog.revision()
    assert _alter(cluster, 4) == after
    assert cluster.context.catalog.revision() == revision


@pytest.mark.parametrize(
    ("partitions", "kind", "code"),
    [
        (1, Refused, "fewer_partitions"),
        (0, InvalidRequest, "bad_partitions"),
        (10_001, InvalidRequest, "bad_partitions"),
    ],
)
def test_what_no_topic_can_have_is_refused(cluster: Cluster, partitions: int, kind: type[Any], code: str) -> None:
    """Fewer partitions than now, none, or too many: neither catalog nor log changes."""
    _create(cluster)
    revision = cluster.context.catalog.revision()
    assert refused(kind, lambda: _alter(cluster, partitions)).code == code
    assert (cluster.context.catalog.revision(), _count(cluster)) == (revision, 2)


@pytest.mark.case("rules:R8")
def test_a_store_s_topic_never_grows(cluster: Cluster) -> None:
    """Only topics of our own are known here: that of a store is none of them."""
    cluster.create()
    spec = cluster.log.topic("flights_rt")
    assert spec is not None
    assert refused(NotFound, lambda: _alter(cluster, 9, "flights_rt")).code == "unknown_topic"
    assert cluster.log.topic("flights_rt") == spec


@pytest.mark.case("rules:R22")
@pytest.mark.parametrize("is_done", [True, False], ids=["after the log did it", "before the log did it"])
@pytest.mark.parametrize("repeats", [True, False], ids=["a repeat", "the next round"])
def test_a_crash_between_intent_and_note_is_finished(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, is_done: bool, repeats: bool
) -> None:
    """The topic is to grow, as the catalog says from then on; a repeat or the next round finishes it, once."""
    view = _create(cluster)
    add = cluster.log.add_partitions

    def died(name: str, uid: str, partitions: int) -> int:
        if is_done:
            add(name, uid, partitions)
        raise Unreachable("log_unreachable", "the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "add_partitions", died)
        waiting = _alter(cluster, 3)
    assert (waiting.partitions, waiting.growing_to) == (2, 3)
    assert _count(cluster) == (3 if is_done else 2)
    if is_done:
        cluster.log.append_raw(_at(view, 2), raw_records([(None, b"{}")]))
    if repeats:
        _alter(cluster, 3)
    else:
        cluster.round()
    assert (_topic(cluster).partitions, _topic(cluster).growing_to, _count(cluster)) == (3, None, 3)
    assert cluster.log.offsets(_at(view, 2)) == Offsets(0, 1 if is_done else 0)


def test_what_the_log_refuses_is_not_wanted_any_more(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's policy, for one: neither the rounds nor whoever asks for fewer wait for it."""
    _create(cluster)
    add = cluster.log.add_partitions

    def never(*_: object) -> int:
        raise Failed("log_failed", "a policy allows no more partitions")

    monkeypatch.setattr(cluster.log, "add_partitions", never)
    assert refused(Failed, lambda: _alter(cluster, 9)).code == "log_failed"
    assert _topic(cluster).growing_to is None
    monkeypatch.setattr(cluster.log, "add_partitions", add)
    assert _alter(cluster, 3).partitions == 3


def test_two_that_alter_at_once_both_have_their_way(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wanted while partitions are added is added after it; less than is wanted already is refused."""
    _create(cluster)
    add = cluster.log.add_partitions
    errors = list[str]()

    def altered_meanwhile(name: str, uid: str, partitions: int) -> int:
        monkeypatch.setattr(cluster.log, "add_partitions", away)
        _alter(cluster, 5)
        errors.append(refused(Refused, lambda: _alter(cluster, 4)).code)
        return add(name, uid, partitions)

    def away(*_: object) -> int:
        raise Unreachable("log_unreachable", "the log does not answer")

    monkeypatch.setattr(cluster.log, "add_partitions", altered_meanwhile)
    view = _alter(cluster, 3)
    assert (view.partitions, view.growing_to, errors) == (3, 5, ["fewer_partitions"])
    monkeypatch.setattr(cluster.log, "add_partitions", add)
    cluster.round()
    assert (_topic(cluster).partitions, _topic(cluster).growing_to, _count(cluster)) == (5, None, 5)


def test_what_somebody_else_added_is_taken_over(cluster: Cluster, ran: Ran) -> None:
    """Until then it is read and shown, and anew writes where it wrote; fewer than the log has are refused."""
    view = _create(cluster)
    cluster.log.add_partitions(_NAME, view.topic_uid, 4)
    shown = cluster.client.topic(_NAME)
    assert shown.facts is not None
    assert (shown.partitions, len(shown.facts.partitions)) == (2, 4)
    assert "2, and 4 in the log" in ran("show", _NAME, as_json=False).replace("\n", " ")
    assert refused(Refused, lambda: _alter(cluster, 3)).code == "fewer_partitions"
    assert _topic(cluster).growing_to is None
    assert _alter(cluster, 4).partitions == 4


def test_readers_see_what_lies_in_added_partitions(cluster: Cluster, opened: Opened) -> None:
    """A reader that lives reads them too; a writer that lives goes on where it wrote, one made again uses all."""
    _create(cluster)
    reader, writer = opened(_NAME), opened(_NAME).writer()
    other = opened(_NAME)
    assert other.alter(partitions=9).partitions == 9
    for each in (writer, other.writer()):
        with each:
            for number in range(9):
                each.put(None, number)
    found = {(record.partition, record.value) for record in reader.read(limit=100)}
    assert found == {(number % 2, number) for number in range(9)} | {(number, number) for number in range(9)}


def test_retention_of_added_partitions(cluster: Cluster) -> None:
    """What is older than the retention goes there too, whoever added them."""
    view = _create(cluster, retention_seconds=60)
    cluster.log.add_partitions(_NAME, view.topic_uid, 3)
    for _ in range(3):
        cluster.log.append_raw(_at(view, 2), raw_records([(None, b"{}")] * 2))
        cluster.pass_seconds(30)
    cluster.round()
    assert cluster.log.offsets(_at(view, 2)).begin == 2


def test_a_topic_that_is_not_made_yet_does_not_grow(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made first; and one that is deleted while it is to grow is left alone."""

    def away(*_: object) -> TopicSpec:
        raise Unreachable("log_unreachable", "the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "create_topic", away)
        _create(cluster)
        assert refused(Refused, lambda: _alter(cluster, 3)).code == "topic_not_ready"
    cluster.round()
    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "add_partitions", away)
        _alter(cluster, 3)
        cluster.client.delete_topic(_NAME)
    cluster.round()
    assert _count(cluster) == 2


def test_a_generation_s_topic_keeps_its_partitions(cluster: Cluster) -> None:
    """The topic that a job names grows, and the next generation's with it; one that a generation writes into not."""
    jobs = Jobs(cluster)
    jobs.topics()
    jobs.create()
    jobs.running()
    error = refused(Refused, lambda: _alter(cluster, 3, f"{CLASSES}_g1"))
    assert (error.code, f"anew topic alter {CLASSES}" in str(error.hint)) == ("topic_in_use", True)
    assert _alter(cluster, 3, CLASSES).partitions == 3
    jobs.running(jobs.plan(code=None))
    client = cluster.client
    assert [client.topic(f"{CLASSES}_g{number}").partitions for number in (1, 2)] == [2, 3]
    assert _alter(cluster, 5, EVENTS).partitions == 5


def test_what_people_are_told(cluster: Cluster, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many there are; that it waits for the log; and what was wrong."""
    ran("create", _NAME, "--partitions", "2")
    told = ran("alter", _NAME, "--partitions", "3", as_json=False)
    assert told.startswith(f"{_NAME} has 3 partitions")
    assert ran("alter", _NAME, "--partitions", "4")["partitions"] == 4
    assert ran("alter", _NAME, "--partitions", "2", code=3)["error"]["code"] == "fewer_partitions"

    def away(*_: object) -> int:
        raise Unreachable("log_unreachable", "the log does not answer")

    add: Callable[..., int] = cluster.log.add_partitions
    monkeypatch.setattr(cluster.log, "add_partitions", away)
    assert "gets 5 partitions once the log answers" in ran("alter", _NAME, "--partitions", "5", as_json=False)
    assert "4, to be 5" in ran("show", _NAME, as_json=False)
    monkeypatch.setattr(cluster.log, "add_partitions", add)
