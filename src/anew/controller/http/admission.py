"""Who is let in to the controller's routes: one class of routes that asks before any handler runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from anew.api.errors import ErrorAnswer
from anew.api.gate import Gate
from anew.api.rights import ANY_SUBJECT, Concerns, Content, Need, declared
from anew.api.security import RequestLimits
from anew.api.strictness import check_content, check_parameters, parse_object, the_one_named
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import failed_subject
from anew.controller.http.bodies import read_body
from anew.core.errors import InvalidRequest
from anew.core.grants import Grant

_ERRORS = {
    401: "No token, an unknown one, or one that has expired; nothing was changed.",
    403: "The token does not allow this; nothing was changed.",
    404: "What the request names does not exist; nothing was changed.",
    408: "The request did not arrive in time; nothing was changed.",
    409: "Not allowed in the present state; nothing was changed.",
    413: "The request is too large; nothing was changed.",
    415: "The body is not JSON; nothing was changed.",
    422: "The request is wrong; nothing was changed.",
    503: "Something that is needed does not answer; nothing was changed.",
}
_ERROR_SHAPE = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}}}}
RIGHT_SHOWN = "x-right"
"""The member of an operation in ``/openapi.json`` that names its right."""
_BODY_METHODS = frozenset({"POST", "PATCH", "PUT"})
_ACTOR = b"anew-actor"
_REQUEST_ID = "request_id"
_NOTHING = (b"", b"{}")


@dataclass(frozen=True, slots=True)
class Route:
    """What a route's handler takes.

    Attributes:
        parameters: Its parameters in the query.
        takes_body: Whether it takes a body.
    """

    parameters: frozenset[str]
    takes_body: bool


class Admission:
    """Asks for the token, reads the body within its limits, and finds out which store a request concerns."""

    def __init__(self, context: Context, gate: Gate, limits: RequestLimits) -> None:
        """Nothing is read yet."""
        self._context, self._gate, self._limits = context, gate, limits

    def need_of(self, handler: Callable[..., Any]) -> Need:
        """What a handler's route takes.

        Raises:
            LookupError: It does not say.
        """
        need = declared(handler)
        subjects = self._context.subjects.names
        names = tuple(name for each in need.names for name in (subjects if each == ANY_SUBJECT else (each,)))
        return replace(need, names=names)

    async def admit(self, request: Request, need: Need, known: Route) -> Request:
        """The request as its handler gets it: with its body, and acting in the name of its token.

        Raises:
            Unauthorized, NotAllowed, Unreachable: See `anew.api.gate.Gate.admit`.
            InvalidRequest: See `anew.api.strictness`.
            TooLarge: ``request_too_large``.
            TooSlow: ``request_too_slow``.
        """
        grant = None
        if self._gate.is_closed and need.right is not None:
            # Before the body: who is not let in shall not keep the server busy.
            grant = self._gate.grant(request.headers.get("authorization"))
            grant.check_right(need.right)
        check_parameters(request.query_params.multi_items(), known.parameters, need)
        body = await self._body(request, takes_one=known.takes_body)
        if grant is not None and need.concerns is Concerns.PLAN:
            self._check_begin(grant, body)
        if grant is not None and grant.stores is not None and need.concerns is not Concerns.NO_STORE:
            grant.check_store(await self._store(request, need, body, grant.stores))
        scope = dict(request.scope)
        if grant is not None:
            others = [pair for pair in scope["headers"] if pair[0] != _ACTOR]
            scope["headers"] = [*others, (_ACTOR, quote(grant.name, safe=" @.:+-_/").encode())]
        return Request(scope, _again(body, request))

    def _check_begin(self, grant: Grant, body: bytes) -> None:
        """Raise unless a token allows what the plan in a body begins.

        Raises:
            NotAllowed: ``not_allowed``.
        """
        plan = parse_object(body).get("plan")
        subject = self._context.subjects.find(str(plan.get("kind"))) if isinstance(plan, dict) else None
        if subject is not None and subject.begins.right is not None:
            grant.check_right(subject.begins.right)
            if subject.begins.concerns is Concerns.CLUSTER:
                grant.check_store(None)

    async def _body(self, request: Request, *, takes_one: bool) -> bytes:
        headers = request.headers
        announced = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if not announced:
            return b""
        if takes_one:
            check_content(headers.get("content-type"), Content.JSON)
        body = await read_body(request.stream(), headers.get("content-length"), self._limits)
        if not takes_one and body not in _NOTHING:
            raise InvalidRequest(
                "unexpected_body",
                "this takes no body",
                found=f"{request.method} {request.url.path} with {len(body)} bytes",
                expected="no body",
                hint="see /docs",
            )
        return body

    async def _store(self, request: Request, need: Need, body: bytes, allowed: Collection[str]) -> str | None:
        match need.concerns:
            case Concerns.PATH:
                return str(request.path_params["name"])
            case Concerns.QUERY:
                named = the_one_named(request.query_params, need)
                if named is None or named[0] != _REQUEST_ID:
                    return None if named is None else named[1]
                known = await run_in_threadpool(self._context.catalog.request, named[1])
                if known is None:
                    # A request that nobody made concerns no store; the answer is empty for everybody.
                    return next(iter(allowed), None)
                return await run_in_threadpool(self._subject, known.result)
            case Concerns.BODY:
                said = the_one_named(parse_object(body), need)
                return None if said is None else said[1]
            case Concerns.PLAN:
                plan = parse_object(body).get("plan")
                said = the_one_named(plan, need) if isinstance(plan, dict) else None
                return None if said is None else said[1]
            case Concerns.REBUILD:
                return await run_in_threadpool(self._subject, str(request.path_params["rebuild_id"]))
            case Concerns.CLUSTER | Concerns.NO_STORE:
                return None

    def _subject(self, rebuild_id: str) -> str | None:
        """The name of what a rebuild is of."""
        found = self._context.catalog.rebuild(rebuild_id)
        # A failure may be told for longer than its record is kept.
        return failed_subject(self._context, rebuild_id) if found is None else found.subject.name


def guarded(admission: Admission) -> type[APIRoute]:
    """The class of routes that ask this admission; one that declares no right cannot be made."""
    # The first route describes it and the others refer to it: FastAPI would describe it anew for each of 400 answers,
    # which is most of the time that making the application takes.
    described = False

    class GuardedRoute(APIRoute):
        """A route whose docstring is its summary, with the error answers that requests of its kind may get.

        Attributes:
            need: What it takes.
        """

        def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
            (method,) = options["methods"]
            self.need = admission.need_of(endpoint)
            options["openapi_extra"] = {RIGHT_SHOWN: self.need.right or "none"}
            if path.startswith("/v1/"):
                nonlocal described
                shape = _ERROR_SHAPE if described else {"model": ErrorAnswer}
                described = True
                errors = {s: {"description": _ERRORS[s], **shape} for s in _statuses(method, path, self.need)}
                options["responses"] = errors | options["responses"]
            options["summary"] = str(endpoint.__doc__).split(";")[0].rstrip(".")
            super().__init__(path, endpoint, **options)

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            """Admission first."""
            handle = super().get_route_handler()

            handler = self.dependant
            known = Route(frozenset(field.alias for field in handler.query_params), bool(handler.body_params))

            async def admitted(request: Request) -> Response:
                return await handle(await admission.admit(request, self.need, known))

            return admitted

    return GuardedRoute


def rights_of(app: FastAPI) -> dict[tuple[str, str], Need]:
    """(method, path) of each guarded route of an application → what it takes."""
    guards = [(route, getattr(route, "need", None)) for route in app.routes if isinstance(route, APIRoute)]
    return {(method, route.path): need for route, need in guards if need for method in route.methods or ()}


def _statuses(method: str, path: str, need: Need) -> list[int]:
    never = set() if "{" in path or need.names else {404}
    never |= {409} if method == "GET" else set()
    never |= {408, 413, 415} if method not in _BODY_METHODS else set()
    return [status for status in _ERRORS if status not in never]


def _again(body: bytes, request: Request) -> Callable[[], Coroutine[Any, Any, Any]]:
    given = False

    async def receive() -> Any:
        nonlocal given
        if given:
            return await request.receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
