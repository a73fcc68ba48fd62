"""The schema: from nothing, from every earlier one with rows in it, and the same as the models say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import anew.catalog
from anew.catalog.change import NodeRecord, PutFlag, PutRebuild, PutStore, Reclaim
from anew.catalog.database import DatabaseCatalog
from anew.catalog.tables import METADATA
from anew.catalog.url import parse_catalog_url
from anew.core.errors import Refused
from anew.core.rebuild import RebuildStatus
from anew.core.stores.store import VersionStatus
from anew.testing.builders import a_rebuild, a_store, a_version
from anew.testing.catalog_contract import a_change
from anew.testing.clock import NOON_MS
from anew.testing.table_builders import a_segment, a_table, a_table_rebuild

_SCRIPTS = Path(anew.catalog.__file__).parent / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    return config


def _revisions() -> list[str]:
    """All revisions, the oldest first."""
    walked = ScriptDirectory.from_config(_config()).walk_revisions()
    return [script.revision for script in walked][::-1]


@pytest.fixture
def engine(catalog_url: str) -> Iterator[sa.Engine]:
    """The database below the catalog."""
    engine = sa.create_engine(parse_catalog_url(catalog_url), poolclass=sa.pool.NullPool)
    yield engine
    engine.dispose()


def _upgrade(engine: sa.Engine, revision: str) -> None:
    config = _config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def _fill(engine: sa.Engine) -> None:
    """A row in each table of the first schema, as the first release wrote them."""
    store = a_store(next_version=4).model_copy(update={"revision": 3})
    rebuild = a_rebuild(store).model_copy(update={"revision": 1})
    rows: dict[str, dict[str, Any]] = {
        "counters": {"name": "revision", "value": 7},
        "stores": {
            "uid": store.uid,
            "name": store.name,
            "live_name": store.name,
            "revision": 3,
            "next_version": 4,
            "document": store.model_dump_json(),
        },
        "rebuilds": {
            "id": rebuild.id,
            "store_uid": store.uid,
            "running": True,
            "created_at_ms": NOON_MS,
            "revision": 1,
            "document": rebuild.model_dump_json(),
        },
        "requests": {"request_id": "r-1", "body_hash": "h", "result": "x"},
        "history": {
            "operation_id": "op-1",
            "at_ms": NOON_MS,
            "actor": "a",
            "what": "w",
            "subject": "flights",
            "detail": "{}",
        },
        "nodes": {
            "id": "node-1",
            "fabric": "dc-0",
            "revision": 1,
            "last_seen_ms": NOON_MS,
            "removed": False,
            "report": "{}",
        },
        "reclaims": {
            "id": "c-1",
            "kind": "tree",
            "fabric": "dc-0",
            "target": "t",
            "not_before_ms": NOON_MS,
            "reason": "gone",
        },
        "dead_letters": {"feed": "f", "partition": 0, "offset": 5, "store_uid": store.uid, "reason": "late"},
    }
    tables = sa.MetaData()
    with engine.begin() as connection:
        tables.reflect(connection)
        if "plan" in tables.tables["rebuilds"].c:
            row, uid = rows["rebuilds"], rows["rebuilds"].pop("store_uid")
            row |= {"kind": "repush", "subject_uid": uid, "document": rebuild.model_dump_json(exclude={"plan"})}
            row["plan"] = rebuild.plan.model_dump_json()
        for name, row in rows.items():
            connection.execute(sa.insert(tables.tables[name]).values(**row))


@pytest.mark.parametrize("revision", _revisions())
def test_a_catalog_of_an_earlier_release_is_brought_up_to_date(
    engine: sa.Engine, catalog_url: str, revision: str
) -> None:
    """Opening a catalog of any earlier schema migrates it; every row is there, and new changes go on from it."""
    _upgrade(engine, revision)
    _fill(engine)
    catalog = DatabaseCatalog(catalog_url)
    store = catalog.store("flights")
    assert store is not None
    assert (store.revision, catalog.next_version("flights"), catalog.revision()) == (3, 4, 7)
    assert catalog.rebuilds(subject_uid=store.uid, running_only=True) == [
        a_rebuild(store).model_copy(update={"revision": 1})
    ]
    assert catalog.request("r-1") is not None
    assert catalog.nodes() == [NodeRecord("node-1", "dc-0", NOON_MS, "{}")]
    assert catalog.reclaims(None) == [Reclaim("c-1", "tree", "dc-0", "t", NOON_MS, "gone")]
    assert catalog.dead_letter_counts(waiting=True) == {store.uid: 1}
    assert catalog.commit(a_change("op-2", PutStore(store, 3), PutFlag("paused", "yes")))
    assert [operation.id for operation in catalog.history(None, 9)] == ["op-2", "op-1"]
    assert (catalog.flags(), catalog.revision()) == ({"paused": "yes"}, 8)
    catalog.close()


def test_slots_that_had_segments_before_count_as_changed(engine: sa.Engine, catalog_url: str) -> None:
    """What was loaded before slots were counted is found slot by slot, so that it is written down too."""
    _upgrade(engine, "r0004")
    tables = sa.MetaData()
    with engine.begin() as connection:
        tables.reflect(connection)
        table = a_table().model_copy(update={"revision": 1})
        row = {"uid": table.uid, "name": table.name, "live_name": table.name, "revision": 1}
        document = table.model_dump_json()
        connection.execute(sa.insert(tables.tables["tables"]).values(document=document, **row))
        for segment in (a_segment("a", slot=4), a_segment("b", slot=4), a_segment("c", slot=63)):
            values = {
                "table_uid": segment.table_uid,
                "name": segment.name,
                "revision": 1,
                "build": segment.build.id,
                "bytes": 1,
                "rows": 1,
                "slot": segment.slot,
                "created_at_ms": NOON_MS,
                "document": segment.model_dump_json(),
            }
            connection.execute(sa.insert(tables.tables["segments"]).values(**values))
    catalog = DatabaseCatalog(catalog_url)
    found = catalog.table_snapshot("uid-trips", {})
    assert found is not None
    names = {slot: [segment.name for segment in listed.segments()] for slot, listed in found.changed.items()}
    assert names == {4: ["a", "b"], 63: ["c"]}
    catalog.close()


def test_versions_of_before_are_rewritten(engine: sa.Engine, catalog_url: str) -> None:
    """Documents in which a version's life was spread over maps by fabric hold one object per fabric afterwards."""
    _upgrade(engine, "r0007")
    tables = sa.MetaData()
    old = json.loads(a_version(1).model_dump_json(exclude={"fabrics", "replaces"}))
    old |= {"statuses": {"dc-0": "reclaimed"}, "since_ms": {"dc-0": NOON_MS}, "start": {}, "error": "gone"}
    store = json.loads(a_store(next_version=3).model_dump_json()) | {"versions": [old | {"number": 2}]}
    with engine.begin() as connection:
        tables.reflect(connection)
        row = {"uid": store["uid"], "name": "flights", "live_name": "flights", "revision": 3, "next_version": 3}
        connection.execute(sa.insert(tables.tables["stores"]).values(document=json.dumps(store), **row))
        past = {"store_uid": store["uid"], "number": 1, "left_at_ms": NOON_MS, "document": json.dumps(old)}
        connection.execute(sa.insert(tables.tables["past_versions"]).values(**past))
    catalog = DatabaseCatalog(catalog_url)
    found = catalog.store("flights")
    assert found is not None
    gone = a_version(1, VersionStatus.RECLAIMED, error="gone")
    assert found.versions == (gone.model_copy(update={"number": 2}),)
    assert catalog.past_versions(store["uid"], 9) == [gone]
    catalog.close()
    with engine.connect() as connection:
        for table in ("stores", "past_versions"):
            (document,) = connection.execute(sa.select(tables.tables[table].c.document)).scalars()
            assert ('"fabrics": {"dc-0":' in document, "statuses" in document) == (True, False)


