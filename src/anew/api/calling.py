"""How the controller is called: a request, how long it may take, and its answer as a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from anew.api.answers import check, translated, unexpected
from anew.api.connecting import headers_of, trust_of
from anew.api.pages import MAX_ITEMS, Page, all_items
from anew.api.rebuilds import AnyRebuildView, RebuildView
from anew.api.security import NOBODY, Credentials

_KEEP_ALIVE_SECONDS = 2.0
"""Shorter than a server's own, so that a request is not sent on a connection that the server is just closing."""

_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Call:
    """A request.

    Attributes:
        look_up: The command that tells what became of it, None when it changes nothing.
        extra_seconds: How long it may take beside what every request may.
        most_seconds: How long it may take if that is less.
    """

    method: str
    path: str
    body: BaseModel | None = None
    query: Mapping[str, object] = field(default_factory=dict)
    look_up: str | None = None
    extra_seconds: float = 0.0
    most_seconds: float = math.inf


class Calls:
    """A connection to a controller, safe to use from several threads; what it can be asked is in its subclasses."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 10.0,
        actor: str = "anonymous",
        transport: httpx.BaseTransport | None = None,
        credentials: Credentials = NOBODY,
    ) -> None:
        """Connect lazily.

        Args:
            url: The controller's, ``http://127.0.0.1:8300``.
            timeout_seconds: How long each request may take, beside what it asks the controller to wait.
            actor: Who asks, for the history; characters that a header cannot carry are percent-encoded.
            transport: In place of the network.
            credentials: Who asks, to servers that ask for tokens, and whose certificates are trusted.

        Raises:
            InvalidRequest: ``bad_tls_ca``.
        """
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._http = httpx.Client(
            headers={"anew-actor": quote(actor, safe=" @.:+-_/")} | headers_of(credentials),
            verify=trust_of(credentials),
            limits=httpx.Limits(keepalive_expiry=_KEEP_ALIVE_SECONDS),
            transport=transport,
        )

    def _rebuild(self, call: Call) -> RebuildView:
        view: RebuildView = parsed_as(AnyRebuildView, self._send(call))
        return view

    def _all(self, page: type[Page[_Item]], call: Call, limit: int = MAX_ITEMS) -> Iterator[_Item]:
        """The items of all pages of a list, in pages of so many."""

        def page_after(key: str | None) -> Page[_Item]:
            return self._as(page, replace(call, query={**call.query, "limit": limit, "after": key}))

        return all_items(page_after)

    def _as(self, model: type[_Answer], call: Call) -> _Answer:
        return parsed(model, self._send(call))

    def _send(self, call: Call) -> httpx.Response:
        content = None if call.body is None else call.body.model_dump_json()
        with translated(self._url, call.look_up):
            answer = self._http.request(
                call.method,
                f"{self._url}{call.path}",
                params={name: _text(value) for name, value in call.query.items() if value is not None},
                content=content,
                headers={} if content is None else {"content-type": "application/json"},
                timeout=min(self._timeout_seconds + call.extra_seconds, call.most_seconds),
            )
        check(answer, call.look_up)
        return answer


def path_of(*parts: str) -> str:
    """The path of a route, with its parts quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def parsed(model: type[_Answer], answer: httpx.Response) -> _Answer:
    """What was answered, as a class.

    Raises:
        Failed: ``unexpected_answer``.
    """
    found: _Answer = parsed_as(model, answer)
    return found


def parsed_as(form: Any, answer: httpx.Response) -> Any:
    """What was answered, as a class or another type; whoever calls says which."""
    try:
        return _adapter(form).validate_json(answer.content)
    except ValidationError as error:
        raise unexpected(f"{answer.request.method} {answer.request.url}: {error}") from error
