"""What deciding costs: a plan for very many partitions, and a list of very many stores that says which are stale.

Neither touches data: a plan is a pure function of a snapshot, and staleness is a comparison in the catalog alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from anew.api.location import LogLocation
from anew.catalog.change import Change, Operation, PutStore
from anew.catalog.database import DatabaseCatalog
from anew.controller.engine.context import Context, Fabric
from anew.controller.stores.views import store_views
from anew.core.feed import PositionMap
from anew.core.ledger import Ledger
from anew.core.plan import Pace
from anew.core.stores.planning import RepushRequest, Snapshot, plan_repush
from anew.core.stores.store import Store, Version
from anew.deepstore.open import open_deep_store
from anew.log.embedded import EmbeddedLog
from anew.segments.manifest import BaseFile, Manifest, SubPartition, parse_manifest
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA, a_config, a_feed, a_store, a_version
from anew.testing.clock import NOON_MS
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns, timed
from bench.synthetic import SEED

PARTITIONS_PER_STORE = 10
_PUTS_PER_COMMIT = 500
_FEED_RECORDS = 100_000


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with stores of so many partitions, and catalogs of a tenth as many stores."""
    return [_measure(folder / str(size), size, repeats) for size in sizes]


def _measure(folder: Path, partitions: int, repeats: Repeats) -> Measured:
    folder.mkdir()
    stores = max(1, partitions // PARTITIONS_PER_STORE)
    context = _catalog_of(folder, stores)
    snapshot, content = _snapshot_of(partitions)

    def plan() -> None:
        made = plan_repush(snapshot, RepushRequest())
        if made.source.manifest is None or len(parse_manifest(content, made.source.manifest).files) != partitions:
            raise AssertionError("the manifest names a file per partition")
        if made.target.config.partitions != partitions - 1 or not made.splits.ranges:
            raise AssertionError("the plan is not of this store")

    def check() -> None:
        views = store_views(context)
        if len(views) != stores or sum(view.stale for view in views) != (stores + 1) // 2:
            raise AssertionError("every second store is stale")

    seconds = take_turns({"plan": lambda: timed(plan), "list and check": lambda: timed(check)}, repeats)
    context.catalog.close()
    shutil.rmtree(folder)
    return Measured(partitions, seconds, figures={"stores": stores, "versions_per_store": 2})


def _snapshot_of(partitions: int) -> tuple[Snapshot, bytes]:
    """A store of so many partitions, and its manifest; it is to have one less, so that all is shuffled."""
    feed = a_feed(partitions=24)
    positions = PositionMap(dict.fromkeys(feed.feed_partitions(), 0))
    before = a_config(partitions=partitions).frozen
    version = a_version(config=before, config_hash=before.hash, feeds=(feed.id,), start=positions)
    manifest = _manifest_of(version)
    version = version.moved((FABRIC,), manifest=manifest.ref("manifest.json"))
    store = a_store(
        config=a_config(partitions=partitions - 1, hybrid=True),
        feeds=(feed,),
        versions=(version,),
        current={FABRIC: 1},
        next_version=2,
    )
    ends = dict.fromkeys(feed.feed_partitions(), _FEED_RECORDS)
    return Snapshot(
        store, ends, {}, {1: partitions}, Pace(records=1_000_000, per_second=1e6), NOON_MS, NOON_MS
    ), manifest.to_bytes()


def _manifest_of(version: Version) -> Manifest:
    parts = tuple(
        SubPartition(partition=p, sub_partition=0, runs=((_file(p),),)) for p in range(version.config.partitions)
    )
    return Manifest(
        store="flights",
        store_uid="uid-flights",
        version=1,
        kind=version.kind,
        rebuild=version.rebuild,
        epoch=1,
        key_schema=KEY_SCHEMA,
        schemas={1: VALUE_SCHEMA},
        config=version.config,
        config_hash=version.config_hash,
        created_at_ms=NOON_MS,
        ledger=Ledger(),
        sub_partitions=parts,
    )


def _file(partition: int) -> BaseFile:
    return BaseFile(
        path=f"stores/uid/v1/rebuild-1-e1/base/p{partition:05d}-s00-t{partition}.parquet",
        rows=1_000,
        tombstones=0,
        bytes=100_000,
        checksum="0" * 64,
        smallest_key="00" * 16,
        largest_key="ff" * 16,
        fingerprint=1,
    )


def _catalog_of(folder: Path, count: int) -> Context:
    """A catalog on disk of so many stores, each with two versions; every second one is stale."""
    catalog = DatabaseCatalog(f"sqlite:///{folder}/catalog.db")
    for first in range(0, count, _PUTS_PER_COMMIT):
        numbers = range(first, min(first + _PUTS_PER_COMMIT, count))
        puts = tuple(PutStore(_store(number), None) for number in numbers)
        catalog.commit(Change(Operation(f"make-{first}", NOON_MS, "bench", "create", "stores"), puts))
    log = EmbeddedLog(folder / "log", clock=lambda: NOON_MS)
    fabric = Fabric(FABRIC, log, LogLocation(kind="embedded", address="log"), open_deep_store(str(folder / "deep")))
    return Context(catalog, {FABRIC: fabric}, lambda: NOON_MS, lambda: "id")


def _store(number: int) -> Store:
    name = f"store{number}"
    feed = a_feed(name, partitions=24)
    stale = number % 2 == 0
    return a_store(
        name,
        config=a_config(partitions=24 if stale else 8, hybrid=False),
        feeds=(feed,),
        versions=tuple(a_version(n, config=a_config(partitions=8).frozen, feeds=(feed.id,)) for n in (1, 2)),
        current={FABRIC: 2},
        next_version=3,
    )


BENCHES = (
    Bench(
        "plan",
        "the plan of a repush, and a list of a tenth as many stores that says which are stale",
        "partitions",
        (25_000, 50_000, 100_000),
        (1_000, 2_000),
        (
            Claim("seconds for a plan of 100,000 partitions", lambda found: found[-1].median("plan"), most=5.0),
            Claim("seconds for 10,000 stores", lambda found: found[-1].median("list and check"), most=5.0),
        ),
        run,
        SEED,
    ),
)
