"""What goes in and out of a node's server, whatever it is about: requests, answers, and errors as answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from anew.api.stores.node_wire import JSON_TYPE
from anew.core.errors import AnewError, InvalidRequest

Headers = list[tuple[str, str]]


class Request(NamedTuple):
    """A request as it came in; ``header`` gives a header or None."""

    method: str
    path: str
    query: Mapping[str, str]
    header: Callable[[str], str | None]
    body: bytes = b""

    @property
    def wants_json(self) -> bool:
        """Whether the answer is to be JSON."""
        accepted = self.header("accept")
        return accepted is not None and JSON_TYPE in accepted


class Answer(NamedTuple):
    """What goes back."""

    status: int
    headers: Headers
    body: bytes


def error_answer(error: AnewError, headers: Headers) -> Answer:
    """The answer that carries an error."""
    return json_answer(error.http_status, headers, {"error": error.to_json()})


def parse_number(text: str, what: str) -> int:
    """A number of a request.

    Raises:
        InvalidRequest: ``bad_number``.
    """
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest("bad_number", f"the {what} is no number", found=text, expected="digits")
    return int(text)


def json_answer(status: int, headers: Headers, body: dict[str, Any]) -> Answer:
    """An answer with a JSON object."""
    content = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS, default=str)
    return Answer(status, [*headers, ("content-type", JSON_TYPE)], content)
