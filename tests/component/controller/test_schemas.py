"""Schema ids from a schema registry, at which others register, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anew.api.models import NodeReport
from anew.api.stores.replicas import UnknownSchema
from anew.api.stores.requests import UpdateStore
from anew.codec.avro import parse_schema
from anew.core.errors import InvalidRequest, Refused, Unreachable
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.memory.registry import MemoryRegistry
from tests.component.controller.harness import Cluster, node_report, opened_cluster, refused

_SUBJECT = "flights_rt-value"


@pytest.fixture
def registry() -> MemoryRegistry:
    """A registry that knows other people's schemas already."""
    registry = MemoryRegistry()
    for number in range(5):
        registry.register("somebody-else", json.dumps({"type": "fixed", "name": "F", "size": number + 1}))
    return registry


@pytest.fixture
def registered(tmp_path: Path, registry: MemoryRegistry) -> Iterator[Cluster]:
    """A controller whose schema ids come from it."""
    with opened_cluster(tmp_path, registry=registry) as opened:
        yield opened


def _with_field(name: str, **default: Any) -> str:
    schema = json.loads(VALUE_SCHEMA)
    schema["fields"].append({"name": name, "type": ["null", "string"], **default})
    return json.dumps(schema)


def _ask(cluster: Cluster, schema_id: int) -> None:
    """A node reports that it waits at a record that names a schema."""
    store = cluster.store()
    unknown = UnknownSchema(store_uid=store.uid, feed=store.feeds[0].id, partition=0, offset=0, schema_id=schema_id)
    told: NodeReport = node_report("node-1")
    cluster.client.report(told.model_copy(update={"unknown_schemas": (unknown,)}))


def test_a_new_store_s_schemas_are_registered(registered: Cluster, registry: MemoryRegistry) -> None:
    """Under the subjects that other people's serialisers use; the registry's ids are the store's, in its feeds too."""
    store = registered.create()
    (value,), (key,) = registry.versions(_SUBJECT), registry.versions("flights_rt-key")
    assert (store.key_schema_id, list(store.schemas)) == (key.id, [value.id])
    assert store.feeds[0].key_schema_id == key.id
    assert json.loads(key.schema) == json.loads(KEY_SCHEMA)
    assert min(key.id, value.id) > 5


def test_one_schema_has_one_id_in_all_stores(registered: Cluster) -> None:
    """Ids of a registry are those of schemas, not of stores."""
    first, second = registered.create(), registered.create("other")
    assert (first.key_schema_id, first.schemas) == (second.key_schema_id, second.schemas)


def test_without_the_registry_nothing_is_made(registered: Cluster, registry: MemoryRegistry) -> None:
    """Neither a store nor a new schema; afterwards the same is done."""
    registry.away = True
    assert refused(Unreachable, lambda: registered.create()).code == "registry_unreachable"
    assert registered.context.catalog.stores() == []
    registry.away = False
    before = registered.create()
    registry.away = True
    update = UpdateStore(value_schema=_with_field("more", default=None))
    refused(Unreachable, lambda: registered.client.update_store("flights", update))
    assert registered.store() == before
    registry.away = False
    registered.client.update_store("flights", update)
    assert len(registered.store().schemas) == 2


def test_what_the_registry_forbids_is_refused(registered: Cluster, registry: MemoryRegistry) -> None:
    """Its rules may be stricter than ours."""
    before = registered.create()
    new = _with_field("more", default=None)
    registry.refuses.add(json.dumps(json.loads(new)))
    registry.refuses.add(_canonical(new))
    update = UpdateStore(value_schema=new)
    assert refused(Refused, lambda: registered.client.update_store("flights", update)).code == "incompatible_schema"
    assert registered.store() == before


def test_the_newest_schema_is_the_last_one_whatever_its_id(registered: Cluster, registry: MemoryRegistry) -> None:
    """A registry that knows a schema from elsewhere gives it the id of then."""
    new = _with_field("more", default=None)
    registry.numbered(json.loads(_canonical(new)), 3)
    before = registered.create()
    registered.client.update_store("flights", UpdateStore(value_schema=new))
    store = registered.store()
    assert list(store.schemas) == [before.newest_schema_id, 3]
    assert store.newest_schema_id == 3
    assert registered.client.store("flights").value_schema_id == 3
    assert list(registered.client.routing("flights").schemas) == list(store.schemas)
    assert list(registered.client.snapshot("flights").store.schemas) == list(store.schemas)


def test_an_id_that_means_something_else_is_refused(registered: Cluster, registry: MemoryRegistry) -> None:
    """A registry that lost its data numbers anew: values would be read by a wrong schema."""
    before = registered.create()
    new = _with_field("more", default=None)
    registry.numbered(json.loads(_canonical(new)), before.newest_schema_id)
    error = refused(Refused, lambda: registered.client.update_store("flights", UpdateStore(value_schema=new)))
    assert error.code == "schema_id_taken"
    assert registered.store() == before


@pytest.mark.case("rules:R21")
def test_what_others_registered_is_taken_when_a_value_names_it(registered: Cluster, registry: MemoryRegistry) -> None:
    """All that fits, in its order; nothing is decided against any value then."""
    before = registered.create()
    registry.register(_SUBJECT, _with_field("more", default=None))
    last = registry.register(_SUBJECT, _with_field("other", default=None))
    _ask(registered, last)
    store = registered.store()
    assert list(store.schemas) == [before.newest_schema_id, last - 1, last]
    assert store.feeds[0].settled == ()


@pytest.mark.case("rules:R21")
def test_what_does_not_fit_is_not_taken(registered: Cluster, registry: MemoryRegistry) -> None:
    """A field without a default, other people's subjects, what is no schema of ours: values of it are dead letters."""
    before = registered.create()
    bad = registry.register(_SUBJECT, _with_field("more"))
    good = registry.register(_SUBJECT, _with_field("other", default=None))
    _ask(registered, bad)
    store = registered.store()
    assert list(store.schemas) == [before.newest_schema_id, good]
    (settled,) = store.feeds[0].settled
    assert (settled.below, settled.newest_schema_id) == (1, good)
    elsewhere = registry.register("somebody-else", _with_field("third", default=None))
    _ask(registered, elsewhere)
    assert elsewhere not in registered.store().schemas


@pytest.mark.case("rules:R21")
def test_nothing_is_decided_while_the_registry_is_away(registered: Cluster, registry: MemoryRegistry) -> None:
    """Not reachable means wait; the report is taken, and the next one asks again."""
    registered.create()
    last = registry.register(_SUBJECT, _with_field("more", default=None))
    registry.away = True
    _ask(registered, last)
    assert registered.store().feeds[0].settled == ()
    registry.away = False
    _ask(registered, last)
    assert registered.store().newest_schema_id == last


def test_schemas_of_two_writers_must_fit_one_another(registered: Cluster, registry: MemoryRegistry) -> None:
    """Whoever comes second is judged by what the first one has registered."""
    registered.create()
    taken = registry.register(_SUBJECT, _with_field("more", default=None))
    _ask(registered, taken)
    clash = json.loads(VALUE_SCHEMA)
    clash["fields"].append({"name": "more", "type": "int", "default": 0})
    update = UpdateStore(value_schema=json.dumps(clash))
    assert refused(InvalidRequest, lambda: registered.client.update_store("flights", update)).code
    assert registered.store().newest_schema_id == taken


def _canonical(text: str) -> str:
    return parse_schema(text).canonical
