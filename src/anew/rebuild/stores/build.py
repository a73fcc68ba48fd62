"""The build stage of a plan: one Spark job with progress, and the checks that only the data can decide."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anew.api.models import ClusterInfo
from anew.codec.avro import AvroSchema, decode_datum, parse_schema
from anew.codec.compression import Compressor
from anew.codec.plain import to_plain
from anew.core.errors import AnewError, Failed
from anew.core.feed import Feed
from anew.core.rebuild import Progress, Stage
from anew.core.stores.plan import Plan, PushInput
from anew.core.stores.store import RebuildKind, Store, VersionTopic
from anew.deepstore.open import open_deep_store
from anew.log.interface import TopicPartition, topic_partition
from anew.rebuild.badrows import locate, write_bad_rows
from anew.rebuild.codecs import (
    SAMPLE_VALUES,
    carried_over,
    sample_version,
    target_codec,
    trained,
)
from anew.rebuild.columns import latest_write_ms, task_of_files
from anew.rebuild.lease import Lease
from anew.rebuild.observer import Observer
from anew.rebuild.stores.damage import ReplicaExports, with_replicas
from anew.segments.base import open_base
from anew.segments.dictionary import ZSTD_DICT, codec_of, store_dictionary
from anew.segments.layout import replicas_path
from anew.segments.manifest import Manifest, parse_manifest
from anew.spark.executors import Sights, check_executors, check_files_seen
from anew.spark.inputcolumns import EncodeTask, scan_files
from anew.spark.progress import EXECUTOR_WAIT_SECONDS, JobWatch
from anew.spark.session import SparkSession, session_for_queries
from anew.spark.stores.build import Built, Codecs, Place, build_empty, build_push, build_repush
from anew.spark.stores.outputs import BaseTarget, TopicTarget
from anew.spark.stores.pushscan import encode_rows, sample_values

_INPUTS_LOOKED_AT = 100


@dataclass(frozen=True, slots=True)
class Building:
    """What a build works on: source and target are two settings at every layer.

    Attributes:
        directory: Of the new version, below the target's deep store.
        topic: Where the new version's base goes through the log; None: it goes to files.
        replicas: Lets the replicas of the source version stand at one position, for a plan that reads some of them.
    """

    plan: Plan
    store: Store
    source: ClusterInfo
    target: ClusterInfo
    directory: str
    topic: VersionTopic | None = None
    replicas: Callable[[int], AbstractContextManager[ReplicaExports]] | None = None


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """What a build made, and how fast it read."""

    built: Built
    records_per_s: float


Build = Callable[[Building, Lease, Observer], BuildOutcome]
"""Makes the base files of a plan that has rows."""


def on_spark(
    session: Callable[[], AbstractContextManager[SparkSession]], executor_wait_seconds: float = EXECUTOR_WAIT_SECONDS
) -> Build:
    """Builds in a Spark session that is made, or lent, for each."""

    def run(building: Building, lease: Lease, observer: Observer) -> BuildOutcome:
        with session() as spark:
            return build(spark, building, lease, observer, executor_wait_seconds)

    return run


def build(
    spark: SparkSession,
    building: Building,
    lease: Lease,
    observer: Observer,
    executor_wait_seconds: float = EXECUTOR_WAIT_SECONDS,
) -> BuildOutcome:
    """Run the Spark job of a plan.

    Raises:
        InvalidRequest: The input cannot be read, or a column is missing.
        Failed: The job failed, or the data cannot be pushed (null keys, duplicate keys, bad rows); ``no_executors``;
            what `check_executors` and `check_files_seen` raise.
    """
    session = session_for_queries(spark)
    began = time.monotonic()
    with JobWatch(session, executor_wait_seconds) as watch:

        def measure() -> Progress:
            progress = watch.progress()
            observer.progress(Stage.BUILD, progress)
            return progress

        lease.enter(Stage.BUILD, measure, watch.cancel)
        try:
            built = _built(session, building)
        except AnewError as error:
            deserted = watch.desertion()
            if deserted is None:
                raise
            raise deserted from error
    took = max(time.monotonic() - began, 1e-6)
    return BuildOutcome(built, round(built.ledger.read.count / took, 1))


def _built(spark: SparkSession, building: Building) -> Built:
    check_executors(spark, _sights(building))
    built = _push(spark, building) if building.plan.kind is RebuildKind.FULL_PUSH else _repush(spark, building)
    paths = {file.path for sub in built.sub_partitions for file in sub.files}
    check_files_seen(spark, building.target.deep_store, building.directory, paths)
    return built


def _sights(building: Building) -> Sights:
    """What executors must see of a plan's sources and target."""
    plan, location = building.plan, building.source.log
    source = None if plan.source.manifest is None else (building.source.deep_store, plan.source.manifest.path)
    feeds = {feed.id: feed for feed in building.store.feeds}
    read = [topic_partition(feeds[split.feed], split.partition) for split in plan.splits.ranges[:1]]
    logs = [(location, at) for at in read]
    if building.topic is not None:
        logs.append((building.target.log, TopicPartition(building.topic.name, building.topic.uid, 0)))
    inputs = () if plan.source.input is None else plan.source.input.paths[:_INPUTS_LOOKED_AT]
    return Sights(
        target=building.target.deep_store,
        directory=building.directory,
        source=source,
        logs=tuple(logs),
        inputs=tuple(inputs),
    )


