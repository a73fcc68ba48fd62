"""The controller's metrics, made from the catalog at each scrape: nothing is counted twice or forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from anew.api.tables.views import TableView
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import failed_subjects
from anew.controller.status import status_view


class _StatusCollector:
    """Turns the status into gauges."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterable[Metric]:
        """The gauges of this moment."""
        status = status_view(self._context)
        failures = CounterMetricFamily("anew_loop_failures", "Steps of a loop that failed", labels=["loop"])
        for loop, count in self._context.loops.failed_steps().items():
            failures.add_metric([loop], count)
        yield failures
        yield GaugeMetricFamily("anew_healthy", "1 when nothing is unhealthy", value=float(status.healthy))
        yield GaugeMetricFamily("anew_problems", "What the status names as unhealthy", value=len(status.problems))
        alive = GaugeMetricFamily("anew_node_alive", "1 when the node reports", labels=["node", "fabric"])
        for node in status.nodes:
            alive.add_metric([node.id, node.fabric], float(node.alive))
        yield alive
        lag = GaugeMetricFamily(
            "anew_feed_lag_records", "Largest lag of the current version", labels=["store", "fabric"]
        )
        current = GaugeMetricFamily("anew_current_version", "The version that serves", labels=["store", "fabric"])
        letters = GaugeMetricFamily("anew_dead_letters", "Records that no version applies", labels=["store"])
        stale = GaugeMetricFamily("anew_store_stale", "1 when a setting waits for a new version", labels=["store"])
        for store in status.stores:
            letters.add_metric([store.name], store.dead_letters)
            stale.add_metric([store.name], float(store.stale))
            for fabric, view in store.fabrics.items():
                lag.add_metric([store.name, fabric], view.lag_records)
                current.add_metric([store.name, fabric], view.current)
        yield from (lag, current, letters, stale)
        yield from _of_tables(status.tables)
        running = GaugeMetricFamily("anew_rebuilds_running", "Rebuilds that have not ended", value=len(status.rebuilds))
        yield running
        silent = sum(rebuild.driver.silent_ms is not None for rebuild in status.rebuilds)
        yield GaugeMetricFamily("anew_rebuilds_silent", "Rebuilds whose driver has not been heard", value=silent)
        failed = GaugeMetricFamily(
            "anew_rebuild_failed", "1 when a failed rebuild was not seen yet", labels=["subject"]
        )
        for name in failed_subjects(self._context):
            failed.add_metric([name], 1.0)
        yield failed


def _of_tables(tables: Iterable[TableView]) -> Iterable[GaugeMetricFamily]:
    told = {
        "segments": GaugeMetricFamily("anew_table_segments", "Segments in the deep store", labels=["table"]),
        "stale": GaugeMetricFamily(
            "anew_table_stale_segments", "Segments that are not as the configuration wants them", labels=["table"]
        ),
        "failed": GaugeMetricFamily(
            "anew_table_failed_segments", "Stale segments whose last try failed", labels=["table"]
        ),
        "rows": GaugeMetricFamily("anew_table_rows", "Rows of all segments", labels=["table"]),
        "bytes": GaugeMetricFamily("anew_table_bytes", "Size of all segments in the deep store", labels=["table"]),
    }
    for table in tables:
        for name, gauge in told.items():
            gauge.add_metric([table.name], getattr(table, name))
    return told.values()


def registry_of(context: Context) -> CollectorRegistry:
    """A registry that reads the catalog when it is scraped."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(context))
    return registry
