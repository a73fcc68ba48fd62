"""The shapes of the face: what ``--json`` prints of stores, rebuilds and the cluster's health."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anew.api.models import NodeReport, Problem
from anew.api.pages import MAX_ITEMS, Page, page_of
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.stores.views import (
    FabricView,
    PendingChange,
    ShownConfig,
    ShownFrozen,
    StoreDetail,
    StoreSchedule,
    StoreView,
    VersionView,
)
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import live_reports
from anew.controller.stores.readiness import coverage_of
from anew.controller.stores.replicas import indexed, replicas_of
from anew.controller.stores.schedule import decision_of, facts_of
from anew.core.condition import Facts
from anew.core.partitioners import is_custom
from anew.core.stores.lifecycle import existing, missing_feeds
from anew.core.stores.store import SERVABLE, Frozen, Store, Version, VersionStatus, pending_changes, source_digest


@dataclass(frozen=True, slots=True)
class Past:
    """Which versions a store is shown with.

    Attributes:
        number: Only this one, whatever else is asked for, unless None.
        below: Of those that were reclaimed only those with lesser numbers, unless None.
        limit: How many of those that were reclaimed, the greatest numbers.
    """

    number: int | None = None
    below: int | None = None
    limit: int = MAX_ITEMS


_NEWEST = Past()


def store_view(context: Context, store: Store, shown: Past = _NEWEST) -> StoreDetail:
    """The ``store`` shape, with past versions; with a number only that version is listed.

    Raises:
        NotFound: ``unknown_version``.
        Refused: ``version_gone``: it was reclaimed so long ago that nothing more is kept of it.
    """
    reports = live_reports(context, store.fabrics)
    number = shown.number
    below = shown.below if number is None else None
    found = context.catalog.past_versions(store.uid, shown.limit + 1, number=number, below=below)
    past = found[: shown.limit]
    if number is not None and not past:
        existing(store, number)
    versions = {version.number: version for version in (*past, *store.versions)}
    whole = store.model_copy(update={"versions": tuple(versions[of] for of in sorted(versions))})
    view = _store_view(whole, reports, context.catalog.dead_letter_counts().get(store.uid, 0), number)
    heard = [report for found in reports.values() for report in found]
    schedule = _schedule_view(context, store, heard)
    following = str(past[-1].number) if len(found) > shown.limit else None
    notes = (*view.notes, *_worth_sorting(store, facts_of(store, heard, context.clock())))
    return StoreDetail(**{**dict(view), "notes": notes}, schedule=schedule, next=following)


def _worth_sorting(store: Store, facts: Facts) -> Iterator[str]:
    """What a repush would gain by sorting: what feeds brought was applied record by record."""
    if facts.feed_records >= _MANY_UNSORTED and facts.unsorted_share > _MOSTLY:
        share = f"{facts.unsorted_share:.0%}"
        yield (
            f"{share} of what was read for the current version came through its feeds ({facts.feed_records} records) "
            "and is not sorted: a replica that is made anew applies all of it again; "
            f"to sort it: anew repush {store.name}"
        )


def _schedule_view(context: Context, store: Store, reports: list[NodeReport]) -> StoreSchedule | None:
    """What the schedule says now and why; None without one."""
    if store.config.repush_schedule is None:
        return None
    decision = decision_of(context, store, reports)
    state = decision.state
    return StoreSchedule(
        schedule=store.config.repush_schedule,
        when=store.config.repush_when,
        due_ms=decision.due_ms,
        next_ms=decision.next_ms,
        reasons=decision.reasons,
        failures=state.failures,
        under_way=state.request_id,
        held=store.schedule_held,
    )


def store_views(context: Context) -> list[StoreView]:
    """The ``store`` shape of every store."""
    reports = indexed(live_reports(context, context.fabrics))
    letters = context.catalog.dead_letter_counts()
    return [_store_view(store, reports, letters.get(store.uid, 0), None) for store in context.catalog.stores()]


def store_page(context: Context, after: str, limit: int) -> Page[StoreView]:
    """The ``store`` shape of some stores, the next ones by name."""
    reports = indexed(live_reports(context, context.fabrics))
    letters = context.catalog.dead_letter_counts()
    found = page_of(context.catalog.stores_page(after, limit + 1), limit, lambda store: store.name)
    shown = (_store_view(store, reports, letters.get(store.uid, 0), None) for store in found.items)
    return Page(items=tuple(shown), next=found.next)


def store_notes(store: Store) -> list[Problem]:
    """What was paused or held, or waits: as somebody asked for, so that it is not unhealthy, and easily forgotten."""
    notes, go_on = [], f"anew unpause --store {store.name}"
    if store.paused is not None:
        notes.append(Problem(what=f"{store.name} is paused: {store.paused}", since_ms=None, hint=go_on))
    if store.schedule_held is not None:
        what = f"scheduled repushes of {store.name} are held: {store.schedule_held}"
        notes.append(Problem(what=what, since_ms=None, hint=go_on))
    pending = pending_changes(store.config, _running_config(store))
    if pending and store.current and max(store.current.values()) > 0:
        what = f"{store.name} waits for a new version: {', '.join(change['setting'] for change in pending)}"
        notes.append(Problem(what=what, since_ms=None, hint=f"anew repush {store.name}"))
    return notes


def _running_config(store: Store) -> Frozen | None:
    running = store.version(max(store.current.values(), default=0))
    return None if running is None else running.config


def _store_view(store: Store, reports: dict[str, list[NodeReport]], dead_letters: int, number: int | None) -> StoreView:
    running = store.version(max(store.current.values(), default=0))
    pending = pending_changes(store.config, None if running is None else running.config)
    return StoreView(
        name=store.name,
        uid=store.uid,
        key_schema=store.key_schema,
        value_schema=store.schemas[store.newest_schema_id],
        key_schema_id=store.key_schema_id,
        value_schema_id=store.newest_schema_id,
        value_schemas={str(number): schema for number, schema in store.schemas.items()},
        config=ShownConfig.model_validate(_shown_config(store.config)),
        pending=tuple(PendingChange(**change) for change in pending),
        stale=bool(pending),
        paused=store.paused,
        notes=tuple(_notes(store)),
        dead_letters=dead_letters,
        fabrics={fabric: _fabric_view(store, fabric, reports.get(fabric, []), number) for fabric in store.fabrics},
    )


def _notes(store: Store) -> list[str]:
    """What the configuration costs, and what is held back."""
    notes = []
    if is_custom(store.config.partitioner) and store.feeds:
        few = math.gcd(store.config.partitions, store.config.rt_partitions)
        notes.append(
            f"under {store.config.partitioner} each replica reads all {store.config.rt_partitions} partitions of a "
            f"feed; under xxhash64 it would read {store.config.rt_partitions // few}"
        )
    if store.schedule_held is not None:
        go_on = f"anew unpause --store {store.name}"
        notes.append(f"scheduled repushes are held: {store.schedule_held}; to let them go on: {go_on}")
    return notes


def _fabric_view(store: Store, fabric: str, reports: list[NodeReport], number: int | None) -> FabricView:
    current = store.version(store.current.get(fabric, 0))
    shown = [v for v in store.versions if fabric in v.fabrics and number in (None, v.number)]
    lag_records, lag_seconds = (0, 0.0) if current is None else _lag(store, current, reports)
    return FabricView(
        current=store.current.get(fabric, 0),
        versions=tuple(_version_view(version, fabric, _lag(store, version, reports)) for version in shown),
        lag_records=lag_records,
        lag_seconds=lag_seconds,
    )


def _lag(store: Store, version: Version, reports: list[NodeReport]) -> tuple[int, float]:
    """How many records, and seconds, a version's replica is behind that is furthest; 0 where none reports."""
    replicas = replicas_of(reports, store, version).values()
    records = max((replica.lag_records for replica in replicas), default=0)
    return records, round(max((replica.lag_ms for replica in replicas), default=0) / 1000, 3)


