"""The node as a process: everything wired, until SIGTERM."""

from __future__ import annotations

import fcntl
import gc
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

import structlog

from anew.api.gate import Gate
from anew.api.http import ControllerClient
from anew.api.location import LogLocation
from anew.api.models import DesiredState, LoopTrouble, NodeReport
from anew.api.reach import Reach, name_in
from anew.api.security import NOBODY, OPEN_SERVER, Credentials, ServerSecurity
from anew.core.errors import AnewError, Refused
from anew.log.interface import Log
from anew.log.open import open_log
from anew.loops.guarded import Loops, Trouble
from anew.loops.processes import import_beforehand
from anew.node.exits import REMOVED
from anew.node.keeping import read_desired, save_desired
from anew.node.loader import AT_SIDE, Loader
from anew.node.metrics import registry_of
from anew.node.server import Faces, NodeApp, NodeServer
from anew.node.stores.engine import Collaborators, Engine, NodeIdentity
from anew.node.stores.reads import Reads
from anew.node.stores.verifyhttp import VerifyFace
from anew.node.tables.cache import SegmentCache
from anew.node.tables.copyface import CopyFace
from anew.node.tables.hosting import SegmentHost
from anew.node.tables.queryface import QueryFace
from anew.node.tables.querying import TableQueries
from anew.sql.pool import QueryPool
from anew.sql.query import Limits
from anew.storage.memory import MIB, NodeMemory

REPORT_SECONDS = 0.5
_STILL_MS = 2_000
"""How long a report that says nothing new is not repeated; a controller misses a node after three times as long."""
_POLL_ANSWER_SECONDS = 5.0
_AWAY_SECONDS = 0.5
_SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter from a reader; Python's own 5 ms is a hundred reads."""

_QUERY_LIMITS = Limits(memory_bytes=1024 * MIB, seconds=60.0, rows=1_000_000, threads=2)

