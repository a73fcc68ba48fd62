"""Rebuilds: a driver begins one, gives signs of life, seals it; the reconciler takes it from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anew.api.models import BeginRebuild, EndRebuild, Heartbeat, HeartbeatAnswer, Seal
from anew.catalog.change import Change, Put, PutRebuild, PutReclaim, PutRequest, PutStore
from anew.controller.context import (
    Context,
    change_store,
    check_unaltered,
    made_before,
    request_id_reused,
    store_named,
)
from anew.controller.drivers import note_failure
from anew.controller.nodes import alive_nodes
from anew.controller.reclaim import orphans_of
from anew.controller.versiontopics import announced, make_version_topics
from anew.core import lifecycle
from anew.core.assignment import assign
from anew.core.displacing import displaced
from anew.core.errors import Failed, InvalidRequest, NotFound, Refused
from anew.core.feed import PositionMap
from anew.core.lifecycle import VersionEvent
from anew.core.plan import Plan
from anew.core.rebuild import DRIVEN_STAGES, Rebuild, RebuildStatus, Stage, advance, end
from anew.core.store import IN_THE_MAKING, ManifestRef, RebuildKind, Store, Version, VersionStatus
from anew.log.interface import Log, Offsets, TopicPartition, topic_partition
from anew.segments.layout import manifest_path, version_path

_ATTEMPTS = 10
_MOST_CHARACTERS_SAID = 500
"""How much of an error a version and a line of history keep."""


def rebuild_of(context: Context, rebuild_id: str) -> Rebuild:
    """The rebuild of that id.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    rebuild = context.catalog.rebuild(rebuild_id)
    if rebuild is None:
        raise NotFound(
            "unknown_rebuild", f"there is no rebuild {rebuild_id}", found=rebuild_id, hint="anew rebuild list"
        )
    return rebuild


def begin(context: Context, request: BeginRebuild, actor: str) -> Rebuild:
    """Create the version and the rebuild of a plan, if nothing that the plan was made from has moved.

    Raises:
        InvalidRequest: ``plan_altered``, ``request_id_reused``.
        Refused: ``rebuild_running``, ``plan_outdated``, ``truncated_above_start``, ``topic_lost``, ``no_nodes``.
    """
    for _ in range(_ATTEMPTS):
        begun = _begun_before(context, request)
        if begun is not None:
            return begun
        try:
            return _begin(context, request, actor)
        except (Refused, InvalidRequest) as error:
            # The same request may be under way twice, and the other one was faster: what it made moved the store.
            begun = _begun_before(context, request)
            if begun is not None:
                return begun
            # The store moved between load and commit: the plan is judged again on what it is now.
            if error.code != "revision_conflict":
                raise
    raise Refused("revision_conflict", f"{request.plan.store} is changed by others all the time", hint="try again")


def _begun_before(context: Context, request: BeginRebuild) -> Rebuild | None:
    """What the request id made; None for a new one.

    Raises:
        InvalidRequest: ``request_id_reused``.
    """
    made = made_before(context, request.request_id, request.plan.request_hash)
    if made is None:
        return None
    begun = rebuild_of(context, made)
    if begun.store != request.plan.store:
        # What the hash was made of is the client's to say: it opens no other store's rebuild.
        raise request_id_reused(request.request_id, request.plan.request_hash)
    return begun


