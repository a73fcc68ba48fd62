"""Making a version: build → seal; load and swap are the controller's.

1. ``build`` writes base files under attempt paths. A crash in it: the lease ends, the controller fails the version and
   reclaims its directory; no manifest names the files.
2. ``seal`` writes the manifest (content-addressed by the catalog's record of it) and commits it by compare-and-swap.
   A crash before the commit: as above. After it: the controller goes on alone, nobody is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from anew.api.rebuilds import DriverStart, StoreStart
from anew.api.stores.requests import Seal
from anew.core.errors import OutcomeUnknown, Unreachable
from anew.core.feed import PositionMap
from anew.core.rebuild import Stage
from anew.core.stores.plan import Plan
from anew.core.stores.planning import push_start_ms
from anew.core.stores.rebuild import Fingerprints, StoreRebuild
from anew.core.stores.store import Store, VersionTopic
from anew.deepstore.open import open_deep_store
from anew.rebuild.driving import CommitUnknown, Job, Run
from anew.rebuild.lease import Lease
from anew.rebuild.stores.build import Build, Building, BuildOutcome, build_without_rows
from anew.rebuild.stores.damage import ReplicaExports
from anew.segments.layout import manifest_path, version_path
from anew.segments.manifest import Manifest

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRun(Run):
    """What running the plan of a push or a repush needs besides.

    Attributes:
        build: How rows are built: `anew.rebuild.stores.build.on_spark`.
        replicas: Lets the replicas of a store's current version, by its number, stand at one position.
    """

    build: Build
    replicas: Callable[[str, int], AbstractContextManager[ReplicaExports]] | None = None


def making(run: StoreRun) -> Job[StoreRebuild, Store]:
    """The job of making a version.

    What a driver before left of the build is not used: a fresh epoch writes into a directory of its own (rule R22).
    """
    return Job(
        StoreStart,
        partial(_make, run),
        expected="a version that serves",
        hint="the version before goes on serving",
        what="the rebuild",
    )


def _make(run: StoreRun, start: DriverStart[StoreRebuild, Store], lease: Lease) -> None:
    """Build and seal."""
    rebuild, store = start.rebuild, start.subject
    plan = rebuild.plan
    target = run.patiently(lambda: run.controller.cluster(plan.target.fabrics[0]))
    read = plan.source.fabric
    source = target if read is None else run.patiently(lambda: run.controller.cluster(read))
    if plan.source.broker is not None:
        source = source.model_copy(update={"log": source.log.through(plan.source.broker)})
    directory = version_path(store.uid, rebuild.version, rebuild.id, rebuild.epoch)
    run.observer.stage(Stage.BUILD)
    topic = _topic(plan, rebuild, store, lease, run)
    replicas = None if run.replicas is None else partial(run.replicas, plan.store)
    building = Building(plan, store, source, target, directory, topic, replicas)
    outcome = _built(building, lease, run)
    run.observer.stage(Stage.SEAL)
    _seal(rebuild, building, outcome, run)


def _topic(plan: Plan, rebuild: StoreRebuild, store: Store, lease: Lease, run: StoreRun) -> VersionTopic | None:
    """The topic that the base goes through, once the controller has made it; None where it goes to files.

    Raises:
        Unreachable: ``topic_not_made``: it was not made for `Run.patience_seconds`, or the lease was lost meanwhile.
    """
    if not plan.target.config.through_log:
        return None
    deadline = run.clock_seconds() + run.patience_seconds
    while True:
        version = store.version(rebuild.version)
        topic = None if version is None else version.fabrics[plan.target.fabrics[0]].topic
        if topic is not None and topic.ready:
            return topic
        if lease.lost or run.clock_seconds() > deadline:
            raise Unreachable(
                "topic_not_made",
                "the controller has not made the topic that the base goes through",
                found="no topic" if topic is None else f"{topic.name} is announced",
                expected="a topic that is ready",
                hint="is the log there? anew doctor",
            )
        run.pause(_POLL_SECONDS)
        store = run.patiently(lambda: run.controller.snapshot(plan.store)).store


def _built(building: Building, lease: Lease, run: StoreRun) -> BuildOutcome:
    if building.plan.source.input is not None and not building.plan.source.input.paths:
        return build_without_rows(building)
    return run.build(building, lease, run.observer)


def _seal(rebuild: StoreRebuild, building: Building, outcome: BuildOutcome, run: StoreRun) -> None:
    plan, store = building.plan, building.store
    start, dictionary = _start(building, run), outcome.built.dictionary
    manifest = Manifest(
        store=store.name,
        store_uid=store.uid,
        version=rebuild.version,
        kind=plan.kind,
        rebuild=rebuild.id,
        epoch=rebuild.epoch,
        source_version=plan.source.version,
        key_schema=store.key_schema,
        schemas=store.schemas,
        config=plan.target.config,
        config_hash=plan.target.config.hash,
        dictionary=None if dictionary is None else dictionary.path,
        dictionary_checksum=None if dictionary is None else dictionary.checksum,
        feeds=store.feeds_with_schemas(plan.target.feeds).feeds,
        start=start,
        stop=plan.target.stop,
        ttl_floor_ms=plan.target.ttl_floor_ms,
        tombstone_floor_ms=plan.target.tombstone_floor_ms,
        created_at_ms=run.clock(),
        ledger=outcome.built.ledger,
        sub_partitions=outcome.built.sub_partitions,
    )
    path = manifest_path(building.directory)
    deep_store = open_deep_store(building.target.deep_store)
    run.patiently(lambda: deep_store.put(path, manifest.to_bytes()))
    ref, ledger = manifest.ref(path), outcome.built.ledger
    gone = ledger.superseded + ledger.deleted + ledger.expired + ledger.skipped
    merged = (ledger.read.hash + ledger.raised.hash - gone.hash) % (1 << 64)
    seal = Seal(
        epoch=rebuild.epoch,
        manifest=ref,
        ledger=ledger,
        fingerprint=Fingerprints(source=merged, target=ref.fingerprint),
        records_per_s=outcome.records_per_s,
        start=start,
    )
    _commit_seal(rebuild, seal, run)


def _start(building: Building, run: StoreRun) -> PositionMap:
    """From where the version applies its feeds: as planned, or counted from the end of the push (rule R13)."""
    plan, store = building.plan, building.store
    if plan.source.input is None or plan.target.config.rewind_from != "eop" or not any(store.current.values()):
        return plan.target.start
    end_ms = run.patiently(lambda: run.controller.snapshot(plan.store)).now_ms
    at_ms = push_start_ms(store, plan.source.input.as_of_ms, end_ms)
    at_time = run.patiently(lambda: run.controller.snapshot(plan.store, at_ms)).at_time
    return PositionMap({at: max(offset, at_time.get(at, offset)) for at, offset in plan.target.start.items()})


def _commit_seal(rebuild: StoreRebuild, seal: Seal, run: StoreRun) -> None:
    """Commit the manifest; the same seal again is the same seal, so that a lost answer is looked up by asking again.

    Raises:
        OutcomeUnknown: ``seal_unknown``: the controller stopped answering. Nothing is given up: if the seal arrived,
            the controller goes on alone; if not, the lease ends.
    """
    try:
        run.patiently(lambda: run.controller.seal(rebuild.id, seal))
    except (OutcomeUnknown, Unreachable) as error:
        raise CommitUnknown(
            "seal_unknown",
            "the controller did not say whether the version was sealed",
            found=error.found,
            expected="an answer",
            hint=f"anew rebuild show {rebuild.id}",
        ) from error
