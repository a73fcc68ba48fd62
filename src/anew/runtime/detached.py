"""Starting and ending a home's cluster from outside: what is asked for, a supervisor of its own, waiting for it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from anew.core.errors import AnewError, Failed, PartlyDone, Refused
from anew.runtime.home import ClusterFile, Home, using_home
from anew.runtime.security import check_server, cluster_credentials
from anew.runtime.settings import ProcessSettings
from anew.runtime.supervisor import STOP_SECONDS, check_ports, server_environment

_READY_SECONDS = 60.0
_LOG_LINES = 200
_NOTE = re.compile(r"nanobind:|\s*- leaked|\s*- \.\.\.|\s*$")
"""What the bindings of DuckDB print of objects that are alive when a process ends: of no meaning to anybody."""


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
    named = ClusterFile(fabric, bind, port, {}, 0, {}, removed=() if before is None else before.removed)
    for node in [] if before is None else list(before.nodes)[:count]:
        named = named.with_node(node)
    while len(named.nodes) < count:
        named = named.with_node(named.next_node())
    check_server(settings, bind)
    advertise, tls = settings.optional("advertise"), bool(settings.optional("tls_certificate"))
    return replace(named, advertise=advertise if advertise else "", tls=tls)


def start_detached(home: Home, planned: ClusterFile) -> subprocess.Popen[bytes]:
    """Start a supervisor of its own, which outlives this process."""
    command = [sys.executable, "-m", "anew.runtime.supervise", json.dumps(asdict(planned))]
    with using_home(home.path):
        output = home.log_file("supervisor").with_suffix(".out").open("wb")
    with output:
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
        Failed: ``start_failed``, with the last that the processes said.
        PartlyDone: ``nodes_missing``: the cluster serves, and some nodes do not report.
    """
    # Here alone: it takes longer to import than a cluster takes to end.
    from anew.api.http import ControllerClient

    deadline, pause = time.monotonic() + _READY_SECONDS, threading.Event()
    alive: set[str] = set()
    wanted = set(cluster.nodes)
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
        # A node that turns out to have been removed is not waited for.
        now = home.read_cluster()
        wanted = set(cluster.nodes) - set(() if now is None else now.removed)
        if alive >= wanted:
            return
        pause.wait(0.1)
    missing = sorted(wanted - alive)
    if alive:
        raise PartlyDone(
            "nodes_missing",
            f"the cluster is up, and {', '.join(missing)} did not report within {_READY_SECONDS:g} s",
            found=_last_words(home, missing),
            expected="nodes that report",
            hint=f"anew status; look into {home.path / 'logs'}; for good: anew node drain {missing[0]} --force, then "
            f"anew node remove {missing[0]}",
        )
    raise Failed(
        "start_failed",
        "the cluster did not start",
        found=_last_words(home, ["supervisor", "controller", *missing]),
        expected="a controller that answers and nodes that report",
        hint=f"look into {home.path / 'logs'}",
    )


def add_node(home: Home, settings: ProcessSettings, node: str) -> None:
    """Start a node in a running cluster, under a new name or one that was removed, and wait until it reports.

    Raises:
        Unreachable: ``no_cluster``.
        InvalidRequest: ``bad_node``.
        Refused: ``port_in_use``.
        Failed: ``node_not_started``.
    """
    from anew.api.http import ControllerClient

    cluster = home.running()
    grown = cluster.with_node(node)
    if node not in cluster.nodes:
        check_ports(replace(grown, nodes={node: grown.nodes[node]}), with_controller=False)
    deadline, pause = time.monotonic() + _READY_SECONDS, threading.Event()
    with ControllerClient(cluster.url, credentials=cluster_credentials(settings, home)) as client:
        while time.monotonic() < deadline:
            if any(found.alive and found.id == node for found in client.nodes()):
                return
            # Again and again: the process that was removed may take a moment to end.
            home.ask_for_node(node)
            pause.wait(0.2)
    raise Failed(
        "node_not_started",
        f"{node} does not report",
        found=_last_words(home, ["supervisor", node]),
        expected=f"a report within {_READY_SECONDS:g} s",
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
    for sent, seconds in ((signal.SIGTERM, STOP_SECONDS + 10), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            return True
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while time.monotonic() < deadline:
            if not home.is_held():
                _await_end(pid)
                _say_stopped(home)
                return True
            pause.wait(0.05)
    raise Failed("stop_failed", "the cluster does not stop", found=f"process {pid}", expected="no process")


def _say_stopped(home: Home) -> None:
    """Where the supervisor did not come to say itself that it was stopped."""
    cluster = home.read_cluster()
    if cluster is not None and cluster.supervisor:
        home.write_cluster(replace(cluster, supervisor=0, pids={}))


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


def _last_words(home: Home, processes: Sequence[str]) -> str:
    """What each of the processes said last that says why it does not run; notes of libraries at their end do not."""
    words = []
    for process in processes:
        log = home.log_file(process)
        events = [_trouble(line) for line in _lines(log)[-_LOG_LINES:]]
        printed = [line for line in _lines(log.with_suffix(".out")) if not _NOTE.match(line)]
        said = [*printed[-1:], *filter(None, events)]
        words += [f"{process}: {said[-1]}"] if said else []
    return "; ".join(words) if words else "nothing was printed"


def _trouble(line: str) -> str | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if event.get("level") not in {"warning", "error", "critical"}:
        return None
    return f"{event.get('event')}: {event['error']}" if "error" in event else str(event.get("event"))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.is_file() else []
