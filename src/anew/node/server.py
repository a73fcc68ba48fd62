"""The node's HTTP server: what it answers, and the socket that it listens on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from anew.api.gate import Gate
from anew.api.reach import Reach
from anew.api.rights import NODE_RIGHTS
from anew.api.security import OPEN_SERVER, ServerSecurity
from anew.api.strictness import check_content, check_parameters
from anew.api.tables.copy_wire import BYTES_PATH, COPY_PATH
from anew.core.errors import Failed, NotFound
from anew.node.exchange import Answer, Request, error_answer
from anew.node.http1 import App, Connection
from anew.node.metrics import exposition
from anew.node.stores.reads import Reads
from anew.node.stores.verifyhttp import VerifyFace, is_verification
from anew.node.tables.copyface import CopyFace
from anew.node.tables.queryface import QUERY_PATH, QueryFace

_STOP_SECONDS = 5.0
_CLOCK_SECONDS = 0.25
_BACKLOG = 1_024
"""Connections that wait to be taken, in the kernel."""
_STORES = "/v1/stores/"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_STORE, _KIND = 3, 6
"""Which parts of ``/v1/stores/{store}/versions/{version}/{kind}/…``, split at the strokes, they are."""

_log = structlog.get_logger("anew.node.http")


@dataclass(frozen=True, slots=True)
class Faces:
    """What a node answers with: reads, verifications, queries, copies of segments, metrics, and whether it is ready."""

    reads: Reads
    verify: VerifyFace
    query: QueryFace
    copies: CopyFace
    registry: CollectorRegistry
    why_not_ready: Callable[[], str | None]


class NodeApp:
    """Reads, verifications, health and metrics, for those whom the gate lets in."""

    def __init__(self, faces: Faces, gate: Gate, reach: Reach) -> None:
        self._reads, self._verify, self._query, self._copies = faces.reads, faces.verify, faces.query, faces.copies
        self._registry, self._why_not_ready = faces.registry, faces.why_not_ready
        self._gate, self._reach = gate, reach

    def check(self, request: Request) -> None:
        """See `anew.node.http1.App`: whether there is anything at the path, and whether the client may have it.

        Raises:
            NotFound: ``unknown_path``.
            AnewError: As `Reach.check`, `Gate.admit`, `check_parameters`, `check_content`.
        """
        self._reach.check(request.header("host"), request.header("origin"))
        path, store = request.path, None
        kind = path
        if path.startswith(_STORES):
            parts = path.split("/", _KIND + 1)
            kind, store = parts[_KIND] if len(parts) > _KIND else "", parts[_STORE]
        need = NODE_RIGHTS.get(kind)
        if need is None:
            raise NotFound(
                "unknown_path",
                "there is nothing at this path: a node answers here, no controller",
                found=path,
                expected="a path that nodes answer",
                hint="does the address (ANEW_URL) name the controller's port?",
            )
        if self._gate.is_closed:
            self._gate.admit(request.header("authorization"), need, store)
        if request.query:
            check_parameters(request.query.items(), need.query, need)
        if request.method in _WITH_BODY and _has_body(request):
            check_content(request.header("content-type"), need.content)

    def answer(self, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
        """See `anew.node.http1.App`."""
        path = request.path
        if path == QUERY_PATH:
            return self._query.answer(request)
        if path in (COPY_PATH, BYTES_PATH):
            return self._copies.answer(request)
        if not path.startswith(_STORES):
            return self._other(path)
        return self._verify.answer(request) if is_verification(path) else self._reads.answer(request)

    def _other(self, path: str) -> Answer:
        if path == "/healthz":
            return Answer(200, [("content-type", "application/json")], b'{"status":"alive"}')
        if path == "/readyz":
            why = self._why_not_ready()
            body = {"status": "ready"} if why is None else {"status": "not ready", "why": why}
            headers = [("content-type", "application/json")]
            return Answer(200 if why is None else 503, headers, json.dumps(body).encode())
        if path == "/metrics":
            return Answer(200, [("content-type", "text/plain; version=0.0.4")], exposition(self._registry))
        return error_answer(NotFound("unknown_path", "there is nothing at this path", found=path), [])


def _has_body(request: Request) -> bool:
    return request.header("content-length") not in (None, "0") or request.header("transfer-encoding") is not None


class NodeServer:
    """Serves an application until it is stopped, on an event loop in a thread of its own."""

    def __init__(self, app: App, address: str, port: int, security: ServerSecurity = OPEN_SERVER) -> None:
        self._app, self._address, self._port, self._security = app, address, port, security
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls = _tls_context(security)
        self._ending = asyncio.Event()
        self._beginning: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self._one_ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Listen; returns when connections are taken.

        Raises:
            Failed: ``cannot_listen``.
        """
        try:
            found = socket.getaddrinfo(self._address, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, address = found[0]
            self._listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        except OSError as error:
            raise Failed(
                "cannot_listen",
                "the node cannot serve at its address",
                found=f"{self._address}:{self._port}: {error}",
                expected="a free port",
                hint="another process may have it",
            ) from None
        self._listener.setblocking(False)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is under way and end."""
        if self._loop is None:
            self._ending.set()  # nobody waits for it yet: the loop looks before it does
        else:
            with contextlib.suppress(RuntimeError):  # it has ended in this moment
                self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        assert self._listener is not None
        with self._listener as listener:
            taking = self._loop.create_task(self._take_connections(listener))
            while not self._ending.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), _CLOCK_SECONDS)
                for connection in list(self._connections):
                    connection.look_at_the_clock(self._loop.time())
            taking.cancel()
        await self._finish()

    async def _take_connections(self, listener: socket.socket) -> None:
        """Take a connection whenever fewer than the limit are there; further ones wait in the kernel."""
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(self._security.limits.connections)
        while True:
            await room.acquire()
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors, say: those that are there go on, and some will end.
                room.release()
                _log.warning("connection_not_taken", error=str(error))
                await asyncio.sleep(_CLOCK_SECONDS)
                continue
            task = loop.create_task(self._begin(client, room))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, client: socket.socket, room: asyncio.Semaphore) -> None:
        def ended() -> None:
            self._connections.discard(connection)
            self._one_ended.set()
            room.release()

        limits = self._security.limits
        connection = Connection(self._app, limits, ended)
        self._connections.add(connection)
        patience = None if self._tls is None else limits.head_seconds
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, client, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except OSError:  # it has gone, or does not shake hands: nothing was asked yet
            client.close()
            ended()

    async def _finish(self) -> None:
        for connection in list(self._connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS / 2):
                while self._connections:
                    self._one_ended.clear()
                    await self._one_ended.wait()
        for connection in list(self._connections):
            connection.abort()


def _tls_context(security: ServerSecurity) -> ssl.SSLContext | None:
    if security.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(security.certificate, security.key)
    return context
