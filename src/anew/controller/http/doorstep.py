"""Before the controller's routes, and its pages besides them: requests that are for others, or of others' pages."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from anew.api.reach import Reach
from anew.core.errors import AnewError, Unreachable
from anew.core.grants import NotAllowed, Unauthorized


class Doorstep:
    """An ASGI application before another one, which gets what `Reach` lets through."""

    def __init__(self, app: ASGIApp, reach: Reach) -> None:
        self._app, self._reach = app, reach

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange; no part of the body of a request that is refused is read."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                self._reach.check(headers.get("host"), headers.get("origin"))
            except NotAllowed as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def error_response(error: AnewError) -> JSONResponse:
    """The answer that an error is."""
    status = error.http_status if not isinstance(error, Unreachable) else 503
    headers = {"www-authenticate": "Bearer"} if status == Unauthorized.http_status else None
    return JSONResponse({"error": error.to_json()}, status_code=status, headers=headers)