def _begin(context: Context, request: BeginRebuild, actor: str) -> Rebuild:
    plan = request.plan
    check_unaltered(plan)
    store = store_named(context, plan.store)
    lifecycle.check_fence(store, plan)
    _check_logs(context, store, plan)
    now_ms, rebuild_id = context.clock(), context.new_id()
    made = _version(context, store, plan, rebuild_id)
    topics = announced(context, made.name_in(store.name), made.config, tuple(made.statuses))
    made = made.model_copy(update={"topics": topics})
    rebuild = Rebuild(
        id=rebuild_id,
        kind=plan.kind,
        store=store.name,
        store_uid=store.uid,
        version=made.number,
        status=RebuildStatus.RUNNING,
        stage=Stage.BEGIN,
        plan=plan,
        epoch=made.epoch,
        lease_until_ms=now_ms + int(context.limits.lease_seconds * 1000),
        created_at_ms=now_ms,
        stage_since_ms=now_ms,
        driver=request.driver,
    )
    in_the_way = displaced(store, plan.kind)
    puts: tuple[Put, ...] = (
        PutStore(lifecycle.begin(store, plan, made, now_ms), store.revision),
        PutRebuild(rebuild, None),
        PutRequest(request.request_id, plan.request_hash, rebuild_id),
        *_displace(context, in_the_way, plan, made),
    )
    detail = {"rebuild": rebuild_id, "version": made.number, "plan": plan.id}
    if in_the_way is not None:
        detail["killed"] = in_the_way.rebuild
    context.catalog.commit(Change(context.operation(f"begin {plan.kind.value}", store.name, actor, **detail), puts))
    if topics:
        make_version_topics(context, _store_of(context, rebuild))
    return rebuild_of(context, rebuild_id)


def _displace(context: Context, version: Version | None, plan: Plan, made: Version) -> tuple[PutRebuild, ...]:
    """The end of the rebuild that is in the way of another one; its driver stops at its next sign of life."""
    if version is None:
        return ()
    running = rebuild_of(context, version.rebuild)
    why = lifecycle.displaced_by(plan.kind, made.number)
    return (PutRebuild(end(running, RebuildStatus.KILLED, why, context.clock()), running.revision),)


