"""Starting and ending a home's cluster from outside: what is asked for, a supervisor of its own, waiting for it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from anew.core.errors import AnewError, Failed, Refused
from anew.runtime.home import ClusterFile, Home
from anew.runtime.security import check_server, cluster_credentials
from anew.runtime.settings import ProcessSettings
from anew.runtime.supervisor import STOP_SECONDS, server_environment

_READY_SECONDS = 60.0


def planned_cluster(settings: ProcessSettings, home: Home, fabrics: tuple[str, ...]) -> ClusterFile:
    """The cluster that the settings ask for; what they leave open is as the last ``anew up`` had it.

    Raises:
        Refused: ``not_supported_yet``: more than one fabric; ``open_bind``, ``file_not_private``.
        InvalidRequest: As `check_server`.
    """
    if len(fabrics) > 1:
        raise Refused(
            "not_supported_yet", "several fabrics are not supported yet", found=fabrics, expected="one --fabric"
        )
    before = home.read_cluster()
    port = settings.number("port") if before is None or settings.was_given("port") else before.port
    bind = settings.text("bind") if before is None or settings.was_given("bind") else before.bind
    count = settings.number("nodes") if before is None or settings.was_given("nodes") else len(before.nodes)
    fabric = fabrics[0] if fabrics else ("dc-0" if before is None else before.fabric)
    if before is not None and fabric != before.fabric:
        raise Refused(
            "fabric_fixed",
            f"the home {home.path} holds another fabric",
            found=fabric,
            expected=before.fabric,
            hint="use another ANEW_HOME",
        )
    nodes = {f"node-{number}": port + number for number in range(1, count + 1)}
    check_server(settings, bind)
    advertise, tls = settings.optional("advertise"), bool(settings.optional("tls_certificate"))
    return ClusterFile(fabric, bind, port, nodes, 0, {}, advertise if advertise else "", tls)


def start_detached(home: Home, planned: ClusterFile) -> subprocess.Popen[bytes]:
    """Start a supervisor of its own, which outlives this process."""
    command = [sys.executable, "-m", "anew.runtime.supervise", json.dumps(asdict(planned))]
    with home.log_file("supervisor").with_suffix(".out").open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=server_environment(home),
            start_new_session=True,
        )


def wait_until_up(
    home: Home, cluster: ClusterFile, settings: ProcessSettings, starter: subprocess.Popen[bytes] | None
) -> None:
    """Wait until the controller answers and all nodes report.

    Raises:
        Failed: ``start_failed``, with the end of what the processes printed.
    """
    # Here alone: it takes longer to import than a cluster takes to end.
    from anew.api.http import ControllerClient

    deadline, pause = time.monotonic() + _READY_SECONDS, threading.Event()
    while time.monotonic() < deadline:
        if starter is not None and starter.poll() is not None:
            break
        try:
            # Anew each time: the cluster's token is made while this waits.
            credentials = cluster_credentials(settings, home)
            with ControllerClient(cluster.url, timeout_seconds=2, credentials=credentials) as client:
                alive = {node.id for node in client.nodes() if node.alive}
        except AnewError:
            alive = set()
        if alive >= set(cluster.nodes):
            return
        pause.wait(0.1)
    raise Failed(
        "start_failed",
        "the cluster did not start",
        found=_last_words(home.path / "logs"),
        expected="a controller that answers and nodes that report",
        hint=f"look into {home.path / 'logs'}",
    )


def stop(home: Home) -> bool:
    """End the cluster of a home; False when none runs.

    Raises:
        Failed: ``stop_failed``.
    """
    cluster = home.read_cluster()
    if cluster is None or not home.is_held():
        return False
    pid = int((home.path / "lock").read_text(encoding="utf-8").strip())
    for sent, seconds in ((signal.SIGTERM, STOP_SECONDS + 5), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            return True
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while time.monotonic() < deadline:
            if not home.is_held():
                _await_end(pid)
                return True
            pause.wait(0.05)
    raise Failed("stop_failed", "the cluster does not stop", found=f"process {pid}", expected="no process")


def _await_end(pid: int) -> None:
    """Wait until a supervisor that has let go of its home is gone itself, which takes a moment more."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):  # it is gone
        descriptor = os.pidfd_open(pid)
        try:
            select.select([descriptor], [], [], STOP_SECONDS)
        finally:
            os.close(descriptor)


def _last_words(logs: Path) -> str:
    words = []
    for path in sorted(logs.glob("*.out")):
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        words += [f"{path.stem}: {lines[-1]}"] if lines else []
    return "; ".join(words) if words else "nothing was printed"
