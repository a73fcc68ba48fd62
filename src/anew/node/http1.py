"""HTTP/1.1 in the thread of an event loop: a request is parsed, answered and written without another thread's help.

Parsing is llhttp's (httptools), which refuses what two parsers could read in two ways. What one client may take of a
server is counted here: the bytes and the time of a head, of a body, of an answer that nobody fetches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl

import httptools
import structlog

from anew.api.security import HEAD_BYTES, RequestLimits, too_large, too_slow
from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.grants import Unauthorized
from anew.node.exchange import Answer, Request, error_answer

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINGER_SECONDS = 2.0
"""For so long what a refused client still sends is thrown away: else the refusal could be lost on its way."""

_log = structlog.get_logger("anew.node.http")


class App(Protocol):
    """What answers."""

    def check(self, request: Request) -> None:
        """Raise an `AnewError` when the request is refused whatever its body holds, which is not there yet."""

    def answer(self, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
        """The answer: at once, or when something has happened. Errors are raised."""


class _BadRequest(InvalidRequest):
    """The bytes are no request."""

    http_status = 400


class _HeadTooLarge(InvalidRequest):
    """Line and headers are longer than the server takes."""

    http_status = 431


class _Asked(NamedTuple):
    """A request that is there as a whole; ``refusal``: why it is not to be answered as it wishes."""

    request: Request
    goes_on: bool
    refusal: AnewError | None


class Connection(asyncio.Protocol):
    """One client's connection; everything happens in the loop's thread."""

    def __init__(self, app: App, limits: RequestLimits, ended: Callable[[], None]) -> None:
        """Serve a connection that is about to be made; ``ended`` is told when it is over."""
        self._app, self._limits, self._ended = app, limits, ended
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Asked] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._unfetched_until: float | None = None
        self._last = self._lingers = False
        self._head_bytes = 0
        self.on_message_begin()

    # -- what the server asks ----------------------------------------------------------------------------------------

    def look_at_the_clock(self, now: float) -> None:
        """End what has taken too long by now (the loop's seconds)."""
        if self._unfetched_until is not None:
            if now > self._unfetched_until:
                self.abort()
        elif now <= self._deadline or self._answering is not None:
            return
        elif self._in_body and not self._lingers:
            self._refuse(too_slow(self._limits))
        else:
            self._close()

    def finish(self) -> None:
        """End after the answers that are under way."""
        self._last = True
        if self._answering is None:
            self._close()

    def abort(self) -> None:
        """End now."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the loop tells -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's, which is of no class of asyncio's

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport, self._last = None, True
        self._waiting.clear()
        if self._answering is not None:
            self._answering.cancel()
        self._ended()

    def pause_writing(self) -> None:
        """The client does not fetch its answers: nothing more is read of it, and it has as long as for a body."""
        self._unfetched_until = self._loop.time() + self._limits.body_seconds
        self._listen()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._unfetched_until = None
        self._wait()
        self._answer_waiting()
        self._listen()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._last:
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.finish()  # another protocol is not spoken here; the request itself has its answer
        except httptools.HttpParserCallbackError as error:
            refusal = error.__context__
            if not isinstance(refusal, AnewError):
                raise
            self._refuse(refusal)
        except httptools.HttpParserError as error:
            self._refuse(_BadRequest("bad_request", "this is no HTTP request", found=str(error)))
        else:
            if not self._in_body and self._head_bytes > HEAD_BYTES:
                self._refuse(_head_too_large())

    # -- what the parser tells ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_body = False
        self._body_bytes = 0
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._refusal: AnewError | None = None
        self._wait()

    def on_url(self, url: bytes) -> None:
        """A part of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; of several of one name the first counts."""
        self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """The head is there: what it alone shows to be wrong is refused before anything of a body is read."""
        if self._head_bytes > HEAD_BYTES and len(self._url) + sum(map(len, self._headers.values())) > HEAD_BYTES:
            raise _head_too_large()
        path, _, query = self._url.decode("latin-1").partition("?")
        pairs = parse_qsl(query, keep_blank_values=True) if query else []
        asked = dict(pairs)
        if len(asked) < len(pairs):
            message = "a parameter is given twice"
            raise InvalidRequest("repeated_parameter", message, found=query[:200], expected="once")
        self._request = Request(self._parser.get_method().decode("latin-1"), path, asked, self._headers.get)
        declared = int(self._headers.get("content-length", "0"))
        try:
            self._app.check(self._request)
        except AnewError as error:
            if declared or "transfer-encoding" in self._headers:
                raise
            self._refusal = error
        if declared > self._limits.body_bytes:
            raise too_large(declared, self._limits)
        self._in_body = True
        self._wait()
        if "expect" in self._headers and self._transport is not None:
            self._transport.write(_GO_ON)

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise too_large(self._body_bytes, self._limits)
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The whole request is there."""
        self._in_body = False
        self._head_bytes = 0
        self._wait()
        request = self._request._replace(body=b"".join(self._body)) if self._body else self._request
        self._waiting.append(_Asked(request, self._parser.should_keep_alive(), self._refusal))
        self._answer_waiting()

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answer_waiting(self) -> None:
        while self._waiting and self._answering is None and self._unfetched_until is None:
            asked = self._waiting.popleft()
            try:
                answer = self._app.answer(asked.request) if asked.refusal is None else _failed(asked.refusal)
            except Exception as error:  # noqa: BLE001  # told and logged in _failed
                answer = _failed(error)
            if isinstance(answer, Answer):
                self._write(answer, asked)
            else:
                self._answering = self._loop.create_task(self._answer_later(answer, asked))
                self._listen()

    async def _answer_later(self, coming: Coroutine[Any, Any, Answer], asked: _Asked) -> None:
        try:
            answer = await coming
        except Exception as error:  # noqa: BLE001  # told and logged in _failed
            answer = _failed(error)
        self._answering = None
        self._wait()
        self._write(answer, asked)
        self._answer_waiting()
        self._listen()

    def _refuse(self, error: AnewError) -> None:
        """Say what is wrong with what is being read, and read on for a moment without looking at it."""
        if self._transport is None or self._answering is not None or self._waiting:
            self.finish()
            return
        self._last = self._lingers = True
        self._transport.write(_message(_failed(error), goes_on=False, bodiless=False))
        if not self._transport.can_write_eof():
            self._close()
            return
        self._transport.write_eof()
        self._deadline = self._loop.time() + _LINGER_SECONDS

    def _write(self, answer: Answer, asked: _Asked) -> None:
        if self._transport is None:
            return
        goes_on = asked.goes_on and not self._last
        self._transport.write(_message(answer, goes_on=goes_on, bodiless=asked.request.method == "HEAD"))
        if not goes_on:
            self._last = True
            self._waiting.clear()
            self._close()

    def _wait(self) -> None:
        """From now on what is to come of a request has its time again."""
        seconds = self._limits.body_seconds if self._in_body else self._limits.head_seconds
        self._deadline = self._loop.time() + seconds

    def _close(self) -> None:
        """End once everything is written."""
        if self._transport is not None:
            self._transport.close()

    def _listen(self) -> None:
        """Read on, unless an answer is to come or to be fetched first."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._answering is not None or self._unfetched_until is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _message(answer: Answer, *, goes_on: bool, bodiless: bool) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in answer.headers]).encode("latin-1")
    end = b"" if goes_on else b"connection: close\r\n"
    body = b"" if bodiless else answer.body
    return b"%s%s%scontent-length: %d\r\n\r\n%s" % (_LINES[answer.status], lines, end, len(answer.body), body)


def _failed(error: Exception) -> Answer:
    if isinstance(error, AnewError):
        return error_answer(error, [("www-authenticate", "Bearer")] if isinstance(error, Unauthorized) else [])
    _log.error("request_crashed", exc_info=error)
    return error_answer(Failed("internal_error", "the node failed over the request", hint="see the node's log"), [])


def _head_too_large() -> _HeadTooLarge:
    expected = f"at most {HEAD_BYTES} bytes"
    return _HeadTooLarge("head_too_large", "the line and headers of the request are too large", expected=expected)