def build_without_rows(building: Building) -> BuildOutcome:
    """The build stage of an empty push: nothing is read, so that no Spark is needed."""
    dictionary = b"" if building.plan.target.config.compression == ZSTD_DICT else None
    return BuildOutcome(_with_dictionary(build_empty(building.plan), building, dictionary), 0.0)


def _repush(spark: SparkSession, building: Building) -> Built:
    plan = building.plan
    ref = plan.source.manifest
    if ref is None:
        raise AssertionError("a repush's plan names its source's manifest")
    source_store = open_deep_store(building.source.deep_store)
    source = _mended(parse_manifest(source_store.get(ref.path), ref), building)
    feeds = building.store.feeds_with_schemas(plan.fence.feeds)
    codec = codec_of(source_store, source)
    dictionary = _repush_dictionary(building, source, codec, feeds.feeds)
    codecs = Codecs(codec, target_codec(plan.target.config.compression, dictionary))
    built = build_repush(spark, plan, _place(building, dictionary), codecs, source, feeds)
    return _with_dictionary(built, building, dictionary)


def _mended(source: Manifest, building: Building) -> Manifest:
    """The source with replicas in the place of what the plan says is damaged."""
    places = building.plan.source.from_replicas
    if not places:
        return source
    if building.replicas is None:
        raise AssertionError("whoever runs a plan that reads replicas can reach them")
    with building.replicas(source.version) as exports:
        return with_replicas(source, exports, places, replicas_path(building.directory))


def _repush_dictionary(
    building: Building, source: Manifest, codec: Compressor, feeds: tuple[Feed, ...]
) -> bytes | None:
    plan, store = building.plan, open_deep_store(building.source.deep_store)
    if plan.target.config.compression != ZSTD_DICT:
        return None
    if not plan.target.new_dictionary:
        kept = carried_over(store, source)
        if kept is not None:
            return kept
    with open_base(building.source.deep_store, building.source.log) as base:
        return trained(sample_version(base, source, codec, feeds, plan.splits.ranges))


def _with_dictionary(built: Built, building: Building, dictionary: bytes | None) -> Built:
    if dictionary is None:
        return built
    store = open_deep_store(building.target.deep_store)
    return replace(built, dictionary=store_dictionary(store, building.directory, dictionary))


def _push(spark: SparkSession, building: Building) -> Built:
    plan, files = building.plan, building.plan.source.input
    if files is None:
        raise AssertionError("a push's plan names its input")
    uris = {Path(path).as_uri(): number for number, path in enumerate(sorted(files.paths))}
    latest_ms = latest_write_ms(building.store, plan.target.feeds, plan.planned_at_ms)
    task = task_of_files(building.store, files, uris, latest_ms)
    compression, dictionary = plan.target.config.compression, None
    if compression == ZSTD_DICT:
        scanned = encode_rows(scan_files(spark, files, task), task)
        dictionary = trained(sample_values(scanned, SAMPLE_VALUES))
    codecs = Codecs(None, target_codec(compression, dictionary))
    built = build_push(spark, plan, _place(building, dictionary), codecs, task)
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
    return _with_dictionary(built, building, dictionary)


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


def _place(building: Building, dictionary: bytes | None) -> Place:
    topic = building.topic
    target = (
        None
        if topic is None
        else TopicTarget(
            building.target.log,
            topic.name,
            topic.uid,
            building.store.key_schema_id,
            dictionary,
            building.plan.planned_at_ms,
        )
    )
    return Place(
        source_deep_store=building.source.deep_store,
        source_log=building.source.log,
        target=BaseTarget(building.target.deep_store, building.directory, target),
    )