def _shown_config(config: Frozen) -> dict[str, Any]:
    """The configuration with the source of a partitioner as its hash."""
    return config.model_dump() | {"partitioner_source": source_digest(config)}


def _version_view(version: Version, fabric: str, lag: tuple[int, float]) -> VersionView:
    there = version.fabrics[fabric]
    manifest = there.manifest
    lag_records, lag_seconds = lag
    return VersionView(
        number=version.number,
        status=there.status,
        kind=version.kind,
        source_version=version.source_version,
        rows=None if manifest is None else manifest.rows,
        bytes=None if manifest is None else manifest.bytes,
        config=ShownFrozen.model_validate(_shown_config(version.config)),
        config_hash=version.config_hash,
        created_at=version.created_at_ms,
        rebuild=version.rebuild,
        error=there.error,
        start=there.start,
        lag_records=lag_records,
        lag_seconds=lag_seconds,
    )


_MANY_UNSORTED, _MOSTLY = 100_000, 0.5
"""From so many records on, and above that share of all, a note says that a repush would sort them."""
_FEW = 10
_PATIENCE_MS = 60_000
"""What fails or waits for longer is told."""


def store_problems(store: Store, reports: dict[str, list[NodeReport]]) -> list[Problem]:
    """What is unhealthy about a store: topics that are not there, replicas that fail, versions that wait."""
    problems = [
        Problem(what=f"the topic of {feed.id} is not made yet", since_ms=None, hint="is the log there? anew doctor")
        for feed in store.feeds
        if not feed.ready
    ]
    problems += [
        Problem(
            what=f"the topic of {feed.id} has {feed.partitions_in_log} partitions, and was made with {feed.partitions}",
            since_ms=None,
            hint="nobody reads the others: let producers use the first ones, and write again what lies in the others",
        )
        for feed in store.feeds
        if feed.partitions_in_log is not None
    ]
    for version in store.versions:
        for fabric, there in version.fabrics.items():
            if there.status in SERVABLE:
                problems += _replica_problems(store, version, fabric, reports.get(fabric, []))
            is_behind = store.current.get(fabric, 0) < version.number and version.has({VersionStatus.CURRENT})
            if there.status is VersionStatus.FAILED and is_behind:
                problems.append(_behind_problem(store, version, fabric))
            if there.status is VersionStatus.DEFERRED:
                problems.append(_waiting_problem(store, version, fabric))
    return problems


