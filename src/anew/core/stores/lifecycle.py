"""The life cycle of versions: each change of a store is a pure function from the aggregate to the next one.

`anew.core.stores.transitions` has the whole table of what a version may become in one fabric; the functions below check
what the table cannot know (who else is there) and return a new `Store` that the caller commits by compare-and-swap.
Versions that follow a stream job are changed in `anew.core.stores.following`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from anew.core.errors import NotFound, Refused
from anew.core.feed import FeedKind, PositionMap
from anew.core.moment import utc_text
from anew.core.stores.displacing import displaced
from anew.core.stores.longreads import MAX_HOLD_TOTAL_SECONDS, last_hold_ms
from anew.core.stores.plan import Plan
from anew.core.stores.store import IN_THE_MAKING, ManifestRef, RebuildKind, Store, Version, VersionStatus
from anew.core.stores.transitions import TRANSITIONS, VersionEvent, step

S = VersionStatus
_E = VersionEvent
Change = Callable[[Store], Store]
"""A change of a store: a pure function from the aggregate to the next one."""
Swapper = Callable[[Store, int, str, int], Store]
"""`swap` or `roll_back`: (store, version, fabric, now in ms) → store."""


def begin(store: Store, plan: Plan, made: Version, now_ms: int) -> Store:
    """Add the version that a plan makes, if the plan's fence still holds; what it displaces is killed.

    Raises:
        Refused: ``rebuild_running``, ``swap_deferred``, ``plan_outdated``, ``truncated_above_start`` (rule R2),
            ``writes_disabled``.
    """
    check_fence(store, plan)
    check_low_water(store, plan.source.start)
    check_low_water(store, plan.target.start)
    for version in displaced(store, plan.kind, plan.target.fabrics):
        store = end_badly(store, version.number, _E.KILL, displaced_by(plan.kind, made.number), now_ms)
    return store.model_copy(
        update={"versions": (*store.versions, made), "next_version": max(store.next_version, made.number + 1)}
    )


def displaced_by(kind: RebuildKind, number: int) -> str:
    """Why a version was killed that was in the way of another one."""
    return f"a {kind.value} takes precedence: version {number}"


def check_fence(store: Store, plan: Plan) -> None:
    """Raise when something that the plan was made from has moved.

    Raises:
        Refused: ``plan_outdated``, naming what was planned and what is.
    """
    hint = "make a new plan with --dry-run"
    if not store.config.writes:
        raise Refused("writes_disabled", f"{store.name} takes no writes", found="writes = false", expected="true")
    concerned = {*plan.target.fabrics, plan.source.fabric}
    checks: list[tuple[str, Any, Any]] = [
        ("the store", plan.fence.store_uid, store.uid),
        ("the current version", _of_some(plan.fence.current, concerned), _of_some(store.current, concerned)),
        ("the next version's number", plan.target.version, store.next_version),
        ("the configuration", plan.fence.config_hash, store.config.frozen.hash),
        # The fence says what the plan was made from, the target what would be made: a partitioner is code.
        ("the configuration of the target", plan.target.config.hash, store.config.frozen.hash),
        ("the feeds", plan.fence.feeds, tuple(feed.id for feed in store.feeds)),
    ]
    for what, planned, present in checks:
        if planned != present:
            raise Refused(
                "plan_outdated", f"{what} moved since the plan was made", found=present, expected=planned, hint=hint
            )
    if plan.source.version is not None:
        source = store.version(plan.source.version)
        there = None if source is None else source.fabrics.get(plan.source.fabric or "")
        if there is None or there.manifest != plan.source.manifest or not there.readable:
            found = store.status_of(plan.source.version)
            raise Refused(
                "plan_outdated", "the source version is gone", found=found, expected=plan.source.topic, hint=hint
            )


def _of_some(current: Mapping[str, int], fabrics: Collection[str | None]) -> dict[str, int]:
    return {fabric: number for fabric, number in current.items() if fabric in fabrics}


def check_low_water(store: Store, start: PositionMap) -> None:
    """Raise when a log was, or may have been, truncated above a start (rule R2).

    Raises:
        Refused: ``truncated_above_start``.
    """
    for at, offset in start.items():
        feed = store.feed(at.feed)
        low = None if feed is None else feed.low_water[at.partition]
        if low is None or offset < low:
            raise Refused(
                "truncated_above_start",
                f"the log no longer holds what the plan starts from in {at}",
                found=f"low water {low}",
                expected=f"at most {offset}",
                hint="make a new plan",
            )


def seal(store: Store, number: int, manifest: ManifestRef, start: PositionMap, now_ms: int) -> Store:
    """The version's base is complete: nodes may load it, and apply its feeds from ``start``.

    It is so in all fabrics where it is being built; where it was put off it is to be taken later.
    """
    version = existing(store, number)
    if version.manifest == manifest:
        return store
    built = version.where({S.BUILDING}) or version.fabrics
    return replaced(store, moved(version, _E.SEAL, built, now_ms, manifest=manifest, start=start))


def put_off(store: Store, number: int, fabric: str, why: str, now_ms: int) -> Store:
    """A fabric cannot take the version now: it is *pending* there, in nobody's way, until it is taken (`take`)."""
    return replaced(store, moved(existing(store, number), _E.PUT_OFF, (fabric,), now_ms, error=why))


