"""What planners and clients need of a store: its snapshot at one moment, and who answers reads of which partition."""

from __future__ import annotations

from anew.api.stores.routing import RoutedVersion, Routing, SnapshotView
from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import fabric_named
from anew.controller.engine.nodes import live_reports, node_urls
from anew.controller.engine.records import rebuilds_of
from anew.controller.stores.feeds import ends_of, offsets_at
from anew.controller.stores.readiness import is_loaded
from anew.controller.stores.records import store_named
from anew.controller.stores.replicas import replicas_of
from anew.core.feed import FeedKind, PositionMap
from anew.core.plan import PACE_LOOKS_AT, pace_of
from anew.core.stores.jobfeeds import generations_of
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import SERVABLE, Store, Version


def snapshot(context: Context, name: str, at_ms: int | None) -> SnapshotView:
    """All that a plan depends on, read at one moment; with the feeds' offsets at a time when one is given.

    Raises:
        Unreachable: An end offset could not be read; it is never taken for "empty" (case B4).
    """
    store = store_named(context, name)
    # Before the ends: what is appended behind them gets a time that is not below this, by whatever clock; clocks that
    # are further apart than the skew limit are wrong (rules R6, R12).
    skew_ms = max((feed.skew_limit_ms for feed in store.feeds), default=0)
    read_until_ms = context.clock() - skew_ms
    of_jobs = [feed for feed in store.feeds if feed.kind is FeedKind.GENERATION]
    to_come_ms = dict[str, int]()
    for subject in context.subjects.all:
        to_come_ms |= subject.to_come_ms(context, of_jobs)
    past = rebuilds_of(context, store.uid, StoreRebuild, running_only=False, limit=PACE_LOOKS_AT)
    return SnapshotView(
        store=store,
        ends=ends_of(context.fabrics, store.feeds),
        at_time=NOT_ASKED if at_ms is None else offsets_at(context.fabrics, store.feeds, at_ms),
        base_files={v.number: v.manifest.files for v in store.versions if v.manifest is not None},
        pace=pace_of((each.ledger.read.count, each.records_per_s) for each in past if each.ledger is not None),
        now_ms=context.clock(),
        read_until_ms=read_until_ms,
        to_come_ms=to_come_ms,
    )


NOT_ASKED = PositionMap()


def routing(context: Context, name: str, fabric: str | None) -> Routing:
    """What a client caches: which node holds which partition of which version, and where writes go.

    Raises:
        InvalidRequest: ``unknown_fabric``.
    """
    store = store_named(context, name)
    chosen = fabric_named(context, fabric)
    versions = {
        version.number: RoutedVersion(
            partitions=version.config.partitions,
            partitioner=version.config.partitioner,
            config=version.config,
            replicas=_asked(context, store, version, chosen.name),
        )
        for version in store.versions
        if version.status_in(chosen.name) in SERVABLE
    }
    current = store.current.get(chosen.name, 0)
    here = (feed for feed in store.feeds if feed.fabric == chosen.name)
    ready = [feed for feed in here if feed.ready and feed.open and store.writable(feed)]
    return Routing(
        name=store.name,
        uid=store.uid,
        revision=store.revision,
        fabric=chosen.name,
        shares={current: 1.0} if current else {},
        key_schema=store.key_schema,
        schemas=store.schemas,
        versions=versions,
        nodes=node_urls(context),
        feed=ready[-1] if ready else None,
        fed_by=_fed_by(store, store.version(current)),
        log=chosen.log_location,
        reads=store.config.reads,
        writes=store.config.writes,
        max_value_bytes=store.config.max_value_bytes,
    )


def _fed_by(store: Store, version: Version | None) -> tuple[str, ...]:
    return () if version is None else tuple(generations_of(store.feeds_of(version)))


def _asked(context: Context, store: Store, version: Version, fabric: str) -> dict[int, tuple[str, ...]]:
    """Partition → who is asked for it. A successor is, once it has been at the ends of what it reads.

    With the base alone it would take readers back, and show them what was deleted.
    """
    held, wanted = version.fabrics[fabric].assignment, version.config.replicas
    if all(len(nodes) <= wanted for nodes in held.values()):
        return dict(held)
    found = replicas_of(live_reports(context, (fabric,))[fabric], store, version)
    well = {place for place, replica in found.items() if replica.arrived and is_loaded(replica)}
    return {
        partition: nodes
        if len(nodes) <= wanted
        else tuple(node for node in nodes if (node, partition) in well) or nodes
        for partition, nodes in held.items()
    }
