"""Before the controller's routes, and its pages besides them: requests that are for others, or of others' pages."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from anew.api.reach import Reach
from anew.core.errors import AnewError, InvalidRequest, Unreachable
from anew.core.grants import NotAllowed, Unauthorized


class TwoLengths(InvalidRequest):
    """Two servers could read another end of the body, and a second request out of it; the connection ends."""

    http_status = 400


def check_length(headers: Headers) -> None:
    """Raise where a body is both of a length and in chunks.

    A proxy before this server may go by one, and this server by the other (RFC 9112, 6.1 and 6.3).

    Raises:
        TwoLengths: ``two_lengths``.
    """
    if "transfer-encoding" in headers and "content-length" in headers:
        raise TwoLengths(
            "two_lengths",
            "the body has a length and comes in chunks",
            found=f"content-length: {headers['content-length'][:100]} and transfer-encoding",
            expected="one of them",
        )


class Doorstep:
    """An ASGI application before another one, which gets what `Reach` lets through."""

    def __init__(self, app: ASGIApp, reach: Reach) -> None:
        self._app, self._reach = app, reach

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange; no part of the body of a request that is refused is read."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                check_length(headers)
                self._reach.check(headers.get("host"), headers.get("origin"))
            except TwoLengths as error:
                answer = error_response(error)
                answer.headers["connection"] = "close"
                await answer(scope, receive, send)
                return
            except NotAllowed as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def error_response(error: AnewError) -> JSONResponse:
    """The answer that an error is."""
    status = error.http_status if not isinstance(error, Unreachable) else 503
    headers = {"www-authenticate": "Bearer"} if status == Unauthorized.http_status else None
    return JSONResponse({"error": error.to_json()}, status_code=status, headers=headers)
