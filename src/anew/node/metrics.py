"""A node's metrics, collected when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.tables.segments import SegmentReport, SegmentState
from anew.node.stores.engine import Engine
from anew.node.stores.reads import Reads
from anew.node.tables.hosting import SegmentHost
from anew.node.tables.queryface import QueryFace


class _NodeCollector(Collector):
    def __init__(self, engine: Engine, reads: Reads) -> None:
        self._engine, self._reads = engine, reads

    def collect(self) -> Iterator[Metric]:
        """All metrics of the node."""
        reads = CounterMetricFamily("anew_reads", "Keys read, by store and outcome", labels=["store", "outcome"])
        for (store, outcome), times in self._reads.counts.times.copy().items():
            reads.add_metric([store, outcome], times)
        yield reads
        report = self._engine.report()
        yield from _replica_metrics(report.replicas)
        applied = CounterMetricFamily("anew_applied_records", "Feed records applied to replicas")
        applied.add_metric([], self._engine.applied)
        yield applied
        dead = CounterMetricFamily("anew_dead_letters", "Records that no version applies")
        dead.add_metric([], self._engine.dead_letters.total)
        yield dead
        failures = CounterMetricFamily("anew_loop_failures", "Steps of a loop that failed", labels=["loop"])
        for loop, count in self._engine.loops.failed_steps().items():
            failures.add_metric([loop], count)
        yield failures
        faults = GaugeMetricFamily("anew_node_fault", "1 for what is wrong with the node as a whole", labels=["code"])
        for fault in report.faults:
            faults.add_metric([fault.code], 1.0)
        yield faults
        revision = GaugeMetricFamily("anew_desired_revision", "Revision of the desired state that the node works to")
        revision.add_metric([], self._engine.revision)
        yield revision


def _replica_metrics(replicas: tuple[ReplicaReport, ...]) -> Iterator[Metric]:
    # A partition may be kept as several instances: without their number several samples would have the same labels.
    labels = ["store_uid", "version", "partition", "sub_partition"]
    states = GaugeMetricFamily("anew_replica_state", "1 for the state that a replica is in", labels=[*labels, "state"])
    records = GaugeMetricFamily("anew_feed_lag_records", "Records between a replica and its feeds' ends", labels=labels)
    seconds = GaugeMetricFamily("anew_feed_lag_seconds", "Age of the oldest record not applied", labels=labels)
    for replica in replicas:
        name = [replica.store_uid, str(replica.version), str(replica.partition), str(replica.sub_partition)]
        for state in ReplicaState:
            states.add_metric([*name, state.value], float(replica.state is state))
        records.add_metric(name, replica.lag_records)
        seconds.add_metric(name, replica.lag_ms / 1000)
    yield from (states, records, seconds)


class TableCollector(Collector):
    """What a node has and answers of tables."""

    def __init__(self, segments: SegmentHost, queries: QueryFace) -> None:
        """Read from these at each scrape."""
        self._segments, self._queries = segments, queries

    def collect(self) -> Iterator[Metric]:
        """The metrics of the node's segments, and of what is asked of it."""
        yield from _copy_metrics(self._segments.report())
        queries = CounterMetricFamily("anew_queries", "Queries over tables, by outcome", labels=["outcome"])
        for outcome, times in self._queries.counts.copy().items():
            queries.add_metric([outcome], times)
        yield queries


def _copy_metrics(copies: tuple[SegmentReport, ...]) -> Iterator[Metric]:
    labels = ["table_uid", "state"]
    states = GaugeMetricFamily("anew_segment_copies", "Segments that the node is to hold, by state", labels=labels)
    rebuilt = CounterMetricFamily(
        "anew_segment_rebuilt_rows", "Rows that the node wrote again by itself", labels=["table_uid"]
    )
    of_tables: dict[str, list[SegmentReport]] = {}
    for copy in copies:
        of_tables.setdefault(copy.table_uid, []).append(copy)
    for uid, found in of_tables.items():
        for state in SegmentState:
            states.add_metric([uid, state.value], sum(copy.state is state for copy in found))
        rebuilt.add_metric([uid], sum(copy.rebuilt_rows for copy in found))
    yield from (states, rebuilt)


def registry_of(engine: Engine, reads: Reads, segments: SegmentHost, queries: QueryFace) -> CollectorRegistry:
    """The registry of one node."""
    registry = CollectorRegistry()
    registry.register(_NodeCollector(engine, reads))
    registry.register(TableCollector(segments, queries))
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """The text that Prometheus reads."""
    return generate_latest(registry)
