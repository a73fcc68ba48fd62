"""What errors are answered with."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from anew.controller.http.doorstep import error_response
from anew.core.errors import AnewError, InvalidRequest, shown_lines


def answer_errors(app: FastAPI) -> None:
    """Let an application answer every error in one shape."""
    app.add_exception_handler(AnewError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_no_route)


def _on_error(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, AnewError):
        raise error
    return error_response(error)


def _on_no_route(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "unknown_path", 405: "bad_method"}.get(error.status_code, "bad_request")
    found = f"{request.method} {request.url.path}"
    body = InvalidRequest(code, f"there is nothing here: {error.detail}", found=found, expected="see /docs").to_json()
    return JSONResponse({"error": body}, status_code=error.status_code, headers=error.headers)


def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    details = error.errors() if isinstance(error, RequestValidationError) else []
    first = details[0] if details else {"loc": (), "msg": str(error)}
    where = ".".join(str(part) for part in first["loc"])
    body = {
        "code": "bad_request",
        "message": f"the request does not fit: {where}: {first['msg']}",
        "found": ", ".join(shown_lines(first.get("input"))),
        "expected": "see /docs",
        "hint": None,
    }
    return JSONResponse({"error": body}, status_code=422)
