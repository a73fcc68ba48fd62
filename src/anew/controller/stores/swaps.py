"""Swap and rollback as somebody asks for them, fabric by fabric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import structlog

from anew.api.errors import ErrorDetail
from anew.api.stores.requests import RollBack, Swap
from anew.api.stores.views import Held, Moved, SwapAnswer
from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import fabric_named
from anew.controller.engine.nodes import live_reports
from anew.controller.stores.readiness import coverage
from anew.controller.stores.records import change_store, store_named
from anew.core.errors import AnewError, Refused
from anew.core.stores import lifecycle
from anew.core.stores.store import Store

_LOG = structlog.get_logger("anew.controller")


def swap(context: Context, name: str, request: Swap, actor: str) -> SwapAnswer:
    """Make a version current in the fabrics; returns what was done where.

    Raises:
        NotFound: ``unknown_store``, ``unknown_version``.
        Refused: ``already_current``, ``bad_transition``, ``feeds_missing``, ``not_ready`` when no fabric could be
            swapped.
    """
    store = store_named(context, name)
    lifecycle.existing(store, request.version)
    targets = dict.fromkeys(_fabrics(context, store, request.fabrics), request.version)
    return _move(context, store, targets, lifecycle.swap, _Asked("swap", request.dry_run, request.force, actor))


def roll_back(context: Context, name: str, request: RollBack, actor: str) -> SwapAnswer:
    """Go back to a version, the newest backup unless one is named; returns what was done where.

    Raises:
        NotFound: ``unknown_store``, ``unknown_version``.
        Refused: ``no_backup``, ``already_current``, ``bad_transition``, ``not_loaded`` when no fabric could be rolled
            back.
    """
    store = store_named(context, name)
    if request.to is not None:
        lifecycle.existing(store, request.to)
    targets = {
        fabric: lifecycle.rollback_target(store, fabric) if request.to is None else request.to
        for fabric in _fabrics(context, store, request.fabrics)
    }
    return _move(
        context, store, targets, lifecycle.roll_back, _Asked("rollback", request.dry_run, request.force, actor)
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, by whom."""

    what: str
    dry_run: bool
    force: bool
    actor: str


def _move(
    context: Context, store: Store, targets: dict[str, int], change: lifecycle.Swapper, asked: _Asked
) -> SwapAnswer:
    """Move each fabric on its own, so that one that cannot does not hold up the others."""
    done: dict[str, Moved] = {}
    loaded: dict[str, Held] = {}
    failed: dict[str, AnewError] = {}
    for fabric, number in targets.items():
        before = store.current.get(fabric, 0)
        try:
            now_ms = context.clock()
            # What can never be is refused before what nodes lack just now.
            change(store, number, fabric, now_ms)
            held = _check_held(context, store, number, fabric, asked)
            if not asked.dry_run:
                detail = {"fabric": fabric, "from": before, "to": number}
                operation = context.operation(asked.what, store.name, asked.actor, **detail)
                change_store(context, store.uid, operation, partial(_moved, change, number, fabric, now_ms))
                _LOG.info("store_swapped", what=asked.what, store=store.name, **detail)
            done[fabric] = Moved(before=before, after=number)
            loaded[fabric] = held
        except AnewError as error:
            failed[fabric] = error
    if not done:
        raise next(iter(failed.values()))
    return SwapAnswer(
        store=store.name,
        dry_run=asked.dry_run,
        done=done,
        loaded=loaded,
        failed={fabric: ErrorDetail(**error.to_json()) for fabric, error in failed.items()},
    )


def _check_held(context: Context, store: Store, number: int, fabric: str, asked: _Asked) -> Held:
    """What nodes hold of the version that would become current.

    A rollback is for incidents: lag and missing replicas are shown and do not stop it. A swap asks for what the swap at
    the end of a rebuild asks for.

    Raises:
        Refused: ``not_loaded``: keys could not be read; ``not_ready``: a swap to a version that has not caught up.
    """
    version = lifecycle.existing(store, number)
    reports = live_reports(context, (fabric,))[fabric]
    found = coverage(store, version, fabric, reports)
    name = version.name_in(store.name)
    if found.missing and not asked.force:
        raise Refused(
            "not_loaded",
            f"no node in {fabric} answers reads of {len(found.missing)} partitions of {name}",
            found=f"partitions {', '.join(map(str, found.missing[:10]))}",
            expected="of each partition a replica that is loaded and was once at the ends of the feeds",
            hint="wait until nodes have it: anew status; --force: keys of these partitions cannot be read then",
        )
    if asked.what == "swap" and not asked.force and not found.is_ready(version):
        raise Refused(
            "not_ready",
            f"{name} is not ready in {fabric}",
            found=f"{found.thin} replicas not loaded, {found.arriving} on their way to the ends of the feeds, "
            f"{found.lag_records} records and {found.lag_ms} ms behind",
            expected="every replica loaded, once at the ends, and within the lag limits",
            hint="wait: anew status; --force: readers may see older values, or have fewer replicas",
        )
    return Held(replicas_missing=found.thin, lag_records=found.lag_records, lag_seconds=found.lag_ms / 1000)


def _moved(change: lifecycle.Swapper, number: int, fabric: str, now_ms: int, store: Store) -> tuple[Store, tuple[()]]:
    return change(store, number, fabric, now_ms), ()


def _fabrics(context: Context, store: Store, asked: tuple[str, ...]) -> tuple[str, ...]:
    for fabric in asked:
        fabric_named(context, fabric)
    return asked if asked else store.fabrics
