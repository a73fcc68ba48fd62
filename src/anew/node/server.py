"""The node's HTTP server: granian (RSGI) in the owner's process, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from granian.constants import Interfaces
from granian.server.embed import Server
from prometheus_client import CollectorRegistry

from anew.core.errors import Failed, NotFound
from anew.node.metrics import exposition
from anew.node.reads import Answer, Reads, Request, error_answer
from anew.node.verifyhttp import VerifyFace, is_verification

_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_STORES = "/v1/stores/"


class NodeApp:
    """The RSGI application: reads, verifications, health and metrics."""

    def __init__(
        self, reads: Reads, verify: VerifyFace, registry: CollectorRegistry, ready: Callable[[], bool]
    ) -> None:
        self._reads = reads
        self._verify = verify
        self._registry = registry
        self._ready = ready

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Answer one request."""
        if scope.proto != "http":
            protocol.close(1003)
            return
        path: str = scope.path
        if path.startswith(_STORES):
            body: bytes = b"" if scope.method == "GET" else await protocol()
            query = dict(parse_qsl(scope.query_string, keep_blank_values=True)) if scope.query_string else {}
            request = Request(scope.method, path, query, scope.headers.get, body)
            answer = await self._verify.answer(request) if is_verification(path) else self._reads.answer(request)
        else:
            answer = self._other(path)
        protocol.response_bytes(answer.status, answer.headers, answer.body)

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


class NodeServer:
    """Serves an application until it is stopped."""

    def __init__(self, app: NodeApp, address: str, port: int) -> None:
        self._app, self._address, self._port = app, address, port
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
            asyncio.run(self._serve())
        except (OSError, RuntimeError) as error:
            self._error = error
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = Server(
            self._app, address=self._address, port=self._port, interface=Interfaces.RSGI, log_enabled=False
        )
        await self._server.serve()
