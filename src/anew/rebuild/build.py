"""The build stage of a plan: one Spark job with progress, and the checks that only the data can decide."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anew.api.models import ClusterInfo
from anew.codec.avro import AvroSchema, decode_datum, parse_schema
from anew.codec.plain import to_plain
from anew.core.errors import Failed
from anew.core.plan import Plan, PushInput
from anew.core.rebuild import Progress, Stage
from anew.core.store import RebuildKind, Store
from anew.deepstore.open import open_deep_store
from anew.rebuild.badrows import locate, write_bad_rows
from anew.rebuild.columns import encode_task
from anew.rebuild.lease import Lease
from anew.rebuild.observer import Observer
from anew.segments.manifest import parse_manifest
from anew.spark.build import Built, Place, build_push, build_repush
from anew.spark.progress import JobWatch
from anew.spark.pushscan import EncodeTask, input_columns
from anew.spark.session import SparkSession, session_for_queries


@dataclass(frozen=True, slots=True)
class Building:
    """What a build works on: source and target are two settings at every layer."""

    plan: Plan
    store: Store
    source: ClusterInfo
    target: ClusterInfo
    directory: str


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """What a build made, and how fast it read."""

    built: Built
    records_per_s: float


def build(spark: SparkSession, building: Building, lease: Lease, observer: Observer) -> BuildOutcome:
    """Run the Spark job of a plan.

    Raises:
        InvalidRequest: The input cannot be read, or a column is missing.
        Failed: The job failed, or the data cannot be pushed (null keys, duplicate keys, bad rows).
    """
    session = session_for_queries(spark)
    began = time.monotonic()
    with JobWatch(session) as watch:

        def measure() -> Progress:
            progress = watch.progress()
            observer.progress(Stage.BUILD, progress)
            return progress

        lease.enter(Stage.BUILD, measure, watch.cancel)
        built = _push(session, building) if building.plan.kind is RebuildKind.FULL_PUSH else _repush(session, building)
    took = max(time.monotonic() - began, 1e-6)
    return BuildOutcome(built, round(built.ledger.read.count / took, 1))


def _repush(spark: SparkSession, building: Building) -> Built:
    plan = building.plan
    ref = plan.source.manifest
    if ref is None:
        raise AssertionError("a repush's plan names its source's manifest")
    source = parse_manifest(open_deep_store(building.source.deep_store).get(ref.path), ref)
    feeds = tuple(feed for feed in building.store.feeds if feed.id in plan.fence.feeds)
    return build_repush(spark, plan, _place(building), source, feeds)


def _push(spark: SparkSession, building: Building) -> Built:
    plan, files = building.plan, building.plan.source.input
    if files is None:
        raise AssertionError("a push's plan names its input")
    uris = {Path(path).as_uri(): number for number, path in enumerate(sorted(files.paths))}
    header = input_columns(spark, files, list(uris))
    task = encode_task(building.store, files, uris, header)
    built = build_push(spark, plan, _place(building), task, header)
    _check_rows(building.store, files, built, task)
    if built.duplicates and files.on_duplicate_key == "refuse":
        key_schema = parse_schema(building.store.key_schema)
        raise Failed(
            "duplicate_keys",
            "the input has keys that come more than once",
            found=[_shown(key_schema, bytes.fromhex(key)) for key in built.duplicates[:3]],
            expected="each key once",
            hint="keep the last row of each: --on-duplicate-key last, or name the write time: --written-at COLUMN",
        )
    return built


def _check_rows(store: Store, files: PushInput, built: Built, task: EncodeTask) -> None:
    """Fail when rows do not fit, naming file, line and column of the first ones, unless they are put aside."""
    bad = built.ledger.skipped.count
    if bad == 0:
        return
    bad_files = sorted({file for scan in built.scans for file in scan["bad_files"]})
    located = locate(bad_files, files, task)
    if files.bad_rows_to is not None:
        write_bad_rows(Path(files.bad_rows_to), located)
        return
    null_keys = sum(int(scan["null_keys"]) for scan in built.scans)
    first = [row.shown for row, _ in zip(located, range(20), strict=False)]
    raise Failed(
        "null_keys" if null_keys else "bad_rows",
        f"{null_keys} rows have no key" if null_keys else f"{bad} rows do not fit the schema of {store.name}",
        found=first,
        expected="rows that fit the key and value schemas",
        hint="put them aside and push the rest: --bad-rows-to FILE",
    )


def _shown(schema: AvroSchema, key: bytes) -> Any:
    return to_plain(schema, decode_datum(schema, key))


def _place(building: Building) -> Place:
    return Place(
        source_deep_store=building.source.deep_store,
        source_log=building.source.log,
        target_deep_store=building.target.deep_store,
        directory=building.directory,
    )
