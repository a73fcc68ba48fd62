"""The entry of the cluster's processes: ``python -m anew.runtime.serve controller`` or ``… node NAME``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from importlib.metadata import version

from anew.api.models import LogLocation
from anew.catalog.database import DatabaseCatalog
from anew.controller.context import Context, Fabric, Limits
from anew.controller.process import run_controller
from anew.deepstore.open import open_deep_store
from anew.log.open import open_log
from anew.node.process import NodeSettings, run_node
from anew.runtime.clock import new_id, now_ms
from anew.runtime.home import ClusterFile, Home
from anew.runtime.logs import log_to_file
from anew.runtime.scheduled import launcher
from anew.runtime.settings import ProcessSettings, resolve

_PARENT_SECONDS = 0.5


def main(arguments: list[str]) -> int:
    """Run one process until SIGTERM, or until its parent is gone."""
    settings = resolve({})
    home = Home(settings.home)
    cluster = home.read_cluster()
    if cluster is None:
        raise SystemExit(f"no cluster was planned in {home.path}")
    name = "controller" if arguments[0] == "controller" else arguments[1]
    log_to_file(home.log_file(name), name, settings.text("log_level"))
    _end_with_parent()
    if arguments[0] == "controller":
        serve_controller(settings, home, cluster)
    else:
        serve_node(settings, home, cluster, arguments[1])
    return 0


def serve_controller(settings: ProcessSettings, home: Home, cluster: ClusterFile) -> None:
    """Run the controller of a home."""
    catalog = DatabaseCatalog(home.catalog_url, timeout_seconds=settings.number("timeout_seconds"))
    log = open_log("embedded", str(home.log(cluster.fabric)), clock=now_ms, durable=settings.flag("log_durable"))
    deep_store = home.deep_store(cluster.fabric)
    deep_store.mkdir(parents=True, exist_ok=True)
    fabric = Fabric(
        name=cluster.fabric,
        log=log,
        log_location=LogLocation(kind="embedded", address=str(home.log(cluster.fabric))),
        deep_store=open_deep_store(str(deep_store)),
    )
    limits = Limits(
        lease_seconds=settings.number("lease_seconds"),
        node_alive_seconds=settings.number("node_alive_seconds"),
        node_lost_seconds=settings.number("node_lost_seconds"),
        ready_deadline_seconds=settings.number("ready_deadline_seconds"),
        reclaim_grace_seconds=settings.number("reclaim_grace_seconds"),
        low_water_interval_seconds=settings.number("low_water_interval_seconds"),
        repush_source_wait_seconds=settings.number("repush_source_wait_seconds"),
        scheduled_rebuilds=settings.number("scheduled_rebuilds"),
    )
    launch = launcher(cluster.url, home.path / "logs")
    context = Context(catalog, {fabric.name: fabric}, now_ms, new_id, limits, version("anew"), launch)
    try:
        run_controller(context, cluster.bind, cluster.port)
    finally:
        log.close()
        catalog.close()


def serve_node(settings: ProcessSettings, home: Home, cluster: ClusterFile, node: str) -> None:
    """Run one node of a home."""
    run_node(
        NodeSettings(
            node=node,
            fabric=cluster.fabric,
            directory=home.node(node),
            controller_url=cluster.url,
            address=cluster.bind,
            port=cluster.nodes[node],
            clock=now_ms,
        )
    )


def _end_with_parent() -> None:
    """Leave no orphan: when the supervisor is gone, however it went, end like on SIGTERM."""
    parent = os.getppid()

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
