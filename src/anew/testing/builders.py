"""Small values for tests: whole and valid, with just what a test is about as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anew.core.feed import NOWHERE, Feed, PositionMap
from anew.core.merge import Cell
from anew.core.plan import Estimate
from anew.core.rebuild import RebuildStatus, Stage
from anew.core.stamp import Stamp, fabric_origin
from anew.core.stores.plan import Fence, Plan, Source, Splits, Target
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.settings import STORE_SETTINGS, defaults
from anew.core.stores.store import RebuildKind, Store, StoreConfig, Version, VersionInFabric, VersionStatus
from anew.core.topics.topic import Topic, TopicFormat
from anew.log.interface import APPEND_RECORDS
from anew.testing.clock import NOON_MS

FABRIC = "dc-0"
KEY_SCHEMA = '"string"'
VALUE_SCHEMA = '{"type": "record", "name": "Value", "fields": [{"name": "text", "type": "string"}]}'
ORIGIN = fabric_origin(FABRIC).encoded


def a_config(**settings: Any) -> StoreConfig:
    """A store's configuration: all defaults but the given settings."""
    values: dict[str, Any] = {**defaults(), **STORE_SETTINGS.parse(settings)}
    return StoreConfig(**values)


def a_store(name: str = "flights", **changes: Any) -> Store:
    """A store without versions and feeds; ``changes`` replace its fields."""
    store = Store(
        uid=f"uid-{name}",
        name=name,
        revision=0,
        created_at_ms=NOON_MS,
        key_schema=KEY_SCHEMA,
        schemas={1: VALUE_SCHEMA},
        config=a_config(),
        fabrics=(FABRIC,),
        current={FABRIC: 0},
    )
    return store.model_copy(update=changes)


def a_feed(store: str = "flights", partitions: int = 4, **changes: Any) -> Feed:
    """The RT feed of a store in `FABRIC`."""
    feed = Feed(
        fabric=FABRIC,
        topic=f"{store}_rt",
        topic_uid=f"topic-uid-{store}",
        incarnation=1,
        partitions=partitions,
        origin=ORIGIN.hex(),
        skew_limit_ms=60_000,
        low_water=(0,) * partitions,
        ready=True,
    )
    return feed.model_copy(update=changes)


def a_version(number: int = 1, status: VersionStatus = VersionStatus.CURRENT, **changes: Any) -> Version:
    """A version with the default configuration and no base in `FABRIC`.

    Fields of its life there (`VersionInFabric`) are given as its own are; ``statuses`` names several fabrics.
    """
    frozen = a_config().frozen
    statuses: dict[str, VersionStatus] = changes.pop("statuses", {FABRIC: status})
    lives = {name: changes.pop(name) for name in VersionInFabric.model_fields if name in changes}
    version = Version(
        number=number,
        kind=RebuildKind.FULL_PUSH,
        config=frozen,
        config_hash=frozen.hash,
        fabrics={f: VersionInFabric(status=s, **{"since_ms": NOON_MS, **lives}) for f, s in statuses.items()},
        created_at_ms=NOON_MS,
        rebuild=f"rebuild-{number}",
        epoch=1,
        path=f"stores/flights/v{number}",
    )
    return version.model_copy(update=changes)


def a_plan(store: Store, version: int = 1, start: PositionMap = NOWHERE, **changes: Any) -> Plan:
    """A sealed plan of a push into a store."""
    frozen = store.config.frozen
    plan = Plan(
        kind=RebuildKind.FULL_PUSH,
        store=store.name,
        source=Source(),
        target=Target(version=version, fabrics=store.fabrics, config=frozen, start=start),
        splits=Splits(max_records=1_000),
        estimate=Estimate(records=0, bytes=0),
        fence=Fence(store_uid=store.uid, current=store.current, config_hash=frozen.hash, feeds=()),
        planned_at_ms=NOON_MS,
    )
    return plan.model_copy(update=changes).sealed()


def a_rebuild(store: Store, rebuild_id: str = "rebuild-1", **changes: Any) -> StoreRebuild:
    """A rebuild that has just begun."""
    rebuild = StoreRebuild(
        id=rebuild_id,
        kind=RebuildKind.FULL_PUSH,
        store=store.name,
        store_uid=store.uid,
        version=1,
        status=RebuildStatus.RUNNING,
        stage=Stage.BEGIN,
        plan=a_plan(store),
        epoch=1,
        lease_until_ms=NOON_MS + 20_000,
        created_at_ms=NOON_MS,
        stage_since_ms=NOON_MS,
    )
    return rebuild.model_copy(update=changes)


def append_records(
    keys: Sequence[bytes], values: Sequence[bytes | None], written_ms: Sequence[int | None] | None = None
) -> pa.RecordBatch:
    """Records to append with columns `APPEND_RECORDS`; a value of None is a tombstone, no times means none given."""
    count = len(keys)
    times: list[int | None] = [None] * count if written_ms is None else list(written_ms)
    columns: dict[str, list[Any]] = {
        "written_ms": times,
        "origin": [ORIGIN] * count,
        "key": list(keys),
        "schema_id": [0 if value is None else 1 for value in values],
        "value": list(values),
    }
    return pa.RecordBatch.from_pydict(columns, schema=APPEND_RECORDS)


def a_topic(name: str = "clicks", **changes: Any) -> Topic:
    """A topic of JSON values with two partitions; ``changes`` replace its fields."""
    topic = Topic(
        uid=f"uid-{name}",
        name=name,
        fabric=FABRIC,
        partitions=2,
        format=TopicFormat.JSON,
        topic_uid=f"topic-{name}",
        incarnation=1,
        created_at_ms=NOON_MS,
    )
    return topic.model_copy(update=changes)


def some_records(count: int, name: str = "key") -> pa.RecordBatch:
    """Records ``<name>-<number>`` to append, without given times."""
    keys = [f"{name}-{number}".encode() for number in range(count)]
    return append_records(keys, [b"value of " + key for key in keys])


def cells_of(rows: pa.RecordBatch) -> list[tuple[bytes, Cell]]:
    """Key and cell of each row (columns of `anew.core.rows.ROWS`)."""
    return [
        (
            row["key"],
            Cell(
                Stamp(
                    row["time"],
                    row["origin"],
                    row["append_timed"],
                    row["incarnation"],
                    row["feed_partition"],
                    row["offset"],
                ),
                row["value"],
                row["schema_id"],
            ),
        )
        for row in rows.to_pylist()
    ]
