"""Drivers of rebuilds, as a person on call looks for them: where each is, when it was heard last, and what failed."""

from __future__ import annotations

import json
from typing import Any, Literal

from anew.api.models import Problem
from anew.catalog.change import Change, PutFlag, SwapFlag
from anew.controller.context import Context, again_on_conflict
from anew.core.errors import NotFound
from anew.core.rebuild import DRIVEN_STAGES, DriverTrouble, RebuildRecord, driver_of
from anew.core.store import SERVABLE, Store

Subject = Literal["store", "table"]
_FAILED = "rebuild failed/"
_MOST_CHARACTERS = 500


def driver_view(context: Context, rebuild: RebuildRecord) -> dict[str, Any]:
    """Who makes a rebuild, where that process is and logs, and when it was heard last."""
    driver = driver_of(rebuild.driver)
    return {
        "actor": driver.actor,
        "host": driver.host,
        "pid": driver.pid,
        "log": driver.log,
        "heard_at_ms": _heard_at_ms(context, rebuild),
        "lease_until_ms": rebuild.lease_until_ms,
        "silent_ms": silent_ms(context, rebuild),
        "troubles": [f"{trouble.loop}: {trouble.error}" for trouble in _troubles(rebuild)],
    }


def _troubles(rebuild: RebuildRecord) -> tuple[DriverTrouble, ...]:
    """What the driver said last of its loops; nothing where none is needed any more."""
    return () if rebuild.ended or rebuild.stage not in DRIVEN_STAGES else rebuild.troubles


def silent_ms(context: Context, rebuild: RebuildRecord) -> int | None:
    """For how long the driver has not been heard; None where none is needed, or it was heard a moment ago."""
    if rebuild.ended or rebuild.stage not in DRIVEN_STAGES:
        return None
    silent = context.clock() - _heard_at_ms(context, rebuild)
    return silent if silent >= context.limits.takeover_seconds * 1000 else None


def driver_problems(context: Context, rebuild: RebuildRecord, subject: str) -> list[Problem]:
    """What a driver says of its own loops, and one that has not been heard for so long that another may take over."""
    return [*_loop_problems(context, rebuild, subject), *_silence(context, rebuild, subject)]


def _loop_problems(context: Context, rebuild: RebuildRecord, subject: str) -> list[Problem]:
    return [
        Problem(
            what=f"the driver of rebuild {rebuild.id} of {subject}: its loop {trouble.loop} does not get on: "
            f"{trouble.error}",
            since_ms=_heard_at_ms(context, rebuild) - trouble.for_ms,
            hint="what is broken is in the error; the driver goes on by itself once it is mended",
        )
        for trouble in _troubles(rebuild)
    ]


def _silence(context: Context, rebuild: RebuildRecord, subject: str) -> list[Problem]:
    silent = silent_ms(context, rebuild)
    if silent is None or not context.attention.listened_for(context.limits.takeover_seconds, context.clock()):
        return []
    driver = driver_of(rebuild.driver)
    left_seconds = max(0, rebuild.lease_until_ms - context.clock()) // 1000
    where = f"pid {driver.pid} on {driver.host}" + (f", log {driver.log}" if driver.log else "")
    told = f"the driver of rebuild {rebuild.id} of {subject} ({where}) has not been heard for {silent // 1000} s"
    return [
        Problem(
            what=f"{told}; in {left_seconds} s the rebuild fails",
            since_ms=_heard_at_ms(context, rebuild),
            hint=f"anew rebuild resume {rebuild.id}, or: anew rebuild kill {rebuild.id}",
        )
    ]


def note_failure(of: Subject, name: str, rebuild_id: str, error: str, now_ms: int) -> PutFlag:
    """Keep that a rebuild of a store or table failed; part of the transaction that ends it."""
    kept = {"rebuild": rebuild_id, "error": error.partition("\n")[0][:_MOST_CHARACTERS], "at_ms": now_ms}
    return PutFlag(f"{_FAILED}{of}/{name}", json.dumps(kept))


def forget_failure(of: Subject, name: str) -> PutFlag:
    """A later rebuild of the same subject went well: part of the transaction that ends it."""
    return PutFlag(f"{_FAILED}{of}/{name}", None)


def see_failure(context: Context, rebuild_id: str, actor: str) -> dict[str, Any]:
    """Somebody has seen that a rebuild failed: it is no problem any more; the same again changes nothing.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    if context.catalog.rebuild(rebuild_id) is None and context.catalog.table_rebuild(rebuild_id) is None:
        raise NotFound(
            "unknown_rebuild", f"there is no rebuild {rebuild_id}", found=rebuild_id, hint="anew rebuild list"
        )

    def see() -> None:
        for flag, kept in context.catalog.flags().items():
            if flag.startswith(_FAILED) and json.loads(kept)["rebuild"] == rebuild_id:
                _, _, name = flag.removeprefix(_FAILED).partition("/")
                operation = context.operation("failure seen", name, actor, rebuild=rebuild_id)
                # Only this failure: a newer one that came meanwhile was not seen.
                context.catalog.commit(Change(operation, (SwapFlag(flag, kept, None),)))

    again_on_conflict(see)
    return {"rebuild": rebuild_id, "seen": True}


def failure_problems(context: Context) -> list[Problem]:
    """Rebuilds that failed, until somebody has seen it, a later one went well, or the time for it is over."""
    return [
        Problem(
            what=f"rebuild {failure['rebuild']} of {name} failed: {failure['error']}",
            since_ms=failure["at_ms"],
            hint="anew rebuild show {0}; once it is understood: anew rebuild seen {0}".format(failure["rebuild"]),
        )
        for name, failure in _unseen(context)
    ]


def failed_subjects(context: Context) -> list[str]:
    """The stores and tables of `failure_problems`."""
    return list(dict.fromkeys(name for name, _ in _unseen(context)))


def _unseen(context: Context) -> list[tuple[str, dict[str, Any]]]:
    """Names, and what is kept of the failures; a store and a table may have the same one."""
    failures = _failures(context)
    if not failures:
        return []
    since_ms = {f"store/{s.name}": max(s.created_at_ms, _sealed_ms(s)) for s in context.catalog.stores()}
    since_ms |= {f"table/{table.name}": table.created_at_ms for table in context.catalog.tables()}
    oldest_ms = context.clock() - int(context.limits.failure_shown_seconds * 1000)
    return [
        (of.partition("/")[2], failure)
        for of, failure in failures.items()
        if of in since_ms and failure["at_ms"] >= max(oldest_ms, since_ms[of])
    ]


def _sealed_ms(store: Store) -> int:
    """When the newest version was begun that went, or may go, into service; 0 without one."""
    sealed = [version for version in store.versions if not SERVABLE.isdisjoint(version.statuses.values())]
    return max((version.created_at_ms for version in sealed if version.manifest is not None), default=0)


def _failures(context: Context) -> dict[str, dict[str, Any]]:
    flags = context.catalog.flags()
    return {name.removeprefix(_FAILED): json.loads(value) for name, value in flags.items() if name.startswith(_FAILED)}


def _heard_at_ms(context: Context, rebuild: RebuildRecord) -> int:
    return rebuild.lease_until_ms - int(context.limits.lease_seconds * 1000)
