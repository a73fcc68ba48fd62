"""Values whose schema nobody knows: decided once, by the schemas that the store has then (rule R21)."""

from __future__ import annotations

import json

import pytest

from anew.api.models import NodeReport
from anew.api.stores.replicas import UnknownSchema
from anew.api.stores.requests import UpdateStore
from anew.core.errors import Unreachable
from anew.core.feed import Settled
from anew.testing.builders import VALUE_SCHEMA
from tests.component.controller.harness import Cluster, node_report


def _ask(cluster: Cluster, schema_id: int, offset: int = 0, partition: int = 1) -> None:
    """A node reports that it waits at a record."""
    store = cluster.store()
    unknown = UnknownSchema(
        store_uid=store.uid, feed=store.feeds[0].id, partition=partition, offset=offset, schema_id=schema_id
    )
    told: NodeReport = node_report("node-1")
    cluster.client.report(told.model_copy(update={"unknown_schemas": (unknown,)}))


def _settled(cluster: Cluster) -> tuple[Settled, ...]:
    return cluster.store().feeds[0].settled


@pytest.mark.case("rules:R21")
def test_an_unknown_schema_is_decided_once(cluster: Cluster) -> None:
    """All that the partition holds by then is decided by the schemas of then; asking again changes nothing."""
    cluster.create()
    written = cluster.write(cluster.store().feeds[0], 40)
    end = sum(at.partition == 1 for at, _ in written)
    newest = cluster.store().newest_schema_id
    _ask(cluster, 999)
    assert _settled(cluster) == (Settled(partition=1, below=end, newest_schema_id=newest),)
    revision = cluster.store().revision
    _ask(cluster, 999)
    _ask(cluster, 1_000, offset=end - 1)
    assert cluster.store().revision == revision
    operations = [o.what for o in cluster.client.history("flights")]
    assert operations.count("reject unknown schema") == 1


@pytest.mark.case("rules:R21")
def test_a_schema_that_was_registered_meanwhile_counts(cluster: Cluster) -> None:
    """A node that has yet to hear of a schema waits; nothing is decided against it."""
    cluster.create()
    schema = json.loads(VALUE_SCHEMA)
    schema["fields"].append({"name": "more", "type": ["null", "string"], "default": None})
    cluster.client.update_store("flights", UpdateStore(value_schema=json.dumps(schema)))
    _ask(cluster, cluster.store().newest_schema_id)
    assert _settled(cluster) == ()


def test_nothing_is_decided_while_the_log_is_away(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is taken; the next one asks again."""
    cluster.create()

    def away(*_: object) -> None:
        raise Unreachable("log_unreachable", "the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "offsets", away)
        _ask(cluster, 999)
    assert _settled(cluster) == ()
    _ask(cluster, 999)
    assert [one.below for one in _settled(cluster)] == [1]
