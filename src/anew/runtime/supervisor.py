"""``anew up``: starts controller and nodes as processes, starts them again when they die, ends them all at the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType

import structlog

from anew.core.errors import InvalidRequest, Refused
from anew.loops.guarded import Loops
from anew.node.exits import REMOVED
from anew.runtime.driverprocesses import end_job_drivers
from anew.runtime.home import ClusterFile, Home
from anew.runtime.processgroups import end_group
from anew.runtime.security import check_server, write_cluster_token
from anew.runtime.settings import ProcessSettings

_LOG = structlog.get_logger("anew.supervisor")
STOP_SECONDS = 15.0
_WATCH_SECONDS = 0.2
_HELPERS_SECONDS = 2.0
"""Of processes at the side of controller and nodes: see their pipes end, and end themselves."""
_BACKOFF_SECONDS = (0.2, 1.0, 5.0, 10.0)
SOUND_SECONDS = 10.0
"""A process that lived for so long did not die of its start: it is started again at once."""


@dataclass(slots=True)
class _Child:
    """A process that should live."""

    name: str
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    started: float = 0.0
    not_before: float = 0.0


@dataclass(slots=True)
class Supervisor:
    """The embedded cluster of one home."""

    settings: ProcessSettings
    cluster: ClusterFile
    home: Home
    _children: list[_Child] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _loops: Loops = field(default_factory=lambda: Loops(lambda: int(time.time() * 1000)))
    _is_unwritten: bool = False

    def run(self) -> None:
        """Keep all processes alive until SIGTERM or SIGINT.

        Raises:
            Refused: ``already_up``, ``port_in_use``, ``open_bind``, ``file_not_private``.
            InvalidRequest: As `check_server`.
        """
        check_server(self.settings, self.cluster.bind)
        with self.home.lock():
            check_ports(self.cluster)
            self.home.write_cluster(self.cluster)
            write_cluster_token(self.settings, self.home)
            self._install_signals()
            self._children = [_Child("controller", ["controller"])]
            self._children += [_Child(node, ["node", node]) for node in self.cluster.nodes]
            try:
                while not self._stopping.is_set():
                    self._turn()
                    self._stopping.wait(_WATCH_SECONDS)
            finally:
                self._stop_all()
                if self._stopping.is_set():
                    self._loops.loop("drivers").turn(self._end_drivers)
                    self._loops.loop("cluster file").turn(partial(self.home.write_cluster, self.cluster))

    def stop(self) -> None:
        """End `run` soon."""
        self._stopping.set()

    def _turn(self) -> None:
        """Look after each process once. What one meets, as a full disk, ends neither the others nor the cluster."""
        self._loops.loop("nodes asked for").turn(self._take_asked)
        for child in list(self._children):
            pause_seconds = self._loops.loop(child.name).turn(partial(self._keep_alive, child))
            if pause_seconds:
                child.not_before = time.monotonic() + pause_seconds
        if self._is_unwritten:
            self._loops.loop("cluster file").turn(self._write_cluster)

    def _install_signals(self) -> None:
        def on_signal(_signal: int, _frame: FrameType | None) -> None:
            self._stopping.set()

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_signal)
            signal.signal(signal.SIGINT, on_signal)

    def _take_asked(self) -> None:
        """Add the nodes that `Home.ask_for_node` asked for."""
        for node in self.home.asked_nodes():
            if node in self.cluster.nodes:
                continue
            try:
                self.cluster = self.cluster.with_node(node)
            except InvalidRequest as error:
                _LOG.warning("node_not_added", node=node, error=str(error))
                continue
            _LOG.info("node_added", node=node)
            self._children.append(_Child(node, ["node", node]))
            self._is_unwritten = True

    def _forget(self, child: _Child) -> None:
        """A node that was removed ended by itself: it is not started again, now or by the next ``anew up``."""
        _LOG.info("node_removed", node=child.name)
        self._children.remove(child)
        self.cluster = self.cluster.without_node(child.name)
        self._is_unwritten = True

    def _write_cluster(self) -> None:
        pids = {c.name: c.process.pid for c in self._children if c.process is not None}
        self.home.write_cluster(replace(self.cluster, supervisor=os.getpid(), pids=pids))
        self._is_unwritten = False

    def _keep_alive(self, child: _Child) -> None:
        if child.process is not None and child.process.poll() is None:
            return
        if child.process is not None and child.process.returncode == REMOVED:
            self._forget(child)
            return
        if child.process is not None:
            if time.monotonic() - child.started >= SOUND_SECONDS:
                child.starts = 1
            wait = _BACKOFF_SECONDS[min(child.starts - 1, len(_BACKOFF_SECONDS) - 1)]
            _LOG.warning("process_ended", name=child.name, code=child.process.returncode, again_in_seconds=wait)
            child.process, child.not_before = None, time.monotonic() + wait
        if time.monotonic() < child.not_before:
            return
        child.process = self._spawn(child)
        child.starts += 1
        child.started = time.monotonic()
        self._is_unwritten = True
        _LOG.info("process_started", name=child.name, pid=child.process.pid)

    def _spawn(self, child: _Child) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "anew.runtime.serve", *child.arguments]
        output = self.home.log_file(child.name).with_suffix(".out").open("ab")
        with output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=server_environment(self.home),
                start_new_session=True,
            )

    def _end_drivers(self) -> None:
        ended = end_job_drivers(self.home.path / "logs")
        if ended:
            _LOG.info("drivers_ended", pids=ended)

    def _stop_all(self) -> None:
        alive = [child.process for child in self._children if child.process is not None]
        for process in alive:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in alive:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _LOG.warning("process_killed", pid=process.pid)
                process.kill()
                process.wait()
        deadline = time.monotonic() + _HELPERS_SECONDS
        for process in alive:
            end_group(process.pid, deadline)


def check_ports(cluster: ClusterFile, *, with_controller: bool = True) -> None:
    """Raise when a port of the cluster's nodes, or also of its controller, is taken.

    Raises:
        Refused: ``port_in_use``.
    """
    controller = {"controller": cluster.port} if with_controller else {}
    for name, port in {**controller, **cluster.nodes}.items():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((cluster.bind, port))
            except OSError as error:
                raise Refused(
                    "port_in_use",
                    f"the {name} cannot listen on {cluster.bind}:{port}",
                    found=error.strerror,
                    expected="a free port",
                    hint="choose others: anew up --port N (the nodes take the ports after it)",
                ) from error


def child_environment(home: Home) -> dict[str, str]:
    """This process's environment, for a process that works in the home."""
    return {**os.environ, "ANEW_HOME": str(home.path)}


def server_environment(home: Home) -> dict[str, str]:
    """`child_environment` without the user's own token, which is no business of servers."""
    own = ("ANEW_TOKEN", "ANEW_TOKEN_FILE")
    return {name: value for name, value in child_environment(home).items() if name not in own}
