"""The newest value schema is the one that a store got last, for everybody: a registry's ids need not grow."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from pydantic import BaseModel

from anew.api.location import LogLocation
from anew.api.models import DesiredState
from anew.api.stores.replicas import DesiredStore
from anew.api.stores.routing import Routing
from anew.client.store import Store as ClientStore
from anew.codec.avro import encode_datum, parse_schema
from anew.codec.compression import compressor
from anew.controller.restore.findings import Found, FoundManifest
from anew.controller.restore.stores import rebuilt
from anew.controller.stores.replicas import _desired_store
from anew.controller.stores.views import _store_view
from anew.core.dropping import DropFloors
from anew.core.ledger import Ledger
from anew.core.stores.plan import PushInput
from anew.core.stores.store import RebuildKind, Store, newest_schema_id
from anew.rebuild.columns import encode_task
from anew.segments.manifest import Manifest, parse_manifest
from anew.segments.record import StoreRecord, parse_record
from anew.spark.stores.reading import DecodeTask
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA, a_store, a_version
from anew.testing.clock import NOON_MS
from tests.unit.client.fleet import a_fleet

WIDER = VALUE_SCHEMA.replace("]}", ', {"name": "stars", "type": "int", "default": 5}]}')
WIDEST = WIDER.replace("]}", ', {"name": "likes", "type": "int", "default": 0}]}')
SCHEMAS = {7: VALUE_SCHEMA, 3: WIDER}
"""The store got 7 first."""


def the_store() -> Store:
    """A store whose second schema has the smaller id."""
    return a_store(schemas=SCHEMAS)


def a_manifest(version: int, schemas: Mapping[int, str]) -> Manifest:
    """The manifest of an empty version that was built when the store had these schemas."""
    config = a_version(version).config
    return Manifest(
        store="flights",
        store_uid="uid-flights",
        version=version,
        kind=RebuildKind.FULL_PUSH,
        rebuild=f"rebuild-{version}",
        epoch=1,
        key_schema=KEY_SCHEMA,
        schemas=dict(schemas),
        config=config,
        config_hash=config.hash,
        created_at_ms=NOON_MS + version,
        ledger=Ledger(),
        sub_partitions=(),
    )


def found_of(*manifests: Manifest, record: Store | None = None) -> Found:
    """What a restore finds of the store, the manifests in this order."""
    named = {f"v{each.version}/manifest.json": each for each in manifests}
    kept = {path: FoundManifest(each, each.ref(path), (FABRIC,)) for path, each in named.items()}
    return Found("uid-flights", record, kept)


def test_the_last_one_is_the_newest() -> None:
    """Whatever the ids are."""
    assert newest_schema_id({7: "a", 3: "b"}) == 3
    assert newest_schema_id({3: "b", 7: "a"}) == 7
    assert the_store().newest_schema_id == 3


def test_readers_and_writers_of_a_program_go_by_it() -> None:
    """The schema that a client tells, and in which it gives values of the older one."""
    fleet = a_fleet()
    fleet.serve(1, {"key-0": "old"})
    fleet.route(schemas=SCHEMAS)
    fleet.rows[1]["key-0"] = (7, 99, encode_datum(parse_schema(VALUE_SCHEMA), {"text": "old"}))
    store: ClientStore = fleet.store()
    found = store.get("key-0")
    assert found is not None
    assert (store.value_schema, found.value) == (parse_schema(WIDER), {"text": "old", "stars": 5})


def test_a_push_encodes_by_it() -> None:
    """What the planner tells the encoding tasks, with columns that only the newest schema has."""
    files = PushInput(paths=(), format="csv", key=("id",), value=("text", "stars"))
    task = encode_task(the_store(), files, {}, ["id", "text", "stars"])
    assert (task.schema_id, task.value_schema) == (3, parse_schema(WIDER).canonical)


def test_a_scan_decodes_by_it() -> None:
    """What a store as a DataFrame shows its values in."""
    task = DecodeTask(KEY_SCHEMA, SCHEMAS, compressor("none"), DropFloors(0, 0))
    assert task.newest == 3


def test_a_store_s_view_names_it() -> None:
    """As the newest, and last in the list."""
    view = _store_view(the_store(), {}, 0, None)
    assert (view.value_schema_id, view.value_schema) == (3, WIDER)
    assert list(json.loads(json.dumps(view.value_schemas))) == ["7", "3"]


def desired() -> DesiredState:
    """What a node is told of the store."""
    return DesiredState(
        revision=1,
        fabric=FABRIC,
        log=LogLocation(kind="embedded", address="/log"),
        deep_store="/deep",
        stores=(_desired_store(the_store(), "node-1", FABRIC),),
    )


@pytest.mark.parametrize(
    "value",
    [the_store(), StoreRecord(store=the_store()), a_manifest(1, SCHEMAS), a_fleet().routing, desired()],
    ids=lambda value: type(value).__name__,
)
def test_every_json_keeps_the_order(value: BaseModel) -> None:
    """Documents of the catalog, records, manifests, routing, and what nodes are told and keep."""
    if isinstance(value, Routing):
        value = value.model_copy(update={"schemas": SCHEMAS})
    for text in (value.model_dump_json(), value.model_dump_json(indent=1), json.dumps(value.model_dump(mode="json"))):
        again = type(value).model_validate_json(text)
        assert list(_schemas_of(again).items()) == list(SCHEMAS.items())


def _schemas_of(value: BaseModel) -> dict[int, str]:
    if isinstance(value, StoreRecord):
        return value.store.schemas
    if isinstance(value, DesiredState):
        return value.stores[0].schemas
    assert isinstance(value, Store | Manifest | Routing | DesiredStore)
    return value.schemas


def test_files_of_the_deep_store_keep_the_order() -> None:
    """As they are written and read, with their checksums."""
    manifest = a_manifest(1, SCHEMAS)
    assert list(parse_manifest(manifest.to_bytes(), manifest.ref("m")).schemas) == [7, 3]
    assert list(parse_record(StoreRecord(store=the_store()).to_bytes(), "r").store.schemas) == [7, 3]


def test_a_restored_store_has_the_same_newest() -> None:
    """From manifests alone, in whatever order they were found, and from a record that is older or younger than they."""
    older, newer = a_manifest(1, {7: VALUE_SCHEMA}), a_manifest(2, {**SCHEMAS, 5: WIDEST})
    for found in (
        found_of(older, newer),
        found_of(newer, older),
        found_of(older, newer, record=the_store()),
        found_of(newer, older, record=a_store(schemas={7: VALUE_SCHEMA})),
        found_of(older, record=a_store(schemas={**SCHEMAS, 5: WIDEST})),
    ):
        made = rebuilt(found, (FABRIC,), NOON_MS)
        assert made is not None
        assert (list(made.store.schemas), made.store.newest_schema_id) == ([7, 3, 5], 5)
