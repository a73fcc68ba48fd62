"""What nodes hold of stores: the orders for each, and its reports, a partition's sub-partitions as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from anew.api.models import NodeReport
from anew.api.stores.replicas import DesiredStore, DesiredVersion, ReplicaReport, ReplicaState
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import live_reports
from anew.core.feed import FeedPartition, PositionMap
from anew.core.stores.store import SERVABLE, ManifestRef, Store, Version, VersionInFabric


def desired_stores(context: Context, node: str, fabric: str) -> tuple[DesiredStore, ...]:
    """The fabric's stores of which a node is to hold something."""
    stores = (_desired_store(store, node, fabric) for store in context.catalog.stores())
    return tuple(store for store in stores if store.versions)


def reached_position(context: Context, store: Store, fabric: str) -> PositionMap:
    """Up to where every replica of the fabric's current version has applied each feed partition that it reads.

    Empty while a replica does not report.
    """
    version = store.version(store.current.get(fabric, 0))
    if version is None:
        return PositionMap()
    found = replicas_of(live_reports(context, (fabric,))[fabric], store, version)
    wanted = [(node, p) for p, nodes in version.fabrics[fabric].assignment.items() for node in nodes]
    if any(replica not in found for replica in wanted):
        return PositionMap()
    reached: dict[FeedPartition, int] = {}
    for replica in wanted:
        for at, offset in found[replica].position.items():
            reached[at] = min(offset, reached.get(at, offset))
    return PositionMap(reached)


class IndexedReports(list[NodeReport]):
    """Reports of which many versions are asked for: each replica is looked at once, and not for every version again.

    It is not changed once it is made.
    """

    _of_versions: dict[tuple[str, int], list[tuple[str, ReplicaReport]]] | None = None

    def of_version(self, store_uid: str, number: int) -> list[tuple[str, ReplicaReport]]:
        """What each node reports of a version, in the order of the reports."""
        if self._of_versions is None:
            index: dict[tuple[str, int], list[tuple[str, ReplicaReport]]] = defaultdict(list)
            for report in self:
                for replica in report.replicas:
                    index[replica.store_uid, replica.version].append((report.node, replica))
            self._of_versions = index
        return self._of_versions.get((store_uid, number), [])


def indexed(found: Mapping[str, list[NodeReport]]) -> dict[str, list[NodeReport]]:
    """Fabric → its reports, to be asked about many versions."""
    return {fabric: IndexedReports(reports) for fabric, reports in found.items()}


def replicas_of(found: list[NodeReport], store: Store, version: Version) -> dict[tuple[str, int], ReplicaReport]:
    """(node, partition) → report, of one version; a partition's sub-partitions are reported as one.

    A partition of which not all sub-partitions are reported is left out.
    """
    reports = found if isinstance(found, IndexedReports) else IndexedReports(found)
    parts: dict[tuple[str, int], list[ReplicaReport]] = defaultdict(list)
    for node, replica in reports.of_version(store.uid, version.number):
        parts[node, replica.partition].append(replica)
    factor = version.config.amplification_factor
    return {key: _as_one(subs) for key, subs in parts.items() if len(subs) == factor}


_WORST_FIRST = (ReplicaState.ERROR, ReplicaState.PENDING, ReplicaState.LOADING, ReplicaState.APPLYING)


def _as_one(subs: list[ReplicaReport]) -> ReplicaReport:
    """A partition as far as the least of its sub-partitions is."""
    if len(subs) == 1:
        return subs[0]
    errors = [f"sub-partition {sub.sub_partition}: {sub.error}" for sub in subs if sub.error is not None]
    position: dict[FeedPartition, int] = {}
    for sub in subs:
        for at, offset in sub.position.items():
            position[at] = min(offset, position.get(at, offset))
    return subs[0].model_copy(
        update={
            "state": min((sub.state for sub in subs), key=_WORST_FIRST.index),
            "position": PositionMap(position),
            "store_revision": min(sub.store_revision for sub in subs),
            "lag_records": sum(sub.lag_records for sub in subs),
            "lag_ms": max(sub.lag_ms for sub in subs),
            "rows": sum(sub.rows for sub in subs),
            "records_per_s": sum(sub.records_per_s for sub in subs),
            "error": "; ".join(errors) if errors else None,
            "error_code": next((sub.error_code for sub in subs if sub.error_code is not None), None),
            "stuck_ms": max(sub.stuck_ms for sub in subs),
            "arrived": all(sub.arrived for sub in subs),
            "fresh": any(sub.fresh for sub in subs),
        }
    )


def _desired_store(store: Store, node: str, fabric: str) -> DesiredStore:
    versions = []
    for version in store.versions:
        there = version.fabrics.get(fabric)
        if there is None or there.manifest is None or there.status not in SERVABLE:
            continue
        partitions = tuple(partition for partition, nodes in there.assignment.items() if node in nodes)
        if partitions:
            versions.append(_desired_version(version, there, there.manifest, partitions))
    return DesiredStore(
        uid=store.uid,
        name=store.name,
        revision=store.revision,
        current=store.current.get(fabric, 0),
        key_schema=store.key_schema,
        schemas=store.schemas,
        feeds=store.feeds,
        reads=store.config.reads,
        versions=tuple(versions),
    )


def _desired_version(
    version: Version, there: VersionInFabric, manifest: ManifestRef, partitions: tuple[int, ...]
) -> DesiredVersion:
    return DesiredVersion(
        number=version.number,
        config=version.config,
        feeds=version.feeds,
        start=there.start,
        stop=version.stop,
        ttl_floor_ms=version.ttl_floor_ms,
        tombstone_floor_ms=version.tombstone_floor_ms,
        manifest=manifest,
        partitions=partitions,
    )
