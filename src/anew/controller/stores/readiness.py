"""How far the replicas of a version that is being loaded are, by what nodes say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anew.api.models import NodeReport
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import live_reports
from anew.controller.stores.replicas import replicas_of
from anew.core.feed import PositionMap
from anew.core.integrity import OF_THE_BASE, OF_THE_LOG
from anew.core.partition import feed_partitions_read
from anew.core.partitioners import XXHASH64
from anew.core.rebuild import Progress, Stage
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import SERVABLE, Store, Version


@dataclass(frozen=True, slots=True)
class Readiness:
    """How far the replicas of a version are.

    Attributes:
        caught_up: Every replica is at or past the target and within the lag limits (rule R17).
        errors: Replicas that cannot be made anywhere, with the reason: their base is not what its manifest says.
        sick: Replicas that gave up for reasons of their node, with the reason: another node may do better.
        why: What is still missing, with rates.
        replicas: How many replicas there are to be.
        to_load: How many of them do not hold the whole base yet.
        behind: How many hold it and are not at the target, or at none while there is none.
    """

    caught_up: bool
    errors: tuple[str, ...]
    sick: tuple[str, ...]
    why: str
    replicas: int
    to_load: int
    behind: int

    @property
    def loaded(self) -> bool:
        """Every replica holds the whole base."""
        return self.to_load == 0


def judge(
    store: Store, version: Version, fabric: str, reports: list[NodeReport], target: PositionMap | None = None
) -> Readiness:
    """How far a version is in one fabric, by the last reports of its live nodes; ``target`` None: the one it has."""
    found, there = replicas_of(reports, store, version), version.fabrics[fabric]
    target = there.ready_target if target is None else target
    missing, waiting, errors, sick = list[str](), list[str](), list[str](), list[str]()
    for partition, nodes in there.assignment.items():
        for node in nodes:
            replica = found.get((node, partition))
            name = f"{node}/{partition}"
            if replica is None or replica.state in (ReplicaState.PENDING, ReplicaState.LOADING):
                missing.append(name)
            elif replica.state is ReplicaState.ERROR:
                # What is loaded has a position: then it is a feed that is lost, and not a base that lies in a topic.
                of_feed = replica.error_code in OF_THE_LOG and len(replica.position) > 0
                of_base = replica.error_code in OF_THE_BASE and not of_feed
                (errors if of_base else sick).append(f"{name}: {replica.error}")
            elif not _replica_ready(store, version, target, partition, replica):
                waiting.append(f"{name}: {replica.lag_records} records behind at {replica.records_per_s:.0f} records/s")
    to_load = len(missing) + len(errors) + len(sick)
    caught_up = not to_load and not waiting and target is not None
    why = f"{len(missing) + len(sick)} replicas not loaded, {len(waiting)} behind: "
    why += "; ".join((sick + missing + waiting)[:5])
    replicas = sum(map(len, there.assignment.values()))
    return Readiness(caught_up, tuple(errors), tuple(sick), why, replicas, to_load, len(waiting))


@dataclass(frozen=True, slots=True)
class Coverage:
    """What live nodes hold of a version, whatever is asked of one that becomes current.

    Attributes:
        missing: Partitions of which no node has a replica that answers: their keys could not be read.
        thin: How many of the replicas that nodes are to hold are not loaded.
        arriving: How many of the loaded ones have not been at the ends yet: nobody knows how far they lag.
        lag_records: Of the loaded replica that is furthest behind; ``lag_ms`` likewise.
    """

    missing: tuple[int, ...]
    thin: int
    lag_records: int
    lag_ms: int
    arriving: int = 0

    def is_ready(self, version: Version) -> bool:
        """Whether all replicas are loaded, have been at the ends, and are within the version's lag limits."""
        return within_lag_limits(self, version) and not self.thin and not self.arriving


def coverage(store: Store, version: Version, fabric: str, reports: list[NodeReport]) -> Coverage:
    """What could be read of a version in one fabric if it were current now."""
    return coverage_of(replicas_of(reports, store, version), version, fabric)


def coverage_of(found: Mapping[tuple[str, int], ReplicaReport], version: Version, fabric: str) -> Coverage:
    """The same, of the version's replicas by node and partition."""
    missing, thin, arriving, lags = [], 0, 0, [(0, 0)]
    for partition, nodes in version.fabrics[fabric].assignment.items():
        replicas = [found[node, partition] for node in nodes if (node, partition) in found]
        loaded = [replica for replica in replicas if is_loaded(replica)]
        thin += len(nodes) - len(loaded)
        arriving += sum(not replica.arrived for replica in loaded)
        if loaded:
            lags.append(max((replica.lag_records, replica.lag_ms) for replica in loaded))
        if all(replica.fresh for replica in loaded):
            missing.append(partition)
    records, milliseconds = max(lag for lag, _ in lags), max(lag for _, lag in lags)
    return Coverage(tuple(missing), thin, records, milliseconds, arriving)


def is_loaded(replica: ReplicaReport) -> bool:
    """Whether a replica is open: it applies, or has stopped where it was. A fresh one answers no reads yet."""
    return replica.state is ReplicaState.APPLYING or (replica.state is ReplicaState.ERROR and bool(replica.position))


def _replica_ready(
    store: Store, version: Version, target: PositionMap | None, partition: int, replica: ReplicaReport
) -> bool:
    if target is None:
        return False
    for feed in store.feeds_of(version):
        alike = feed.partitioner == version.config.partitioner == XXHASH64
        needed = set(feed_partitions_read(partition, version.config.partitions, feed.partitions, alike=alike))
        for at in feed.feed_partitions():
            if at.partition in needed and replica.position.get(at, -1) < target.get(at, 0):
                return False
    return within_lag_limits(replica, version)


def within_lag_limits(found: ReplicaReport | Coverage, version: Version) -> bool:
    """Whether a replica, or the worst of all, is no further behind than its version allows."""
    within_records = found.lag_records <= version.config.lag_limit_records
    return within_records and found.lag_ms <= version.config.lag_limit_seconds * 1000


def load_progress(context: Context, rebuild: StoreRebuild) -> Progress:
    """How far a rebuild is: once its base is sealed, how many replicas have loaded it, then how many have caught up."""
    # First, without a look at the catalog: most rebuilds of a list have ended.
    if rebuild.ended or rebuild.stage not in (Stage.LOAD, Stage.SWAP):
        return rebuild.progress
    store = context.catalog.store_by_uid(rebuild.store_uid)
    version = None if store is None else store.version(rebuild.version)
    if store is None or version is None:
        return rebuild.progress
    loading = version.where(SERVABLE)
    if not loading:
        return rebuild.progress
    reports = live_reports(context, loading)
    found = [judge(store, version, fabric, reports[fabric]) for fabric in loading]
    total, to_load = sum(f.replicas for f in found), sum(f.to_load for f in found)
    if any(version.fabrics[fabric].ready_target is None for fabric in loading):
        return Progress(done=total - to_load, total=total, unit="replicas loaded")
    return Progress(done=total - to_load - sum(f.behind for f in found), total=total, unit="replicas caught up")