def test_segments_that_were_there_keep_the_rebuilds_that_made_them(engine: sa.Engine, catalog_url: str) -> None:
    """A segment of before names its rebuild where it does not say its load; that rebuild is not forgotten."""
    _upgrade(engine, "r0007")
    tables = sa.MetaData()
    with engine.begin() as connection:
        tables.reflect(connection)
        for name, prefix in (("a", None), ("b", "b")):
            segment = a_segment(name, prefix=prefix)
            segment = segment.model_copy(update={"build": segment.build.model_copy(update={"rebuild": f"load-{name}"})})
            values = {
                "table_uid": segment.table_uid,
                "name": name,
                "revision": 1,
                "build": segment.build.id,
                "bytes": 1,
                "rows": 1,
                "slot": 0,
                "created_at_ms": NOON_MS,
                "document": segment.model_dump_json(),
            }
            connection.execute(sa.insert(tables.tables["segments"]).values(**values))
    catalog = DatabaseCatalog(catalog_url)
    ended = {"status": RebuildStatus.SUCCEEDED, "created_at_ms": 1, "ended_at_ms": 2}
    rebuilds = [PutRebuild(a_table_rebuild(a_table(), f"load-{name}", **ended), None) for name in "ab"]
    catalog.commit(a_change("op-1", *rebuilds))
    assert list(catalog.unnamed_rebuilds(2)) == ["load-b"]
    catalog.close()


def test_models_and_migrations_agree(engine: sa.Engine, catalog_url: str) -> None:
    """What the migrations make of an empty database is what the tables in the code describe."""
    DatabaseCatalog(catalog_url).close()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []
        assert context.get_current_revision() == _revisions()[-1]


def test_a_catalog_of_a_later_release_is_refused(engine: sa.Engine, catalog_url: str) -> None:
    """A schema that this release does not know is left as it is, and the refusal says so."""
    DatabaseCatalog(catalog_url).close()
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'r9999'"))
    with pytest.raises(Refused) as caught:
        DatabaseCatalog(catalog_url)
    assert caught.value.code == "catalog_newer"
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "r9999"