def take(store: Store, number: int, fabric: str, manifest: ManifestRef, start: PositionMap, now_ms: int) -> Store:
    """A fabric takes a version that was put off there: its base has come, nodes may load it."""
    taken = {"manifest": manifest, "start": start, "error": None}
    return replaced(store, moved(existing(store, number), _E.TAKE, (fabric,), now_ms, **taken))


def take_over(store: Store, number: int, epoch: int, path: str) -> Store:
    """Another driver makes the version, in a directory of its own (rule R22)."""
    return replaced(store, existing(store, number).model_copy(update={"epoch": epoch, "path": path}))


def aim(store: Store, number: int, fabric: str, target: PositionMap) -> Store:
    """Freeze the positions that every replica in a fabric must reach before the swap there (rule R17).

    Frozen once, they stay.
    """
    version = existing(store, number)
    if version.fabrics[fabric].ready_target is not None:
        return store
    return replaced(store, version.moved((fabric,), ready_target=target))


def begin_closing(store: Store, number: int) -> Store:
    """End nearline writes for a version that must close: from now on none is accepted (rule R10)."""
    version = existing(store, number)
    return store if version.closing else replaced(store, version.model_copy(update={"closing": True}))


def freeze_stop(store: Store, number: int, ends: PositionMap) -> Store:
    """Nearline writes are closed: the version applies them up to these ends, and is ready only there (R10).

    The feeds of jobs, whose ends are given as well, have no end. Of a version that ended meanwhile nothing is frozen:
    for it, writes go on.
    """
    version = existing(store, number)
    if version.stop is not None or not version.closing or not version.has(IN_THE_MAKING):
        return store
    stop = PositionMap({at: end for at, end in ends.items() if at.feed not in feeds_of_jobs(store)})
    return replaced(store, version.moved(version.fabrics, ready_target=ends).model_copy(update={"stop": stop}))


def caught_up(store: Store, number: int, fabric: str, now_ms: int) -> Store:
    """All replicas in the fabric hold the base and reached the target."""
    return replaced(store, moved(existing(store, number), _E.CATCH_UP, (fabric,), now_ms))


def swap_when_ready(store: Store, number: int, fabric: str, now_ms: int) -> Store:
    """The swap at the end of a rebuild: only from the current version that its plan recorded (rule R14).

    Otherwise, or when it does not apply all feeds of the current one (rule R9), the version becomes deferred and says
    why.
    """
    version = existing(store, number)
    planned, present = version.fabrics[fabric].swap_from, store.current.get(fabric, 0)
    if planned != present:
        why = f"not swapped in {fabric}: planned from version {planned}, but {present} is current now"
    elif missing := missing_feeds(store, version, fabric):
        why = f"not swapped in {fabric}: version {present} applies {', '.join(missing)} as well"
    elif version.defer_swap:
        why = "its swap is deferred, as it was asked for"
    else:
        return swap(store, number, fabric, now_ms)
    return replaced(store, moved(version, _E.DEFER, (fabric,), now_ms, error=why))


def missing_feeds(store: Store, version: Version, fabric: str) -> list[str]:
    """The feeds of the fabric's current version that another version does not apply as far (rule R9).

    A version that ends at a stop lacks what was written after it, unless no write was accepted since: while it keeps
    writes closed because it becomes ready (rule R10). What it replaces, it does not lack, but for what a job writes:
    which generation serves is the job's to say (`anew.core.stores.following`).
    """
    current = store.version(store.current.get(fabric, 0))
    return [] if current is None else _lacking_for_all(current, version, fabric, feeds_of_jobs(store))


def feeds_of_jobs(store: Store) -> frozenset[str]:
    """The ids of the feeds that jobs write into."""
    return frozenset(feed.id for feed in store.feeds if feed.kind is FeedKind.GENERATION)


def _lacking_for_all(current: Version, version: Version, fabric: str, of_jobs: frozenset[str]) -> list[str]:
    other_generations = of_jobs.intersection(current.feeds).difference(version.feeds)
    return sorted({*lacking(current, version, fabric), *other_generations})


