"""Schema ids from a real schema registry, and other people who register at it and write with us."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import fastavro
import httpx
import pytest
from confluent_kafka import Producer

from anew.brokers.cluster import Brokers
from anew.registry.confluent import ConfluentRegistry
from anew.registry.interface import SchemaRegistry
from anew.testing.registry_contract import RegistryContract, person
from tests.apicurio import Apicurio, running_apicurio
from tests.cluster.commands import PERSON, Anew, wait_until
from tests.kafka.clusters import running_on
from tests.kafka.foreign import PARTITIONS, Format, body_of

_NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def apicurio() -> Iterator[Apicurio]:
    """The registry of these tests."""
    with running_apicurio() as running:
        running.forbid_incompatible()
        yield running


class TestConfluentRegistry(RegistryContract):
    """`RegistryContract` on a registry that is not Confluent's and has its face."""

    @pytest.fixture(autouse=True)
    def _at(self, apicurio: Apicurio) -> None:
        self._url = apicurio.url

    def open_registry(self) -> SchemaRegistry:
        """A client of its own; the first of its URLs answers nothing."""
        return ConfluentRegistry((_NOBODY, self._url))

    def forbidden(self, registry: SchemaRegistry, subject: str) -> str:
        """A field without a default."""
        schema = json.loads(person())
        schema["fields"].append({"name": "must", "type": "int"})
        return json.dumps(schema)


def test_schemas_that_are_not_plain_avro_are_left_out(apicurio: Apicurio) -> None:
    """Other people may register what they like."""
    registry = ConfluentRegistry((apicurio.url,))
    registry.register("mixed-value", person())
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    body = {"schemaType": "JSON", "schema": json.dumps(schema)}
    httpx.post(f"{apicurio.url}/subjects/json-value/versions", json=body, timeout=30).raise_for_status()
    assert registry.versions("json-value") == []
    assert len(registry.versions("mixed-value")) == 1
    registry.close()


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory, brokers: Brokers, apicurio: Apicurio) -> Iterator[Anew]:
    """A cluster on Kafka whose schema ids come from the registry."""
    home = tmp_path_factory.mktemp("registered") / "home"
    urls = {"ANEW_SCHEMA_REGISTRY": apicurio.url, "ANEW_TIMEOUT_SECONDS": "5"}
    with running_on(brokers, "kafka registry", home, reclaim_grace_seconds=2, **urls) as anew:
        yield anew


class _Writer:
    """Somebody else's producer, with schemas of its own."""

    def __init__(self, brokers: Brokers, anew: Anew, store: str) -> None:
        self._topic = f"{store}_rt"
        self._form = Format(anew.here("store", "show", store))
        self._producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "enable.idempotence": True})

    def write(self, key: str, schema_id: int, schema: Any, datum: Any) -> None:
        value = b"\x00" + schema_id.to_bytes(4, "big") + body_of(fastavro.parse_schema(schema), datum)
        self._producer.produce(self._topic, value, self._form.key(key), self._form.partition(key))
        assert self._producer.flush(30) == 0


def _with_field(name: str) -> dict[str, Any]:
    return {**PERSON, "fields": [*PERSON["fields"], {"name": name, "type": "int", "default": 0}]}


def _register(apicurio: Apicurio, store: str, schema: Any) -> int:
    """As a serialiser with ``auto.register.schemas`` does."""
    body = {"schema": json.dumps(schema)}
    answer = httpx.post(f"{apicurio.url}/subjects/{store}_rt-value/versions", json=body, timeout=30)
    number: int = answer.raise_for_status().json()["id"]
    return number


@pytest.mark.case("rules:R21")
def test_ids_are_the_registry_s_and_others_add_schemas(registered: Anew, brokers: Brokers, apicurio: Apicurio) -> None:
    """Our schemas are found there; what others register there is taken and read; what nobody did is a dead letter."""
    registered.create("pool", "hybrid=true", "partitions=2", f"rt_partitions={PARTITIONS}")
    registered.here("push", "pool", "--empty")
    registered.write("pool", {"key": "a", "value": {"name": "ours", "age": 1}})
    shown = registered.here("store", "show", "pool")
    latest = httpx.get(f"{apicurio.url}/subjects/pool_rt-value/versions/latest", timeout=30).json()
    assert latest["id"] == shown["value_schema_id"]
    assert json.loads(latest["schema"])["name"] == PERSON["name"]
    keys = httpx.get(f"{apicurio.url}/subjects/pool_rt-key/versions/latest", timeout=30).json()
    assert keys["id"] == shown["key_schema_id"]
    newer = _with_field("height")
    number = _register(apicurio, "pool", newer)
    other = _Writer(brokers, registered, "pool")
    other.write("b", number, newer, {"name": "theirs", "age": 2, "height": 180})
    other.write("bad", 99_999, newer, {"name": "theirs", "age": 2, "height": 180})
    other.write("c", number, newer, {"name": "theirs", "age": 3, "height": 190})
    wait_until(lambda: registered.value("pool", "c") == {"name": "theirs", "age": 3, "height": 190}, "the last record")
    assert registered.value("pool", "a") == {"name": "ours", "age": 1, "height": 0}
    wait_until(lambda: registered.here("store", "show", "pool")["dead_letters"] == 1, "the dead letter")
    assert registered.here("store", "show", "pool")["value_schema_id"] == number
    registered.here("repush", "pool")
    assert registered.value("pool", "b") == {"name": "theirs", "age": 2, "height": 180}


@pytest.mark.case("rules:R21")
def test_a_registry_that_stands_still_is_waited_for(registered: Anew, brokers: Brokers, apicurio: Apicurio) -> None:
    """Stores serve, ours are written, nothing is decided; a store cannot be made. Afterwards all goes on."""
    registered.create("still", "hybrid=true", "partitions=1", f"rt_partitions={PARTITIONS}")
    registered.here("push", "still", "--empty")
    newer = _with_field("height")
    number = _register(apicurio, "still", newer)
    os.kill(apicurio.pid, signal.SIGSTOP)
    try:
        _Writer(brokers, registered, "still").write("b", number, newer, {"name": "theirs", "age": 2, "height": 180})
        refused = registered.run_here("store", "create", "more", "--key-schema", "string", "--value-schema", '"int"')
        assert (refused.code, refused.error["code"]) == (4, "registry_unreachable")
        ours = {"key": "a", "value": {"name": "ours", "age": 1}}
        registered.done("write", "still", "-", stdin=json.dumps(ours) + "\n")
        assert registered.here("status")["nodes"][0]["alive"]
        assert registered.here("store", "show", "still")["dead_letters"] == 0
    finally:
        os.kill(apicurio.pid, signal.SIGCONT)
    wait_until(lambda: (registered.value("still", "b") or {}).get("height") == 180, "the record that was waited at")
    wait_until(lambda: registered.value("still", "a") == {"name": "ours", "age": 1, "height": 0}, "ours")
    assert registered.here("store", "show", "still")["dead_letters"] == 0
    assert registered.run_here("store", "show", "more").code == 2
