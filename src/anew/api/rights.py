"""Which right a route takes, and which store or table it concerns.

A handler of the controller declares it (`takes`); what nodes serve is in `NODE_RIGHTS`. Both servers look before they
answer, and a route that says nothing is not served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from anew.core.grants import Right


class Concerns(StrEnum):
    """Which store, or table, a request concerns, or where it says so; a token for some is enough for these alone."""

    CLUSTER = "the whole cluster"
    NO_STORE = "no store in particular"
    PATH = "the store in the path"
    QUERY = "the store that a parameter names; the whole cluster where none does"
    BODY = "the store that a member of the body names; the whole cluster where none does"
    PLAN = "the store that a member of the plan in the body names"
    REBUILD = "the store of the rebuild in the path"


class Content(StrEnum):
    """What the bodies of a route are."""

    JSON = "application/json"
    KEYS = "keys in Avro, of any type that a web page cannot send unasked"


@dataclass(frozen=True, slots=True)
class Need:
    """What a route takes.

    Attributes:
        right: The right of whoever asks; None: the route is open to everybody.
        names: Which parameters, or members, name the store or the table: at most one of them may be given. For
            `Concerns.QUERY` ``request_id`` stands for the store of the rebuild that the request began; `ANY_SUBJECT`
            stands for the names of everything that the controller rebuilds.
        query: Which parameters a node's route has. Those of the controller's routes are those of their handlers.
        content: What its bodies are.
    """

    right: Right | None
    concerns: Concerns = Concerns.CLUSTER
    names: tuple[str, ...] = ()
    query: frozenset[str] = frozenset()
    content: Content = Content.JSON


ANY_SUBJECT = "*"

OPEN = Need(None)
READ_ALL = Need(Right.READ)
READ_ANY = Need(Right.READ, Concerns.NO_STORE)
READ = Need(Right.READ, Concerns.PATH)
READ_REBUILD = Need(Right.READ, Concerns.REBUILD)
READ_STORE = Need(Right.READ, Concerns.QUERY, ("store",))
READ_SUBJECT = Need(Right.READ, Concerns.QUERY, (ANY_SUBJECT, "request_id"))
WRITE_PLAN = Need(Right.WRITE, Concerns.PLAN, (ANY_SUBJECT,))
REBUILD = Need(Right.WRITE, Concerns.REBUILD)
OPERATE = Need(Right.OPERATE, Concerns.PATH)
OPERATE_ALL = Need(Right.OPERATE)
OPERATE_NAME = Need(Right.OPERATE, Concerns.BODY, ("name",))
OPERATE_STORE = Need(Right.OPERATE, Concerns.BODY, ("store",))
SUBMIT = Need(Right.SUBMIT, Concerns.PATH)
SUBMIT_ALL = Need(Right.SUBMIT)
# It names what may not be there, and a token for some stores is not enough.
SUBMIT_ALL_NAMED = Need(Right.SUBMIT, Concerns.CLUSTER, ("output",))

_DECLARED = "__need__"
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def takes(need: Need) -> Callable[[_Handler], _Handler]:
    """Declare what a route takes, beside the parameters that say which store it concerns.

    It stands below the decorator that makes the route: one whose handler declares nothing cannot be made.
    """

    def declare(handler: _Handler) -> _Handler:
        setattr(handler, _DECLARED, need)
        return handler

    return declare


def declared(handler: Callable[..., Any]) -> Need:
    """What a handler's route takes.

    Raises:
        LookupError: It does not say.
    """
    need = getattr(handler, _DECLARED, None)
    if not isinstance(need, Need):
        raise LookupError(f"{handler.__name__} does not declare which right its route takes; write @takes(…) above it")
    return need


NODE_RIGHTS: dict[str, Need] = {
    "keys": READ,
    "keys:batch": Need(Right.READ, Concerns.PATH, content=Content.KEYS),
    "partitions": Need(Right.READ, Concerns.PATH, query=frozenset({"sub", "after", "limit"})),
    "verify": Need(
        Right.OPERATE,
        Concerns.PATH,
        query=frozenset({"after", "wait_seconds", "partition", "sub", "buckets"}),
    ),
    "/v1/query": READ_ANY,
    "/v1/segments/copy": READ_ANY,
    "/v1/segments/bytes": READ_ANY,
    "/metrics": READ_ALL,
    "/healthz": OPEN,
    "/readyz": OPEN,
}
"""What nodes serve: the word behind ``/v1/stores/{store}/versions/{version}/``, or a whole path."""
