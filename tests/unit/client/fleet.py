"""A controller and nodes in memory that speak the wire as real ones do, step by step under a test's hand."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import orjson

from anew.api.http import ControllerClient
from anew.api.location import LogLocation
from anew.api.node_http import NodeClient
from anew.api.stores.node_wire import (
    HEADER_CURRENT_VERSION,
    HEADER_STORE_REVISION,
    HEADER_STORE_UID,
    BatchAnswer,
    KeyResult,
    KeyState,
    ScanItem,
    ScanPage,
    decode_keys,
    encode_answer,
    encode_page,
)
from anew.api.stores.routing import RoutedVersion, Routing
from anew.client.routing import RoutingCache
from anew.client.store import Store
from anew.codec.avro import encode_datum, parse_schema
from anew.core.errors import AnewError, Refused
from anew.core.feed import Feed
from anew.core.partition import XxHash64Partitioner
from anew.log.interface import Log
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA, a_config

STORE = "flights"
UID = "uid-flights"
_PAGE_ITEMS = 2


@dataclass
class Seconds:
    """A monotonic clock; each look at it takes ``tick`` seconds, so that whoever waits for it comes to an end."""

    now: float = 1_000.0
    tick: float = 0.01

    def __call__(self) -> float:
        """The time."""
        self.now += self.tick
        return self.now


@dataclass
class FakeNode:
    """One node: the partitions that it holds of each version, and how it is doing."""

    held: dict[int, set[int]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    down: bool = False
    refusal: tuple[int, AnewError] | None = None


@dataclass
class Fleet:
    """One store's versions, the nodes that serve them, and the controller's routing.

    Attributes:
        rows: Version → key → (schema id, write time, value's Avro body).
        asked: What nodes were asked, in order: (node, version, what).
        before: Called with each of these before it is answered.
    """

    routing: Routing
    rows: dict[int, dict[str, tuple[int, int, bytes]]] = field(default_factory=dict)
    nodes: dict[str, FakeNode] = field(default_factory=dict)
    controller_down: bool = False
    routings: int = 0
    holds: list[int] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, int, str]] = field(default_factory=list)
    before: Callable[[str, int, str], None] = lambda *_: None
    seconds: Seconds = field(default_factory=Seconds)

    # -- what a test sets up -----------------------------------------------------------------------------------------

    def serve(self, version: int, texts: dict[str, str], *, partitions: int = 4, replicas: int = 2) -> None:
        """A version with these values is held by the nodes in turn and made current."""
        self.rows[version] = {key: (1, 10 * version, _value(text)) for key, text in texts.items()}
        names = list(self.nodes)
        placed = {p: tuple(names[(p + r) % len(names)] for r in range(replicas)) for p in range(partitions)}
        for partition, holders in placed.items():
            for name in holders:
                self.nodes[name].held.setdefault(version, set()).add(partition)
        config = a_config(partitions=partitions).frozen
        routed = RoutedVersion(partitions=partitions, partitioner="xxhash64", config=config, replicas=placed)
        self.route(current=version, versions={**self.routing.versions, version: routed})

    def route(self, current: int | None = None, **changes: object) -> None:
        """The controller's routing has changed."""
        if current is not None:
            changes["shares"] = {current: 1.0} if current else {}
        self.routing = self.routing.model_copy(update={"revision": self.routing.revision + 1, **changes})

    def drop(self, version: int) -> None:
        """Every node drops a version, and the controller routes to it no more."""
        self.forget(version)
        self.route(versions={n: routed for n, routed in self.routing.versions.items() if n != version})

    def forget(self, version: int) -> None:
        """Every node drops a version; the controller's routing still names it."""
        for node in self.nodes.values():
            node.held.pop(version, None)
            node.gone.add(version)

    def holders(self, version: int, key: str) -> tuple[str, ...]:
        """The nodes that the routing names for a key."""
        routed = self.routing.versions[version]
        return routed.replicas[XxHash64Partitioner(routed.partitions).of(_key(key))]

    # -- what is tested ----------------------------------------------------------------------------------------------

    def cache(self) -> RoutingCache:
        """A client's routing."""
        controller = ControllerClient("http://controller", transport=httpx.MockTransport(self._controller))
        return RoutingCache(controller, STORE, None, self.seconds)

    def store(self, open_log: Callable[[Routing], Log] | None = None, new_id: Callable[[], str] | None = None) -> Store:
        """A client of the store; its controller and nodes are these."""
        nodes = NodeClient(transport=httpx.MockTransport(self._node))
        return Store(self.cache(), nodes, _no_log if open_log is None else open_log, self.seconds, new_id=new_id)

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _controller(self, request: httpx.Request) -> httpx.Response:
        if self.controller_down:
            raise httpx.ConnectError("refused", request=request)
        if request.url.path == f"/v1/stores/{STORE}/hold":
            asked = orjson.loads(request.content)
            if asked["seconds"]:
                self.holds.append(int(asked["version"]))
                self.held |= {} if asked["hold"] is None else {asked["hold"]: int(asked["version"])}
            else:
                del self.held[asked["hold"]]
            return httpx.Response(204)
        assert request.url.path == f"/v1/stores/{STORE}/routing"
        self.routings += 1
        return httpx.Response(200, text=self.routing.model_dump_json())

    def _node(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host
        _, _, stores, store, _, version, *rest = request.url.path.split("/")
        assert (stores, store) == ("stores", STORE)
        what = "/".join(rest)
        self.asked.append((name, int(version), what))
        self.before(name, int(version), what)
        node = self.nodes[name]
        if node.down:
            raise httpx.ConnectError("refused", request=request)
        headers = {
            HEADER_CURRENT_VERSION: str(self.routing.current),
            HEADER_STORE_REVISION: str(self.routing.revision),
        }
        status, body = self._answer(node, int(version), rest, request)
        return httpx.Response(status, headers=headers, content=body)

    def _answer(self, node: FakeNode, version: int, rest: list[str], request: httpx.Request) -> tuple[int, bytes]:
        if request.headers[HEADER_STORE_UID] != self.routing.uid:
            return _error(409, Refused("other_store", "another store"))
        if node.refusal is not None:
            return _error(*node.refusal)
        if version not in node.held:
            if version in node.gone:
                return _error(410, Refused("version_gone", "retired", found=version))
            return _error(421, Refused("not_here", "not held", found=version))
        partitioner = XxHash64Partitioner(self.routing.versions[version].partitions if version in self.rows else 1)
        if rest == ["keys:batch"]:
            results = tuple(self._result(node, version, partitioner, key) for key in decode_keys(request.content))
            return 200, encode_answer(BatchAnswer(version, self.routing.revision, results))
        if rest[0] == "keys":
            return 404, orjson.dumps({"found": False, "version": version, "tombstone": False})
        partition = int(rest[1])
        if partition not in node.held[version]:
            return _error(421, Refused("not_here", "not held", found=partition))
        encoded = request.url.params.get("after")
        after = b"" if encoded is None else base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        rows = sorted((_key(key), row) for key, row in self.rows[version].items())
        left = [(key, row) for key, row in rows if partitioner.of(key) == partition and key > after]
        items = tuple(ScanItem(key, *row) for key, row in left[:_PAGE_ITEMS])
        more = items[-1].key if len(left) > _PAGE_ITEMS else None
        return 200, encode_page(ScanPage(version, items, more))

    def _result(self, node: FakeNode, version: int, partitioner: XxHash64Partitioner, key: bytes) -> KeyResult:
        if partitioner.of(key) not in node.held[version]:
            return KeyResult(KeyState.ELSEWHERE)
        rows = {_key(text): row for text, row in self.rows[version].items()}
        return KeyResult(KeyState.FOUND, *rows[key]) if key in rows else KeyResult(KeyState.ABSENT)


def a_fleet(node_count: int = 3, feed: Feed | None = None) -> Fleet:
    """Nodes that hold nothing yet, and a store without a version."""
    names = [f"node-{number}" for number in range(1, node_count + 1)]
    routing = Routing(
        name=STORE,
        uid=UID,
        revision=1,
        fabric=FABRIC,
        shares={},
        key_schema=KEY_SCHEMA,
        schemas={1: VALUE_SCHEMA},
        versions={},
        nodes={name: f"http://{name}" for name in names},
        feed=feed,
        log=LogLocation(kind="embedded", address="/nowhere"),
        reads=True,
        writes=True,
        max_value_bytes=100,
    )
    return Fleet(routing, nodes={name: FakeNode() for name in names})


def _no_log(_routing: Routing) -> Log:
    raise AssertionError("a reader opens no log")


def _key(text: str) -> bytes:
    return encode_datum(parse_schema(KEY_SCHEMA), text)


def _value(text: str) -> bytes:
    return encode_datum(parse_schema(VALUE_SCHEMA), {"text": text})


def _error(status: int, error: AnewError) -> tuple[int, bytes]:
    return status, orjson.dumps({"error": error.to_json()})