def _behind_problem(store: Store, version: Version, fabric: str) -> Problem:
    """A fabric in which a version failed that serves in another one."""
    there, serves = version.fabrics[fabric], store.current.get(fabric, 0)
    return Problem(
        what=f"{version.name_in(store.name)} failed in {fabric}, which serves version {serves}: {there.error}",
        since_ms=there.since_ms,
        hint=f"anew repush {store.name} --target-fabrics {fabric}",
    )


def _stuck_problems(
    store: Store, version: Version, replicas: list[tuple[tuple[str, int], ReplicaReport]]
) -> list[Problem]:
    """Replicas that serve and have waited for longer than a moment: what they wait for is in no error of theirs."""
    stuck = [
        (replica.stuck_ms, node, partition, replica.error)
        for (node, partition), replica in replicas
        if replica.state is not ReplicaState.ERROR and replica.error_code is None and replica.stuck_ms > _PATIENCE_MS
    ]
    if not stuck:
        return []
    longest_ms, node, partition, error = max(stuck, key=lambda one: one[0])
    first = f"{version.name_in(store.name)}/{partition} on {node}"
    more = f" ({len(stuck) - 1} more)" if len(stuck) > 1 else ""
    return [
        Problem(
            what=f"{first} has not got on for {longest_ms // 1000} s: {error}{more}",
            since_ms=None,
            hint=f"anew store show {store.name}",
        )
    ]


def _waiting_problem(store: Store, version: Version, fabric: str) -> Problem:
    lacks, there = missing_feeds(store, version, fabric), version.fabrics[fabric]
    give_up = f"it lacks writes that {store.name} took since: anew rebuild kill {version.rebuild}"
    return Problem(
        what=f"{version.name_in(store.name)} waits to be swapped: {there.error}",
        since_ms=there.since_ms,
        hint=give_up if lacks else f"anew swap {store.name} {version.number}",
    )


def _replica_problems(store: Store, version: Version, fabric: str, reports: list[NodeReport]) -> list[Problem]:
    found, there = replicas_of(reports, store, version), version.fabrics[fabric]
    name, problems = version.name_in(store.name), _stuck_problems(store, version, list(found.items()))
    # Those of which no node reports a replica at all are told below.
    told = {partition for _, partition in found}
    missing = [partition for partition in coverage_of(found, version, fabric).missing if partition in told]
    if missing and there.status is VersionStatus.CURRENT:
        which = ", ".join(map(str, missing[:_FEW])) + (
            f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
        )
        problems.append(
            Problem(
                what=f"{name}: no node has loaded what can be read of partition {which}",
                since_ms=None,
                hint=f"anew store show {store.name}; anew node list",
            )
        )
    for partition, nodes in there.assignment.items():
        alive = [node for node in nodes if (node, partition) in found]
        # Not in the state error alone: one that waits for room on its disk does not answer either.
        broken = [n for n in alive if found[n, partition].state is ReplicaState.ERROR or found[n, partition].error_code]
        for node in broken:
            problems.append(
                Problem(
                    what=f"{name}/{partition} on {node}: {found[node, partition].error}",
                    since_ms=None,
                    hint=f"anew store show {store.name}",
                )
            )
        wanted = max(len(nodes), version.config.replicas)
        if there.status is VersionStatus.CURRENT and len(alive) < wanted:
            problems.append(
                Problem(
                    what=f"{name}/{partition} has {len(alive)} of {wanted} replicas",
                    since_ms=None,
                    hint="anew node list",
                )
            )
    return problems
