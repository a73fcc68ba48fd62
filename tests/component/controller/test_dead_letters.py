"""Dead letters in their store's topic: each record that no version applies, with where it was and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anew.api.stores.replicas import DeadLetter
from anew.catalog.change import Change, PutSetAside
from anew.controller.engine.apart import Apart
from anew.controller.stores.deadletters import set_aside
from anew.core.errors import OutcomeUnknown, Unreachable
from anew.core.stores.store import Store
from anew.log.interface import TopicPartition, TopicSpec, topic_partition
from anew.testing.log_reading import partition_of, rows
from tests.component.controller.harness import Cluster, node_report

_TOPIC = "flights_dead_letters"


def _reported(cluster: Cluster, store: Store, count: int, reason: str = "bad time") -> list[tuple[int, int]]:
    """Records in the store's log that a node rejects, as (partition, offset)."""
    found = sorted((at.partition, offset) for at, offset in cluster.write(store.feeds[0], count))
    letters = tuple(
        DeadLetter(store_uid=store.uid, feed=store.feeds[0].id, partition=part, offset=offset, reason=reason)
        for part, offset in found
    )
    cluster.client.report(node_report("node-1", dead_letters=letters))
    return found


def _set_aside(cluster: Cluster, topic: str = _TOPIC) -> list[dict[str, Any]]:
    """What the copies say of the records that they are of."""
    spec = cluster.log.topic(topic)
    return [] if spec is None else [json.loads(row["origin"]) for row in rows(cluster.log, partition_of(spec))]


@pytest.mark.case("rules:R21")
def test_dead_letters_are_copied_with_their_reason(cluster: Cluster) -> None:
    """Each once, in the order of the log; a store without any gets no topic."""
    store, other = cluster.create(), cluster.create("other")
    cluster.round()
    assert cluster.log.topic(_TOPIC) is None
    found = _reported(cluster, store, 5)
    cluster.round()
    cluster.round()
    copies = _set_aside(cluster)
    assert [(copy["partition"], copy["offset"]) for copy in copies] == found
    assert {copy["reason"] for copy in copies} == {"bad time"}
    assert {copy["topic"] for copy in copies} == {"flights_rt"}
    assert cluster.log.topic(f"{other.name}_dead_letters") is None
    assert cluster.client.store("flights").dead_letters == 5
    _reported(cluster, store, 1, "bad place")
    cluster.round()
    assert [copy["reason"] for copy in _set_aside(cluster)] == [*["bad time"] * 5, "bad place"]


@pytest.mark.case("rules:R22")
def test_a_crash_before_the_note_copies_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out; a copy that was made before the crash is there twice, and says of which record it is."""
    store = cluster.create()
    found = _reported(cluster, store, 3)
    commit = cluster.context.catalog.commit

    def dies(change: Change) -> int:
        if any(isinstance(put, PutSetAside) for put in change.puts):
            raise OutcomeUnknown("catalog_unknown", "the catalog went away")
        return commit(change)

    with monkeypatch.context() as patch:
        patch.setattr(cluster.context.catalog, "commit", dies)
        set_aside(cluster.context, Apart())
    assert len(_set_aside(cluster)) == 3
    cluster.round()
    cluster.round()
    assert [(copy["partition"], copy["offset"]) for copy in _set_aside(cluster)] == found * 2


def test_a_topic_of_somebody_else_is_left_alone(cluster: Cluster) -> None:
    """Its store's dead letters wait until it is gone; those of other stores do not."""
    store, other = cluster.create(), cluster.create("other")
    foreign = cluster.log.create_topic(TopicSpec(_TOPIC, "theirs", 1))
    _reported(cluster, store, 2)
    _reported(cluster, other, 2)
    cluster.round()
    assert rows(cluster.log, partition_of(foreign)) == []
    assert len(_set_aside(cluster, "other_dead_letters")) == 2
    cluster.log.delete_topic(_TOPIC, "theirs")
    cluster.round()
    assert len(_set_aside(cluster)) == 2


def test_what_the_log_has_no_more_is_not_waited_for(cluster: Cluster) -> None:
    """A record that was truncated before it could be copied is left out; it is still counted."""
    store = cluster.create(rt_partitions=1)
    _reported(cluster, store, 3)
    cluster.log.truncate_below(topic_partition(store.feeds[0], 0), 2)
    cluster.round()
    assert [copy["offset"] for copy in _set_aside(cluster)] == [2]
    assert cluster.context.catalog.dead_letter_counts(waiting=True) == {}
    assert cluster.client.store("flights").dead_letters == 3


def test_a_topic_that_somebody_removed_is_made_again(cluster: Cluster) -> None:
    """Removing it is a way to empty it."""
    store = cluster.create()
    _reported(cluster, store, 2)
    cluster.round()
    spec = cluster.log.topic(_TOPIC)
    assert spec is not None
    cluster.log.delete_topic(_TOPIC, spec.uid)
    _reported(cluster, store, 1)
    cluster.round()
    assert len(_set_aside(cluster)) == 1


def test_the_topic_goes_with_its_store(cluster: Cluster) -> None:
    """After the grace; what still waited then is let go, and a store of the same name begins with none."""
    store = cluster.create()
    _reported(cluster, store, 2)
    cluster.round()
    _reported(cluster, store, 1)
    cluster.client.delete_store("flights")
    cluster.round()
    assert len(_set_aside(cluster)) == 2
    assert cluster.context.catalog.dead_letter_counts(waiting=True) == {}
    assert not any(name.startswith("dead_letter_topic/") for name in cluster.context.catalog.flags())
    cluster.pass_seconds(600)
    cluster.round()
    assert cluster.log.topic(_TOPIC) is None


def test_a_partition_that_cannot_be_read_has_no_other_copied_twice(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied is noted at once: the dead-letter topic does not grow while the log's other leader is away."""
    store = cluster.create()
    found = _reported(cluster, store, 12)
    bad = max(partition for partition, _ in found)
    copy = cluster.log.set_aside

    def away(at: TopicPartition, letters: Any, to: TopicPartition) -> int:
        if at.partition == bad:
            raise Unreachable("log_unreachable", "its leader is away")
        return copy(at, letters, to)

    monkeypatch.setattr(cluster.context.fabrics["dc-0"].log, "set_aside", away)
    for _ in range(5):
        cluster.round()
    others = [place for place in found if place[0] != bad]
    assert sorted((letter["partition"], letter["offset"]) for letter in _set_aside(cluster)) == others
    monkeypatch.undo()
    cluster.round()
    assert len(_set_aside(cluster)) == len(found)
