"""Running a plan: begin → build → seal → wait for load and swap, which are the controller's.

1. ``begin`` creates the version (idempotent by request id). A crash after it: the lease ends, the controller fails the
   version and reclaims its directory.
2. ``build`` writes base files under attempt paths. A crash in it: the same; no manifest names the files.
3. ``seal`` writes the manifest (content-addressed by the catalog's record of it) and commits it by compare-and-swap.
   A crash before the commit: as above. After it: the controller goes on alone, nobody is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from anew.api.http import ControllerClient
from anew.api.models import BeginRebuild, ResumeRebuild, Seal
from anew.api.waiting import wait_seconds
from anew.core.errors import OutcomeUnknown, Unreachable
from anew.core.feed import PositionMap
from anew.core.plan import Plan
from anew.core.planning import push_start_ms
from anew.core.rebuild import DRIVEN_STAGES, Fingerprints, Rebuild, Stage
from anew.core.store import Store, VersionTopic
from anew.deepstore.open import open_deep_store
from anew.rebuild.build import Build, Building, BuildOutcome, build_without_rows
from anew.rebuild.damage import ReplicaExports
from anew.rebuild.ending import check_ended_well, followed, give_up, is_turned_away, raise_as_failed
from anew.rebuild.lease import Lease
from anew.rebuild.observer import Observer
from anew.rebuild.patience import patiently
from anew.segments.layout import manifest_path, version_path
from anew.segments.manifest import Manifest

_POLL_SECONDS = 0.1
_SEAL_UNKNOWN = "seal_unknown"

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Run:
    """What running a plan needs besides the plan.

    Attributes:
        controller: The controller.
        build: How rows are built: `anew.rebuild.build.on_spark`.
        observer: Who is told.
        request_id: The same id twice is the same rebuild.
        driver: Who runs it, for people.
        clock: The time in ms.
        patience_seconds: How long the controller, or the deep store, may be away before the driver gives up waiting.
        clock_seconds: A monotonic clock.
        pause: Waits for so many seconds.
        lease: What gives signs of life beside the build.
        replicas: Lets the replicas of a store's current version, by its number, stand at one position.
    """

    controller: ControllerClient
    build: Build
    observer: Observer
    request_id: str
    driver: str
    clock: Callable[[], int]
    patience_seconds: float
    clock_seconds: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = wait_seconds
    lease: Callable[[ControllerClient, str, int], Lease] = Lease
    replicas: Callable[[str, int], AbstractContextManager[ReplicaExports]] | None = None


def run_plan(plan: Plan, run: Run) -> dict[str, Any]:
    """Run a plan to its end; returns the ``rebuild`` shape.

    Raises:
        Refused: The plan's fence does not hold any more; nothing was changed.
        Failed: It ran and failed; nothing serves the version.
        Unreachable: The controller did not answer for `Run.patience_seconds`: nothing was begun, the version fails when
            its lease ends, or it is sealed and needs nobody.
        OutcomeUnknown: The controller stopped answering in the beginning or at the seal.
    """
    run.observer.planned(plan)
    begin = BeginRebuild(plan=plan, request_id=run.request_id, driver=run.driver)
    rebuild = _patiently(run, lambda: run.controller.begin_rebuild(begin))
    run.observer.began(rebuild.id, rebuild.version)
    # Where the request was made before, its own driver is at work on it.
    if rebuild.stage in (Stage.BEGIN, Stage.BUILD) and not rebuild.ended and rebuild.driver == run.driver:
        _drive(plan, rebuild, run)
    return wait_for_end(run, rebuild.id)


def resume_rebuild(rebuild_id: str, run: Run) -> dict[str, Any]:
    """Take a rebuild over from a driver that is gone; returns the ``rebuild`` shape.

    What the driver before left of the build is not used: a fresh epoch writes into a directory of its own (rule R22).
    Once sealed nobody is needed, so that there is nothing to take over but to wait.

    Raises:
        Refused: ``driver_alive``, ``rebuild_ended``.
        Failed, OutcomeUnknown: As `run_plan`.
    """
    rebuild = run.controller.resume_rebuild(rebuild_id, ResumeRebuild(driver=run.driver))
    run.observer.planned(rebuild.plan)
    run.observer.began(rebuild.id, rebuild.version)
    if rebuild.stage in DRIVEN_STAGES:
        _drive(rebuild.plan, rebuild, run)
    return wait_for_end(run, rebuild.id)


def wait_for_end(run: Run, rebuild_id: str) -> dict[str, Any]:
    """Follow a rebuild until it has ended; returns its ``rebuild`` shape.

    Raises:
        Failed: ``rebuild_failed``, ``rebuild_killed``.
        Unreachable: The controller does not answer; the rebuild goes on without us once it is sealed.
    """

    def look(after: Stage | None, seconds: float) -> dict[str, Any]:
        return _patiently(run, lambda: run.controller.rebuild(rebuild_id, after=after, wait_seconds=seconds))

    view = followed(look, run.observer, run.pause, run.clock_seconds)
    hint = "the version before goes on serving"
    check_ended_well(view, "the rebuild", expected="a version that serves", hint=hint)
    return view


def _drive(plan: Plan, rebuild: Rebuild, run: Run) -> None:
    """Build and seal under a lease; whatever goes wrong before the seal fails the version at once."""
    with run.lease(run.controller, rebuild.id, rebuild.epoch) as lease:
        try:
            store = _patiently(run, lambda: run.controller.snapshot(plan.store)).store
            target = _patiently(run, lambda: run.controller.cluster(plan.target.fabrics[0]))
            read = plan.source.fabric
            source = target if read is None else _patiently(run, lambda: run.controller.cluster(read))
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
        except (Exception, KeyboardInterrupt) as error:
            if is_turned_away(error, lease):
                return
            if not (isinstance(error, OutcomeUnknown) and error.code == _SEAL_UNKNOWN):
                give_up(run.controller, rebuild, lease, error)
            raise_as_failed(error, rebuild)
            raise


def _topic(plan: Plan, rebuild: Rebuild, store: Store, lease: Lease, run: Run) -> VersionTopic | None:
    """The topic that the base goes through, once the controller has made it; None where it goes to files.

    Raises:
        Unreachable: ``topic_not_made``: it was not made for `Run.patience_seconds`, or the lease was lost meanwhile.
    """
    if not plan.target.config.through_log:
        return None
    deadline = run.clock_seconds() + run.patience_seconds
    while True:
        version = store.version(rebuild.version)
        topic = None if version is None else version.topics.get(plan.target.fabrics[0])
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
        store = _patiently(run, lambda: run.controller.snapshot(plan.store)).store


def _built(building: Building, lease: Lease, run: Run) -> BuildOutcome:
    if building.plan.source.input is not None and not building.plan.source.input.paths:
        return build_without_rows(building)
    return run.build(building, lease, run.observer)


def _seal(rebuild: Rebuild, building: Building, outcome: BuildOutcome, run: Run) -> None:
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
    _patiently(run, lambda: deep_store.put(path, manifest.to_bytes()))
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


def _start(building: Building, run: Run) -> PositionMap:
    """From where the version applies its feeds: as planned, or counted from the end of the push (rule R13)."""
    plan, store = building.plan, building.store
    if plan.source.input is None or plan.target.config.rewind_from != "eop" or not any(store.current.values()):
        return plan.target.start
    end_ms = _patiently(run, lambda: run.controller.snapshot(plan.store)).now_ms
    at_ms = push_start_ms(store, plan.source.input.as_of_ms, end_ms)
    at_time = _patiently(run, lambda: run.controller.snapshot(plan.store, at_ms)).at_time
    return PositionMap({at: max(offset, at_time.get(at, offset)) for at, offset in plan.target.start.items()})


def _commit_seal(rebuild: Rebuild, seal: Seal, run: Run) -> None:
    """Commit the manifest; the same seal again is the same seal, so that a lost answer is looked up by asking again.

    Raises:
        OutcomeUnknown: ``seal_unknown``: the controller stopped answering. Nothing is given up: if the seal arrived,
            the controller goes on alone; if not, the lease ends.
    """
    try:
        _patiently(run, lambda: run.controller.seal(rebuild.id, seal))
    except (OutcomeUnknown, Unreachable) as error:
        raise OutcomeUnknown(
            _SEAL_UNKNOWN,
            "the controller did not say whether the version was sealed",
            found=error.found,
            expected="an answer",
            hint=f"anew rebuild show {rebuild.id}",
        ) from error


def _patiently(run: Run, ask: Callable[[], _Answer]) -> _Answer:
    """What the controller, or the deep store, answers to something that may be asked again.

    Raises:
        Unreachable, OutcomeUnknown: There was no answer for `Run.patience_seconds`.
    """
    return patiently(ask, run.patience_seconds, run.clock_seconds, run.pause)