_log = structlog.get_logger("anew.node")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node needs to know.

    Attributes:
        url: Where others reach it; made of address and port when empty.
        removal_grace_seconds: How long a replica that is no longer desired is kept.
        security: Whom it lets in, and how.
        credentials: Who it is to the controller.
        query_limits: What each query over tables may use.
        query_processes: How many of them run at once.
        segment_cache_bytes: How much is kept of segments that other nodes host.
    """

    node: str
    fabric: str
    directory: Path
    controller_url: str
    address: str
    port: int
    clock: Callable[[], int]
    url: str = ""
    cache_bytes: int = 256 * MIB
    write_buffer_bytes: int = 64 * MIB
    removal_grace_seconds: float = 3.0
    security: ServerSecurity = OPEN_SERVER
    credentials: Credentials = NOBODY
    query_limits: Limits = _QUERY_LIMITS
    query_processes: int = 2
    segment_cache_bytes: int = 4 * 1024 * MIB

    @property
    def scheme(self) -> str:
        """How its address begins."""
        return "http" if self.security.certificate is None else "https"


class Controller(Protocol):
    """What a node asks of a controller; see `anew.api.http.ControllerClient`."""

    def desired(self, node: str, fabric: str, after: int = -1, wait_seconds: float = 0.0) -> DesiredState | None:
        """What the node should hold, or None."""

    def report(self, request: NodeReport) -> None:
        """What the node holds."""


class ControllerLink:
    """Two threads between engine and controller: one polls the desired state, one reports."""

    def __init__(
        self, controller: Controller, engine: Engine, settings: NodeSettings, segments: SegmentHost | None = None
    ) -> None:
        self._controller, self._engine, self._settings = controller, engine, settings
        self._segments = segments
        self._kept = settings.directory / "desired.json"
        self._unkept: DesiredState | None = None
        self._has_asked = False
        self._away = False
        self._reported: NodeReport | None = None
        self._last: NodeReport | None = None
        self._reported_at_ms = 0
        self.on_removed: Callable[[], None] = lambda: None
        """Called when the controller says that the node was removed."""
        self._stopped = threading.Event()
        desired = engine.loops.loop("desired state")
        report = engine.loops.loop("report")
        report.on_failure = self._report_trouble
        self._threads = [
            threading.Thread(target=lambda: desired.run(self._poll, self._stopped), name="desired", daemon=True),
            threading.Thread(target=lambda: report.run(self._report, self._stopped), name="report", daemon=True),
        ]

    def start(self) -> None:
        """Take what was kept of the last run, then keep in touch."""
        self.take_kept()
        for thread in self._threads:
            thread.start()

    def take_kept(self) -> None:
        """Take the desired state that was kept of the last run."""
        kept = read_desired(self._kept)
        if kept is not None:
            self._accept(kept)

    def poll(self, wait_seconds: float) -> None:
        """Ask once for a newer desired state, which the controller may wait for.

        Raises:
            AnewError: The controller does not answer, or refuses.
            OSError: The disk does not keep what was taken; it is asked for on all the same, and kept the next time.
        """
        node, fabric = self._settings.node, self._settings.fabric
        seconds = wait_seconds if self._unkept is None else 0.0
        # What was kept may name a log or a deep store that is elsewhere by now, under the same revision.
        known = self._engine.revision if self._has_asked else -1
        desired = self._controller.desired(node, fabric, known, seconds)
        self._has_asked = True
        if desired is not None and self._accept(desired):
            self._unkept = desired
        if self._unkept is not None:
            save_desired(self._kept, self._unkept)
            self._unkept = None

    def report(self) -> None:
        """Report, unless the controller heard the same a moment ago; dead letters are told once.

        Raises:
            AnewError: As `poll`.
        """
        report = self._engine.report()
        if self._segments is not None:
            report = report.model_copy(update={"segments": self._segments.report()})
        now_ms = self._settings.clock()
        self._last = report
        if report == self._reported and 0 <= now_ms - self._reported_at_ms < _STILL_MS:
            return
        # Of a report that fails nobody knows whether it was heard.
        self._reported = None
        self._controller.report(report)
        self._reported, self._reported_at_ms = report, now_ms
        self._engine.dead_letters.reported(report.dead_letters)

    def stop(self) -> None:
        """End soon; a poll under way is left behind."""
        self._stopped.set()
        self._engine.changed.set()

    def _accept(self, desired: DesiredState) -> bool:
        taken = self._engine.accept(desired)
        if taken and self._segments is not None:
            self._segments.accept(desired)
        return taken

    def _poll(self) -> None:
        try:
            self.poll(_POLL_ANSWER_SECONDS)
            if self._away:
                _log.info("controller_back")
            self._away = False
        except AnewError as error:
            if not self._away:
                _log.warning("controller_away", error=str(error))
            self._away = True
            self._stopped.wait(_AWAY_SECONDS)

    def _report(self) -> None:
        self._engine.changed.wait(REPORT_SECONDS)
        self._engine.changed.clear()
        try:
            self.report()
        except AnewError as error:
            _log.debug("report_failed", error=str(error))
            if error.code == "node_removed":
                # Not one more report: the controller may be told meanwhile to take the node again, by a new process.
                self._stopped.set()
                self.on_removed()
            self._stopped.wait(_AWAY_SECONDS)

    def _report_trouble(self, trouble: Trouble) -> None:
        """No report can be made: say that, with what was reported last.

        Raises:
            AnewError: The controller does not answer.
        """
        if self._last is not None:
            self._controller.report(self._last.model_copy(update={"loops": (LoopTrouble(**asdict(trouble)),)}))


class Node:
    """A running node: `start` it, and `stop` it once."""

    def __init__(
        self, settings: NodeSettings, controller: Controller, on_removed: Callable[[], None] = lambda: None
    ) -> None:
        settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock_directory(settings.directory)
        url = settings.url if settings.url else f"{settings.scheme}://{settings.address}:{settings.port}"
        identity = NodeIdentity(
            settings.node,
            settings.fabric,
            url,
            settings.directory,
            settings.clock(),
            settings.removal_grace_seconds,
        )
        self._stopped = threading.Event()
        self._loops = loops = Loops(settings.clock)
        self._loader = Loader("loader", loops)
        memory = NodeMemory(settings.cache_bytes, settings.write_buffer_bytes)

        def opened(location: LogLocation) -> Log:
            return open_log(location, clock=settings.clock)

        self.engine = Engine(identity, Collaborators(memory, self._loader, opened, settings.clock, loops=loops))
        # A loader of its own: a segment need not wait for a store's load, nor the other way round.
        self._segment_loader = Loader("loader of segments", loops)
        self.segments = SegmentHost(
            settings.directory / "segments", self._segment_loader, self.engine.changed.set, loops=loops
        )
        self.reads = Reads(lambda: self.engine.picture, settings.node)
        verify = VerifyFace(self.engine.verifications, lambda: self.engine.picture)
        security = settings.security
        gate = Gate(security.tokens, settings.clock)
        self._queries = _queries(settings, self.segments)
        query = QueryFace(self._queries, gate)
        registry = registry_of(self.engine, self.reads, self.segments, query)
        faces = Faces(self.reads, verify, query, CopyFace(self.segments, gate), registry, self.engine.why_not_ready)
        reach = Reach(settings.address, {*security.names, *filter(None, [name_in(url)])})
        app = NodeApp(faces, gate, reach)
        self._server = NodeServer(app, settings.address, settings.port, security)
        self._link = ControllerLink(controller, self.engine, settings, self.segments)
        self._link.on_removed = on_removed

    def start(self) -> None:
        """Serve, apply and report.

        Raises:
            Failed: ``cannot_listen``.
        """
        self._loops.watch(self._stopped)
        self._server.start()
        self.engine.start()
        self._link.start()
        self.segments.start()

    def stop(self) -> None:
        """End everything: no more answers, positions saved, loader ended."""
        self._stopped.set()
        self._link.stop()
        self._server.stop()
        self._loader.close()
        self._segment_loader.close()
        self._queries.close()
        self.segments.stop()
        self.engine.stop()
        self._lock.close()


def run_node(settings: NodeSettings) -> int:
    """Run a node in this process until SIGTERM or SIGINT, or until the controller says that it was removed.

    Returns:
        The process's exit code: 0, or `REMOVED`.

    Raises:
        Refused: ``directory_in_use``.
        Failed: ``cannot_listen``, ``file_limit_too_low``.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Queries may come before loads: the helper starts with whichever process is needed first.
    import_beforehand(*AT_SIDE)
    ended, removed = threading.Event(), threading.Event()

    def leave() -> None:
        _log.info("node_removed", node=settings.node)
        removed.set()
        ended.set()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with ControllerClient(settings.controller_url, credentials=settings.credentials) as controller:
        node = Node(settings, controller, leave)
        try:
            node.start()
            # What is there now stays: looking through it for garbage takes tens of milliseconds, in which nobody reads.
            gc.collect()
            gc.freeze()
            _log.info("node_started", node=settings.node, port=settings.port, directory=str(settings.directory))
            ended.wait()
        finally:
            node.stop()
    _log.info("node_stopped", node=settings.node)
    return REMOVED if removed.is_set() else 0


def _queries(settings: NodeSettings, segments: SegmentHost) -> TableQueries:
    spill = settings.directory / "query-spill"
    spill.mkdir(mode=0o700, exist_ok=True)
    cache = SegmentCache(settings.directory / "segment-cache", settings.segment_cache_bytes, segments.is_read)
    pool = QueryPool(processes=settings.query_processes, spill_directory=str(spill))
    return TableQueries(segments, pool, cache, settings.query_limits)


def _lock_directory(directory: Path) -> IO[str]:
    """Keep other processes out of the directory for as long as this one lives.

    Raises:
        Refused: ``directory_in_use``.
    """
    file = (directory / "node.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise Refused(
            "directory_in_use",
            "another node works in this directory",
            found=str(directory),
            expected="a directory of its own for each node",
            hint="stop the other node, or choose another directory",
        ) from None
    return file
