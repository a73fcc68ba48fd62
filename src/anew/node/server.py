"""The node's HTTP server: granian (RSGI) in the owner's process, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import uvloop
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.server.embed import Server
from prometheus_client import CollectorRegistry

from anew.api.bodies import read_body
from anew.api.gate import Gate
from anew.api.rights import NODE_RIGHTS
from anew.api.security import HEAD_BYTES, OPEN_SERVER, RequestLimits, ServerSecurity
from anew.core.errors import AnewError, Failed, NotFound
from anew.node.metrics import exposition
from anew.node.reads import Answer, Reads, Request, error_answer
from anew.node.verifyhttp import VerifyFace, is_verification

_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_UNAUTHORIZED = 401
_BACKLOG = 1_024
"""Connections that wait to be taken, in the kernel."""
_STORES = "/v1/stores/"
_STORE, _KIND = 3, 6
"""Which parts of ``/v1/stores/{store}/versions/{version}/{kind}/…``, split at the strokes, they are."""


@dataclass(frozen=True, slots=True)
class Faces:
    """What a node answers with: reads, verifications, metrics, and whether it is ready."""

    reads: Reads
    verify: VerifyFace
    registry: CollectorRegistry
    ready: Callable[[], bool]


class NodeApp:
    """The RSGI application: reads, verifications, health and metrics, for those whom the gate lets in."""

    def __init__(self, faces: Faces, gate: Gate, limits: RequestLimits) -> None:
        self._reads, self._verify = faces.reads, faces.verify
        self._registry, self._ready = faces.registry, faces.ready
        self._gate, self._limits = gate, limits

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Answer one request."""
        if scope.proto != "http":
            protocol.close(1003)
            return
        try:
            answer = await self._answer(scope, protocol)
        except AnewError as error:
            answer = error_answer(error, [("www-authenticate", "Bearer")] if error.http_status == _UNAUTHORIZED else [])
        protocol.response_bytes(answer.status, answer.headers, answer.body)

    async def _answer(self, scope: Any, protocol: Any) -> Answer:
        path: str = scope.path
        if not path.startswith(_STORES):
            self._admit(scope, path, None)
            return self._other(path)
        parts = path.split("/", _KIND + 1)
        self._admit(scope, parts[_KIND] if len(parts) > _KIND else "", parts[_STORE])
        body = b"" if scope.method == "GET" else await self._body(scope, protocol)
        query = dict(parse_qsl(scope.query_string, keep_blank_values=True)) if scope.query_string else {}
        request = Request(scope.method, path, query, scope.headers.get, body)
        return await self._verify.answer(request) if is_verification(path) else self._reads.answer(request)

    def _admit(self, scope: Any, kind: str, store: str | None) -> None:
        need = NODE_RIGHTS.get(kind)
        if need is None:
            raise NotFound("unknown_path", "there is nothing at this path", found=scope.path)
        if self._gate.is_closed:
            self._gate.admit(scope.headers.get("authorization"), need, store)

    async def _body(self, scope: Any, protocol: Any) -> bytes:
        declared = scope.headers.get("content-length")
        # Of a declared length the server itself reads no more than that, at once.
        return await read_body(protocol if declared is None else _whole(protocol), declared, self._limits)

    def _other(self, path: str) -> Answer:
        if path == "/healthz":
            return Answer(200, [("content-type", "application/json")], b'{"status":"alive"}')
        if path == "/readyz":
            ready = self._ready()
            body = b'{"status":"ready"}' if ready else b'{"status":"starting"}'
            return Answer(200 if ready else 503, [("content-type", "application/json")], body)
        if path == "/metrics":
            return Answer(200, [("content-type", "text/plain; version=0.0.4")], exposition(self._registry))
        return error_answer(NotFound("unknown_path", "there is nothing at this path", found=path), [])


async def _whole(protocol: Any) -> AsyncIterator[bytes]:
    yield await protocol()


class NodeServer:
    """Serves an application until it is stopped."""

    def __init__(self, app: NodeApp, address: str, port: int, security: ServerSecurity = OPEN_SERVER) -> None:
        self._app, self._address, self._port, self._security = app, address, port, security
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Listen; returns when connections are taken.

        Raises:
            Failed: ``cannot_listen``.
        """
        try:
            # granian shares ports on purpose; a node must not.
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._address, self._port))
        except OSError as error:
            raise self._cannot_listen(error) from None
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise self._cannot_listen(self._error)
            self._ended.wait(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._address, self._port), timeout=1.0):
                return True
        except OSError:
            return False

    def _cannot_listen(self, error: BaseException | None) -> Failed:
        return Failed(
            "cannot_listen",
            "the node cannot serve at its address",
            found=f"{self._address}:{self._port}: {error}",
            expected="a free port",
            hint="another process may have it",
        )

    def stop(self) -> None:
        """Finish what is under way and end."""
        if self._loop is not None and self._server is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.stop)
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except (OSError, RuntimeError) as error:
            self._error = error
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        limits = self._security.limits
        self._server = Server(
            self._app,
            address=self._address,
            port=self._port,
            interface=Interfaces.RSGI,
            log_enabled=False,
            http=HTTPModes.http1,
            websockets=False,
            backlog=_BACKLOG,
            backpressure=limits.connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(limits.head_seconds * 1000), max_buffer_size=HEAD_BYTES
            ),
            ssl_cert=self._security.certificate,
            ssl_key=self._security.key,
            ssl_protocol_min=SSLProtocols.tls12,
        )
        await self._server.serve()