def lacking(current: Version, version: Version, fabric: str) -> list[str]:
    """The feeds of one version that another one neither applies as far in a fabric nor replaces."""
    keeps_closed = version.closing and version.status_in(fabric) is S.READY
    return sorted(
        feed
        for feed in current.feeds
        if feed not in version.replaces
        and (feed not in version.feeds or not (keeps_closed or _reaches(version, current, feed)))
    )


def _reaches(version: Version, current: Version, feed: str) -> bool:
    """Whether a version applies a feed at least as far as the current one does; without a stop it has no end."""
    if version.stop is None or not any(at.feed == feed for at in version.stop):
        return True
    ends = {} if current.stop is None else {at: stop for at, stop in current.stop.items() if at.feed == feed}
    return bool(ends) and all(version.stop.get(at, -1) >= stop for at, stop in ends.items())


def swap(store: Store, number: int, fabric: str, now_ms: int) -> Store:
    """Make a version the current one of a fabric; the one before becomes a backup.

    Raises:
        NotFound: ``unknown_version``.
        Refused: ``already_current``, ``bad_transition``, ``not_in_fabric``, ``feeds_missing`` (rule R9).
    """
    after = _swap(store, number, fabric, _E.SWAP_OUT, now_ms)
    if after.schedule_held is None:
        return after
    why = after.schedule_held.partition(_SINCE)[0]
    return after.model_copy(update={"schedule_held": f"{why}{_SINCE}version {number} became current in {fabric}"})


_SINCE = "; since then "
"""Between why schedules are held and what serves since."""


def roll_back(store: Store, number: int, fabric: str, now_ms: int) -> Store:
    """Like `swap`, but the version before is marked as rolled back: a source only when named.

    Scheduled repushes are held until somebody unpauses them: they would build on what was found bad (case H9).
    """
    before = store.current.get(fabric, 0)
    after = _swap(store, number, fabric, _E.ROLL_BACK, now_ms)
    return after.model_copy(update={"schedule_held": f"rolled back from version {before} to {number} in {fabric}"})


def rollback_targets(store: Store, versions: Iterable[Version], fabric: str) -> list[Version]:
    """Of some versions the backups below the fabric's current one that lack none of its feeds (rule R9)."""
    current = store.version(store.current.get(fabric, 0))
    if current is None:
        return []
    backups, of_jobs = _backups_below(versions, current.number, fabric), feeds_of_jobs(store)
    return [v for v in backups if not _lacking_for_all(current, v, fabric, of_jobs)]


def _backups_below(versions: Iterable[Version], number: int, fabric: str) -> list[Version]:
    return [v for v in versions if v.status_in(fabric) is S.BACKUP and v.number < number]


def rollback_target(store: Store, fabric: str) -> int:
    """The newest backup below the fabric's current version, one that lacks none of its feeds where there is any.

    Raises:
        Refused: ``no_backup``.
    """
    current = store.current.get(fabric, 0)
    backups = _backups_below(store.versions, current, fabric)
    if not backups:
        raise Refused(
            "no_backup",
            f"{store.name} has no version to roll back to in {fabric}",
            found={v.number: v.fabrics[fabric].status.value for v in store.versions if fabric in v.fabrics},
            expected=f"a backup below version {current}",
        )
    return max(version.number for version in rollback_targets(store, backups, fabric) or backups)


def end_badly(
    store: Store, number: int, event: VersionEvent, error: str, now_ms: int, fabric: str | None = None
) -> Store:
    """Fail or kill a version that is in the making, in one fabric or in all; what serves somewhere is left alone."""
    version = existing(store, number)
    open_in = [
        name
        for name, there in version.fabrics.items()
        if (there.status, event) in TRANSITIONS and fabric in (None, name)
    ]
    return replaced(store, moved(version, event, open_in, now_ms, error=error)) if open_in else store


def retire(store: Store, number: int, now_ms: int) -> Store:
    """First step of reclaim: from now on no rollback can choose the version in any fabric (rule R15)."""
    version = existing(store, number)
    held = {n: until_ms for n, until_ms in store.read_until_ms.items() if n != number}
    retired = replaced(store, moved(version, _E.RETIRE, version.fabrics, now_ms))
    holds = {n: held for n, held in store.holds.items() if n != number}
    return retired.model_copy(update={"read_until_ms": held, "holds": holds})


def reclaimed(store: Store, number: int, fabric: str, now_ms: int) -> Store:
    """Second step of reclaim: its files are gone in a fabric."""
    return replaced(store, moved(existing(store, number), _E.RECLAIM, (fabric,), now_ms))


