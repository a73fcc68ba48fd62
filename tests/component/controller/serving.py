"""The controller's application in this process: made once and used by one cluster after another, asked directly.

Making it takes longer than most of a test, and so does going through a client with a server's threads for each request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import httpx
from fastapi import FastAPI

from anew.api.security import OPEN_SERVER, ServerSecurity
from anew.controller.app import make_app
from anew.controller.engine.context import Context

_ANSWER_SECONDS = 60.0


class _Stand:
    """Stands for an object that is another one for each cluster."""

    def __init__(self, target: object) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


@dataclass(slots=True)
class _Served:
    """An application over whatever its stands stand for."""

    context: _Stand
    app: FastAPI


_idle: list[_Served] = []


@contextmanager
def served(context: Context, security: ServerSecurity) -> Iterator[FastAPI]:
    """The application over a controller's collaborators, for as long as the block lasts."""
    if security is not OPEN_SERVER:
        # Who is let in, and until when, is part of an application.
        yield make_app(context, security)
        return
    one = _idle.pop() if _idle else _made(context)
    one.context.target = context
    yield one.app
    _idle.append(one)


def _made(context: Context) -> _Served:
    stand = _Stand(context)
    return _Served(stand, make_app(cast(Context, stand)))


class AppTransport(httpx.BaseTransport):
    """Hands a client's requests to an application; what a handler did not expect is raised here."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange."""
        asked = asyncio.run_coroutine_threadsafe(self._answer(request, request.read()), _loop())
        return asked.result(_ANSWER_SECONDS)

    async def _answer(self, request: httpx.Request, content: bytes) -> httpx.Response:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("tester", 1),
            "server": (request.url.host, request.url.port or 80),
        }
        asked = iter(({"type": "http.request", "body": content, "more_body": False},))
        said: list[Any] = []

        async def receive() -> Any:
            return next(asked, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            said.append(message)

        await self._app(scope, receive, send)
        start, body = said[0], b"".join(message.get("body", b"") for message in said[1:])
        return httpx.Response(start["status"], headers=start["headers"], content=body)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """An event loop that runs as long as this process, in a thread of its own."""
    ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        ready.set()
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(run(),), name="served", daemon=True).start()
    ready.wait()
    return loops[0]
