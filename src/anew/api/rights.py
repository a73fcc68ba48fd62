"""Which right each route takes: the one place, for the controller and for nodes.

Both servers look a route up here before they answer it, and a route that is not here is not served.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
_READ_ALL = Need(Right.READ)
_READ_ANY = Need(Right.READ, Concerns.NO_STORE)
_READ = Need(Right.READ, Concerns.PATH)
_REBUILD = Need(Right.WRITE, Concerns.REBUILD)
_OPERATE = Need(Right.OPERATE, Concerns.PATH)
_OPERATE_ALL = Need(Right.OPERATE)
_OPERATE_NAME = Need(Right.OPERATE, Concerns.BODY, ("name",))
_OPERATE_STORE = Need(Right.OPERATE, Concerns.BODY, ("store",))

CONTROLLER_RIGHTS: dict[tuple[str, str], Need] = {
    ("POST", "/v1/stores"): _OPERATE_NAME,
    ("GET", "/v1/stores"): _READ_ALL,
    ("GET", "/v1/stores/{name}"): _READ,
    ("PATCH", "/v1/stores/{name}"): _OPERATE,
    ("DELETE", "/v1/stores/{name}"): _OPERATE,
    ("GET", "/v1/stores/{name}/snapshot"): _READ,
    ("GET", "/v1/stores/{name}/routing"): _READ,
    ("GET", "/v1/stores/{name}/position"): _READ,
    ("POST", "/v1/stores/{name}/hold"): _READ,
    ("POST", "/v1/stores/{name}/swap"): _OPERATE,
    ("POST", "/v1/stores/{name}/rollback"): _OPERATE,
    ("POST", "/v1/tables"): _OPERATE_NAME,
    ("GET", "/v1/tables"): _READ_ALL,
    ("GET", "/v1/tables/{name}"): _READ,
    ("PATCH", "/v1/tables/{name}"): _OPERATE,
    ("DELETE", "/v1/tables/{name}"): _OPERATE,
    ("GET", "/v1/tables/{name}/segments"): _READ,
    ("POST", "/v1/tables/{name}/segments:delete"): _OPERATE,
    ("GET", "/v1/tables/{name}/snapshot"): _READ,
    ("POST", "/v1/tables/{name}/reload"): _OPERATE,
    ("POST", "/v1/tables/{name}/refresh:plan"): _READ,
    ("GET", "/v1/table-configs/{config_hash}"): _READ_ANY,
    ("POST", "/v1/rebuilds/{rebuild_id}/segments:read"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/segments:commit"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/load"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/finish"): _REBUILD,
    ("POST", "/v1/rebuilds"): Need(Right.WRITE, Concerns.PLAN, (ANY_SUBJECT,)),
    ("GET", "/v1/rebuilds"): Need(Right.READ, Concerns.QUERY, (ANY_SUBJECT, "request_id")),
    ("GET", "/v1/rebuilds/{rebuild_id}"): Need(Right.READ, Concerns.REBUILD),
    ("POST", "/v1/rebuilds/{rebuild_id}/heartbeat"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/seal"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/fail"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/resume"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/kill"): _REBUILD,
    ("POST", "/v1/rebuilds/{rebuild_id}/seen"): _REBUILD,
    ("GET", "/v1/nodes"): _READ_ANY,
    ("GET", "/v1/nodes/{node}/desired"): _OPERATE_ALL,
    ("POST", "/v1/nodes/{node}/report"): _OPERATE_ALL,
    ("POST", "/v1/nodes/{node}/drain"): _OPERATE_ALL,
    ("POST", "/v1/nodes/{node}/remove"): _OPERATE_ALL,
    ("POST", "/v1/catalog/restore"): _OPERATE_ALL,
    ("POST", "/v1/pause"): _OPERATE_STORE,
    ("POST", "/v1/unpause"): _OPERATE_STORE,
    ("POST", "/v1/gc"): _OPERATE_STORE,
    ("GET", "/v1/status"): _READ_ALL,
    ("GET", "/v1/cluster"): _READ_ANY,
    ("GET", "/v1/history"): Need(Right.READ, Concerns.QUERY, ("store",)),
    ("GET", "/v1/events"): Need(Right.READ, Concerns.QUERY, ("store",)),
    ("GET", "/v1/reclaims"): _READ_ALL,
    ("GET", "/metrics"): _READ_ALL,
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
}
"""(method, path) of each route of the controller. ``/docs`` and ``/openapi.json`` hold nothing of a cluster."""

NODE_RIGHTS: dict[str, Need] = {
    "keys": _READ,
    "keys:batch": Need(Right.READ, Concerns.PATH, content=Content.KEYS),
    "partitions": Need(Right.READ, Concerns.PATH, query=frozenset({"sub", "after", "limit"})),
    "verify": Need(
        Right.OPERATE,
        Concerns.PATH,
        query=frozenset({"after", "wait_seconds", "partition", "sub", "buckets"}),
    ),
    "/v1/query": _READ_ANY,
    "/v1/segments/copy": _READ_ANY,
    "/v1/segments/bytes": _READ_ANY,
    "/metrics": _READ_ALL,
    "/healthz": OPEN,
    "/readyz": OPEN,
}
"""What nodes serve: the word behind ``/v1/stores/{store}/versions/{version}/``, or a whole path."""