def heartbeat(context: Context, rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
    """Renew the driver's lease; an ended rebuild is answered with "stop".

    Raises:
        InvalidRequest: ``bad_stage``: the stage is not one that a driver works on.
        Refused: ``epoch_outdated``: another driver took over.
    """
    for _ in range(_ATTEMPTS):
        rebuild = rebuild_of(context, rebuild_id)
        if rebuild.ended:
            return HeartbeatAnswer(kill_asked=True, lease_until_ms=rebuild.lease_until_ms)
        _check_epoch(rebuild, request.epoch)
        check_driven(request.stage)
        now_ms = context.clock()
        lease_ms = now_ms + int(context.limits.lease_seconds * 1000)
        renewed = rebuild.model_copy(update={"lease_until_ms": lease_ms, "troubles": request.troubles})
        if rebuild.stage in DRIVEN_STAGES:
            renewed = advance(renewed, request.stage, now_ms).model_copy(update={"progress": request.progress})
        try:
            context.catalog.put_rebuild(renewed, rebuild.revision)
        except Refused as error:
            if error.code != "revision_conflict":
                raise
        else:
            return HeartbeatAnswer(kill_asked=False, lease_until_ms=lease_ms)
    raise Refused("revision_conflict", "the rebuild is changed by others all the time", hint="try again")


def seal(context: Context, rebuild_id: str, request: Seal) -> Rebuild:
    """Commit the manifest by compare-and-swap, once the ledger balances and agrees with it (rule R19).

    Raises:
        Failed: ``ledger_imbalance``, ``fingerprint_mismatch``, ``quota_exceeded``, ``start_moved``, ``file_missing``.
        Refused: ``rebuild_ended``, ``epoch_outdated``, ``foreign_manifest``.
    """
    rebuild = rebuild_of(context, rebuild_id)
    _check_epoch(rebuild, request.epoch)
    store = _store_of(context, rebuild)
    version = lifecycle.existing(store, rebuild.version)
    if version.manifest == request.manifest and rebuild.stage not in DRIVEN_STAGES:
        return rebuild
    now_ms = context.clock()
    # Before the files are looked at: those of a rebuild that has ended may be gone by now.
    advance(rebuild, Stage.SEAL, now_ms)
    _check_own(version, request.manifest)
    _check_account(request)
    _check_quota(store, rebuild, request)
    start = _sealed_start(version, request)
    for fabric in version.statuses:
        if context.fabrics[fabric].deep_store.stat(request.manifest.path) is None:
            raise Failed(
                "file_missing", f"the manifest is not in the deep store of {fabric}", found=request.manifest.path
            )
    account = {"ledger": request.ledger, "fingerprint": request.fingerprint, "records_per_s": request.records_per_s}
    written = request.ledger.written.count

    def change(present: Store) -> tuple[Store, tuple[Put, ...]]:
        # Signs of life go on beside the seal, so that the record is looked at again at each try.
        newest = rebuild_of(context, rebuild_id)
        _check_epoch(newest, request.epoch)
        # The driver's last sign of life may be from before its last tasks.
        done = newest.progress.model_copy(
            update={"done": newest.progress.total, "bytes": newest.progress.total_bytes, "records": written}
        )
        advanced = advance(advance(newest, Stage.SEAL, now_ms), Stage.LOAD, now_ms)
        sealed = advanced.model_copy(update={**account, "progress": done})
        after = lifecycle.seal(present, rebuild.version, request.manifest, start, now_ms)
        orphans = (PutReclaim(orphans_of(context, present, version, fabric)) for fabric in version.statuses)
        return after, (PutRebuild(sealed, newest.revision), *orphans)

    operation = context.operation("seal version", store.name, "driver", rebuild=rebuild_id, version=version.number)
    change_store(context, store.uid, operation, change)
    return rebuild_of(context, rebuild_id)


def fail(context: Context, rebuild_id: str, request: EndRebuild) -> Rebuild:
    """The driver gives up: the version is failed, nothing serves it.

    Raises:
        Refused: ``epoch_outdated``, ``swapped_already``.
    """
    rebuild = rebuild_of(context, rebuild_id)
    epoch = rebuild.epoch if request.epoch is None else request.epoch
    _check_epoch(rebuild, epoch)
    error = "the driver gave up" if request.error is None else request.error
    ended = _end(
        context, rebuild, _Ending(RebuildStatus.FAILED, error, "driver", lambda newest, _: newest.epoch == epoch)
    )
    _check_epoch(ended, epoch)
    return ended


def kill(context: Context, rebuild_id: str, actor: str) -> Rebuild:
    """End a rebuild from outside; its driver stops at its next sign of life. Also gives up its deferred version.

    Raises:
        Refused: ``rebuild_ended``, ``swapped_already``.
    """
    rebuild = rebuild_of(context, rebuild_id)
    if rebuild.ended and _give_up_deferred(context, rebuild, actor):
        return rebuild_of(context, rebuild_id)
    if rebuild.ended:
        raise Refused("rebuild_ended", f"the rebuild {rebuild_id} has ended", found=rebuild.status.value)
    return end_rebuild(context, rebuild, RebuildStatus.KILLED, f"killed by {actor}", actor)


def _give_up_deferred(context: Context, rebuild: Rebuild, actor: str) -> bool:
    """Kill the version of an ended rebuild where it waits to be swapped; whether there was one."""
    now_ms, error = context.clock(), f"given up by {actor}"
    done = False

    def change(present: Store) -> tuple[Store, tuple[()]]:
        nonlocal done
        done = VersionStatus.DEFERRED in lifecycle.existing(present, rebuild.version).statuses.values()
        if not done:
            return present, ()
        return lifecycle.end_badly(present, rebuild.version, VersionEvent.KILL, error, now_ms), ()

    operation = context.operation("give up version", rebuild.store, actor, rebuild=rebuild.id, version=rebuild.version)
    change_store(context, rebuild.store_uid, operation, change)
    return done


def expire(context: Context, rebuild: Rebuild) -> Rebuild:
    """Fail a rebuild whose driver gave no sign of life, unless it gave one, or sealed, in this very moment."""
    ending = _Ending(RebuildStatus.FAILED, rebuild.why_expired, "controller", _lease_is_over)
    return _end(context, rebuild, ending)


def _lease_is_over(rebuild: Rebuild, now_ms: int) -> bool:
    return rebuild.stage in DRIVEN_STAGES and now_ms > rebuild.lease_until_ms


def end_rebuild(context: Context, rebuild: Rebuild, status: RebuildStatus, error: str, actor: str) -> Rebuild:
    """End a rebuild badly, and with it its version, in one transaction.

    Raises:
        Refused: ``swapped_already``: the version is not in the making any more.
    """
    return _end(context, rebuild, _Ending(status, error, actor))


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a rebuild is to end, and whether that still holds once its newest record is known."""

    status: RebuildStatus
    error: str
    actor: str
    holds: Callable[[Rebuild, int], bool] = lambda _rebuild, _now_ms: True


_EVENTS = {RebuildStatus.FAILED: VersionEvent.FAIL, RebuildStatus.KILLED: VersionEvent.KILL}


def _end(context: Context, rebuild: Rebuild, ending: _Ending) -> Rebuild:
    now_ms = context.clock()
    # The first line: what follows may be a traceback with lines of the user's own code, which are in the record alone.
    said = ending.error.partition("\n")[0][:_MOST_CHARACTERS_SAID]

    def change(present: Store) -> tuple[Store, tuple[Put, ...]]:
        newest = rebuild_of(context, rebuild.id)
        if newest.ended or not ending.holds(newest, now_ms):
            return present, ()
        _check_in_the_making(present, newest)
        after = lifecycle.end_badly(present, rebuild.version, _EVENTS[ending.status], said, now_ms)
        ended = PutRebuild(end(newest, ending.status, ending.error, now_ms), newest.revision)
        failed = ending.status is RebuildStatus.FAILED
        return after, (ended, *([note_failure("store", rebuild.store, rebuild.id, said, now_ms)] if failed else []))

    detail = {"rebuild": rebuild.id, "version": rebuild.version, "error": said}
    operation = context.operation(f"rebuild {ending.status.value}", rebuild.store, ending.actor, **detail)
    change_store(context, rebuild.store_uid, operation, change)
    return rebuild_of(context, rebuild.id)


def _version(context: Context, store: Store, plan: Plan, rebuild_id: str) -> Version:
    config, now_ms, number = plan.target.config, context.clock(), plan.target.version
    assignment = {}
    for fabric in plan.target.fabrics:
        nodes = alive_nodes(context, fabric)
        if not nodes:
            raise Refused(
                "no_nodes",
                f"no node of {fabric} may hold replicas",
                found=0,
                expected="at least one that is alive and not drained",
                hint="anew node list",
            )
        assignment[fabric] = assign(config.partitions, config.replicas, nodes, {})
    return Version(
        number=number,
        kind=plan.kind,
        config=config,
        config_hash=config.hash,
        statuses=dict.fromkeys(plan.target.fabrics, VersionStatus.BUILDING),
        since_ms=dict.fromkeys(plan.target.fabrics, now_ms),
        created_at_ms=now_ms,
        rebuild=rebuild_id,
        epoch=1,
        path=version_path(store.uid, number, rebuild_id, 1),
        source_version=plan.source.version,
        feeds=plan.target.feeds,
        start=plan.target.start,
        stop=plan.target.stop,
        ttl_floor_ms=plan.target.ttl_floor_ms,
        tombstone_floor_ms=plan.target.tombstone_floor_ms,
        timed=plan.target.timed,
        defer_swap=plan.target.defer_swap,
        swap_from={fabric: store.current.get(fabric, 0) for fabric in plan.target.fabrics},
        assignment=assignment,
    )


def _check_logs(context: Context, store: Store, plan: Plan) -> None:
    """Each feed's topic is still the one that the plan saw, and holds all that the plan reads (R2, R3)."""
    for feed in store.feeds:
        log = context.fabrics[feed.fabric].log
        for at in feed.feed_partitions():
            start = plan.source.start.get(at)
            if start is None:
                continue
            present = _offsets(log, topic_partition(feed, at.partition))
            stop = plan.source.end.get(at, start)
            if not (present.begin <= start and stop <= present.end):
                raise Refused(
                    "truncated_above_start" if present.begin > start else "log_lost_tail",
                    f"the log does not hold what the plan reads of {at}",
                    found=f"[{present.begin}, {present.end})",
                    expected=f"[{start}, {stop})",
                    hint="make a new plan with --dry-run",
                )


def _offsets(log: Log, topic: TopicPartition) -> Offsets:
    try:
        return log.offsets(topic)
    except Failed as error:
        if error.code != "topic_lost":
            raise
        raise Refused(
            "topic_lost",
            f"the topic {topic.topic} is not the one that the store's feed names",
            found=error.found,
            expected=topic.uid,
            hint="its records are lost; a topic that was made again is another feed",
        ) from error


def _check_own(version: Version, manifest: ManifestRef) -> None:
    """Raise unless a manifest lies in the rebuild's own directory: elsewhere are the data of other rebuilds and stores.

    Raises:
        Refused: ``foreign_manifest``.
    """
    expected = manifest_path(version.path)
    if manifest.path != expected:
        raise Refused(
            "foreign_manifest",
            "the manifest does not lie in the rebuild's own directory",
            found=manifest.path[:200],
            expected=expected,
            hint="seal what this rebuild wrote",
        )


def _check_account(request: Seal) -> None:
    request.ledger.check()
    manifest, written = request.manifest, request.ledger.written
    found = (manifest.rows + manifest.tombstones, manifest.fingerprint)
    if found != (written.count, written.hash) or request.fingerprint.source != request.fingerprint.target:
        raise Failed(
            "fingerprint_mismatch",
            "the files do not hold what the rebuild merged",
            found=f"{found[0]} rows, fingerprint {found[1]:016x}",
            expected=f"{written.count} rows, fingerprint {request.fingerprint.source:016x}",
        )


def _check_quota(store: Store, rebuild: Rebuild, request: Seal) -> None:
    """A repush is not judged: its data is there already (case A14)."""
    quota_bytes = store.config.quota_bytes
    if rebuild.kind is RebuildKind.FULL_PUSH and 0 < quota_bytes < request.manifest.bytes:
        raise Failed(
            "quota_exceeded",
            f"the push is larger than {store.name} may be",
            found=f"{request.manifest.bytes} bytes",
            expected=f"at most quota_bytes = {quota_bytes}",
            hint=f"push less, or raise it: anew store update {store.name} --set quota_bytes=…",
        )


def _sealed_start(version: Version, request: Seal) -> PositionMap:
    """From where the version applies its feeds: as begun, or later where a push counts from its end (rule R13)."""
    if request.start is None or request.start == version.start:
        return version.start
    late = version.kind is RebuildKind.FULL_PUSH and version.config.rewind_from == "eop"
    if not late or request.start.keys() != version.start.keys() or not request.start.reaches(version.start):
        raise Failed(
            "start_moved",
            "the manifest names another start than the version began with",
            found=request.start.to_json(),
            expected=version.start.to_json(),
        )
    return request.start


def _check_in_the_making(store: Store, rebuild: Rebuild) -> None:
    statuses = lifecycle.existing(store, rebuild.version).statuses
    if IN_THE_MAKING.isdisjoint(statuses.values()):
        raise Refused(
            "swapped_already",
            f"version {rebuild.version} of {store.name} is complete",
            found={fabric: status.value for fabric, status in statuses.items()},
            expected="a version in the making",
            hint=f"to go back: anew rollback {store.name}",
        )


def check_driven(stage: Stage) -> None:
    """Raise unless a driver works on a stage.

    Raises:
        InvalidRequest: ``bad_stage``.
    """
    if stage not in DRIVEN_STAGES:
        expected = ", ".join(sorted(DRIVEN_STAGES))
        raise InvalidRequest("bad_stage", "a driver does not work on this stage", found=stage.value, expected=expected)


def _check_epoch(rebuild: Rebuild, epoch: int) -> None:
    if rebuild.epoch != epoch:
        raise Refused(
            "epoch_outdated",
            f"another driver took over the rebuild {rebuild.id}",
            found=f"epoch {epoch}",
            expected=f"epoch {rebuild.epoch}",
        )


def _store_of(context: Context, rebuild: Rebuild) -> Store:
    store = context.catalog.store_by_uid(rebuild.store_uid)
    if store is None:
        raise NotFound("unknown_store", "the store is gone", found=rebuild.store)
    return store
