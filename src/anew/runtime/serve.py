"""The entry of the cluster's processes: ``python -m anew.runtime.serve controller`` or ``… node NAME``.

Each imports its own libraries alone: a node no database, a controller no RocksDB, neither of them pandas.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import structlog

from anew.runtime.clock import now_ms
from anew.runtime.home import ClusterFile, Home
from anew.runtime.logs import log_to_file
from anew.runtime.security import check_server, cluster_credentials, keep_files_private, server_security
from anew.runtime.settings import ProcessSettings, resolve
from anew.runtime.starting import imports_kept, keep_pandas_out

_LOG = structlog.get_logger("anew.runtime")
_PARENT_SECONDS = 0.5


def main(arguments: list[str]) -> int:
    """Run one process until SIGTERM, or until its parent is gone."""
    keep_files_private()
    settings = resolve({})
    home = Home(settings.home)
    cluster = home.read_cluster()
    if cluster is None:
        raise SystemExit(f"no cluster was planned in {home.path}")
    name = "controller" if arguments[0] == "controller" else arguments[1]
    log_to_file(home.log_file(name), name, settings.text("log_level"))
    end_with_any_thread()
    _end_with_parent()
    check_server(settings, cluster.bind)
    if arguments[0] == "controller":
        serve_controller(settings, home, cluster)
    else:
        return serve_node(settings, home, cluster, arguments[1])
    return 0


def serve_controller(settings: ProcessSettings, home: Home, cluster: ClusterFile) -> None:
    """Run the controller of a home."""
    with imports_kept():
        from anew.controller.process import run_controller
        from anew.runtime.controlling import controller_context

    with controller_context(settings, home, cluster) as context:
        run_controller(context, cluster.bind, cluster.port, server_security(settings, home))


def serve_node(settings: ProcessSettings, home: Home, cluster: ClusterFile, node: str) -> int:
    """Run one node of a home; returns the exit code of its process."""
    with imports_kept():
        from anew.node.process import NodeSettings, run_node
        from anew.sql.query import Limits

    return run_node(
        NodeSettings(
            node=node,
            fabric=cluster.fabric,
            directory=home.node(node),
            controller_url=cluster.url,
            address=cluster.bind,
            port=cluster.nodes[node],
            clock=now_ms,
            url=cluster.node_url(node),
            security=server_security(settings, home),
            credentials=cluster_credentials(settings, home),
            query_limits=Limits(
                memory_bytes=settings.number("query_memory_bytes"),
                seconds=float(settings.number("query_seconds")),
                rows=settings.number("query_rows"),
                threads=settings.number("query_threads"),
            ),
            segment_cache_bytes=settings.number("segment_cache_bytes"),
        )
    )


def end_with_any_thread() -> None:
    """A thread that ends by an error takes the process along: half of a node that looks alive is worse than none.

    Each thread handles what it expects, and logs what it does not; the supervisor starts the process again.
    """

    def end(ended: threading.ExceptHookArgs) -> None:
        name = None if ended.thread is None else ended.thread.name
        _LOG.critical("thread_ended", thread=name, exc_info=ended.exc_value)
        os._exit(1)

    threading.excepthook = end


def _end_with_parent() -> None:
    """Leave no orphan: when the supervisor is gone, however it went, end like on SIGTERM."""
    parent = os.getppid()

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


if __name__ in {"__main__", "__mp_main__"}:
    # The second is the name by which the processes that a node spawns import this module.
    keep_pandas_out()

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