def hold(store: Store, number: int, until_ms: int, now_ms: int, hold_id: str | None = None) -> Store:
    """Keep a version for a long read until then (rule R15); holding it for less changes nothing.

    A version that no fabric serves any more is held until `last_hold_ms` at most.

    Args:
        store: Whose version.
        number: Which one.
        until_ms: When the hold ends by itself.
        now_ms: The time.
        hold_id: Of the read, which says when it ends (`release`); None: it does not.

    Raises:
        NotFound: ``unknown_version``.
        Refused: ``version_gone``: it is retired or was never sealed. ``hold_over``: it was held for as long as may be.
    """
    version = existing(store, number)
    if not version.readable:
        raise Refused(
            "version_gone",
            f"version {number} of {store.name} cannot be read",
            found=version.status.value,
            expected="a version that is kept",
        )
    last_ms = last_hold_ms(version)
    if last_ms is not None and now_ms >= last_ms:
        raise Refused(
            "hold_over",
            f"reads may hold version {number} of {store.name} no longer",
            found=f"it has not been current since {utc_text(last_ms - MAX_HOLD_TOTAL_SECONDS * 1000)}",
            expected=f"holds until {utc_text(last_ms)}: {MAX_HOLD_TOTAL_SECONDS} s after it was current at most",
            hint="begin the read again: it reads the current version",
        )
    until_ms = until_ms if last_ms is None else min(until_ms, last_ms)
    if hold_id is None:
        held = {**store.read_until_ms, number: max(until_ms, store.read_until_ms.get(number, 0))}
        return store.model_copy(update={"read_until_ms": held})
    present = store.holds.get(number, {})
    holds = {**present, hold_id: max(until_ms, present.get(hold_id, 0))}
    return store.model_copy(update={"holds": {**store.holds, number: holds}})


def release(store: Store, number: int, hold_id: str, now_ms: int) -> Store:
    """Let go of a version that a long read held, and of what others held until a time that is over."""
    others = {
        hold: until_ms
        for hold, until_ms in store.holds.get(number, {}).items()
        if hold != hold_id and until_ms > now_ms
    }
    kept = {version: holds for version, holds in store.holds.items() if version != number}
    return store.model_copy(update={"holds": {**kept, number: others} if others else kept})


def reassign(store: Store, number: int, fabric: str, assignment: dict[int, tuple[str, ...]]) -> Store:
    """Put the version's replicas in a fabric on other nodes."""
    return replaced(store, existing(store, number).moved((fabric,), assignment=assignment))


def existing(store: Store, number: int) -> Version:
    """The version of that number.

    Raises:
        NotFound: ``unknown_version``.
        Refused: ``version_gone``: it was reclaimed and has left.
    """
    version = store.version(number)
    if version is None and store.has_left(number):
        kept = ", ".join(str(v.number) for v in store.versions if not v.reclaimed)
        raise Refused(
            "version_gone",
            f"version {number} of {store.name} was reclaimed",
            found=S.RECLAIMED.value,
            expected=f"a version that is kept: {kept}" if kept else "a version that is kept, and there is none",
            hint=f"anew store show {store.name}",
        )
    if version is None:
        known = ", ".join(str(v.number) for v in store.versions)
        raise NotFound(
            "unknown_version",
            f"{store.name} has no version {number}",
            found=number,
            expected=known if known else "none yet",
        )
    return version


def _swap(store: Store, number: int, fabric: str, out: VersionEvent, now_ms: int) -> Store:
    version, present = existing(store, number), store.current.get(fabric, 0)
    if present == number:
        raise Refused("already_current", f"version {number} is current in {fabric}", found=number)
    changed = replaced(store, moved(version, _E.SWAP_IN, (fabric,), now_ms, error=None))
    if present:
        before = existing(store, present)
        if missing_feeds(store, version, fabric):
            raise Refused(
                "feeds_missing",
                f"version {number} does not apply all that version {present} does",
                found=sorted(version.feeds) if version.stop is None else f"{sorted(version.feeds)} up to its stop",
                expected=sorted(before.feeds),
                hint="writes made since would be lost; repush the current version instead",
            )
        changed = replaced(changed, moved(before, out, (fabric,), now_ms))
    return changed.model_copy(update={"current": {**store.current, fabric: number}})


def moved(version: Version, event: VersionEvent, fabrics: Iterable[str], now_ms: int, **changes: Any) -> Version:
    """The version after an event in some fabrics; ``changes`` are of its life in these."""
    for fabric in fabrics:
        there = version.fabrics.get(fabric)
        if there is None:
            raise Refused(
                "not_in_fabric",
                f"version {version.number} was not made for {fabric}",
                found=f"it is in {', '.join(version.fabrics)}",
                expected=f"a version that is in {fabric}",
                hint="make one there: anew repush NAME --target-fabrics …",
            )
        status = step(there.status, event)
        version = version.moved((fabric,), status=status, since_ms=now_ms, **changes)
    return version


def replaced(store: Store, version: Version) -> Store:
    """The store with another value of one of its versions."""
    versions = tuple(version if v.number == version.number else v for v in store.versions)
    return store.model_copy(update={"versions": versions})
