"""How far the replicas of a version that is being loaded are, by what nodes say of them."""

from __future__ import annotations

from dataclasses import dataclass

from anew.api.models import NodeReport, ReplicaReport, ReplicaState
from anew.controller.context import Context
from anew.controller.nodes import live_reports, replicas_of
from anew.core.partition import feed_partitions_read
from anew.core.partitioners import XXHASH64
from anew.core.rebuild import Progress, Rebuild, Stage
from anew.core.store import Store, Version


@dataclass(frozen=True, slots=True)
class Readiness:
    """How far the replicas of a version are.

    Attributes:
        caught_up: Every replica is at or past the target and within the lag limits (rule R17).
        errors: Replicas that gave up, with the reason.
        why: What is still missing, with rates.
        replicas: How many replicas there are to be.
        to_load: How many of them do not hold the whole base yet.
        behind: How many hold it and are not at the target, or at none while there is none.
    """

    caught_up: bool
    errors: tuple[str, ...]
    why: str
    replicas: int
    to_load: int
    behind: int

    @property
    def loaded(self) -> bool:
        """Every replica holds the whole base."""
        return self.to_load == 0


def judge(store: Store, version: Version, fabric: str, reports: list[NodeReport]) -> Readiness:
    """How far a version is in one fabric, by the last reports of its live nodes."""
    found = replicas_of(reports, store, version)
    missing, waiting, errors = [], [], []
    for partition, nodes in version.assignment.get(fabric, {}).items():
        for node in nodes:
            replica = found.get((node, partition))
            name = f"{node}/{partition}"
            if replica is None or replica.state in (ReplicaState.PENDING, ReplicaState.LOADING):
                missing.append(name)
            elif replica.state is ReplicaState.ERROR:
                errors.append(f"{name}: {replica.error}")
            elif not _replica_ready(store, version, partition, replica):
                waiting.append(f"{name}: {replica.lag_records} records behind at {replica.records_per_s:.0f} records/s")
    to_load = len(missing) + len(errors)
    caught_up = not to_load and not waiting and version.ready_target is not None
    why = f"{len(missing)} replicas not loaded, {len(waiting)} behind: {'; '.join((missing + waiting)[:5])}"
    replicas = sum(map(len, version.assignment.get(fabric, {}).values()))
    return Readiness(caught_up, tuple(errors), why, replicas, to_load, len(waiting))


def _replica_ready(store: Store, version: Version, partition: int, replica: ReplicaReport) -> bool:
    if version.ready_target is None:
        return False
    for feed in store.feeds_of(version):
        alike = feed.partitioner == version.config.partitioner == XXHASH64
        needed = set(feed_partitions_read(partition, version.config.partitions, feed.partitions, alike=alike))
        for at in feed.feed_partitions():
            if at.partition in needed and replica.position.get(at, -1) < version.ready_target.get(at, 0):
                return False
    within_records = replica.lag_records <= version.config.lag_limit_records
    return within_records and replica.lag_ms <= version.config.lag_limit_seconds * 1000


def load_progress(context: Context, rebuild: Rebuild) -> Progress:
    """How far a rebuild is: once its base is sealed, how many replicas have loaded it, then how many have caught up."""
    # First, without a look at the catalog: most rebuilds of a list have ended.
    if rebuild.ended or rebuild.stage not in (Stage.LOAD, Stage.SWAP):
        return rebuild.progress
    store = context.catalog.store_by_uid(rebuild.store_uid)
    version = None if store is None else store.version(rebuild.version)
    if store is None or version is None:
        return rebuild.progress
    reports = live_reports(context, version.statuses)
    found = [judge(store, version, fabric, reports[fabric]) for fabric in version.statuses]
    total, to_load = sum(f.replicas for f in found), sum(f.to_load for f in found)
    if version.ready_target is None:
        return Progress(done=total - to_load, total=total, unit="replicas loaded")
    return Progress(done=total - to_load - sum(f.behind for f in found), total=total, unit="replicas caught up")
