"""The controller's metrics, made from the catalog at each scrape: nothing is counted twice or forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from anew.controller.context import Context
from anew.controller.views import status_view


class _StatusCollector:
    """Turns the status into gauges."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauges of this moment."""
        status = status_view(self._context)
        yield GaugeMetricFamily("anew_healthy", "1 when nothing is unhealthy", value=float(status.healthy))
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
            letters.add_metric([store["name"]], store["dead_letters"])
            stale.add_metric([store["name"]], float(store["stale"]))
            for fabric, view in store["fabrics"].items():
                lag.add_metric([store["name"], fabric], view["lag_records"])
                current.add_metric([store["name"], fabric], view["current"])
        yield from (lag, current, letters, stale)
        running = GaugeMetricFamily("anew_rebuilds_running", "Rebuilds that have not ended", value=len(status.rebuilds))
        yield running


def registry_of(context: Context) -> CollectorRegistry:
    """A registry that reads the catalog when it is scraped."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(context))
    return registry
