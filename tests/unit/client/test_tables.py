"""Asking nodes for the answer to a query: whom, in which order, and what becomes of it when they do not answer."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest

from anew.api.http import ControllerClient
from anew.api.node_http import NodeClient
from anew.client import tables
from anew.client.tables import TableClient
from anew.core.errors import InvalidRequest, Unreachable


class _Cluster:
    """What the network answers: nodes by name with their answers, and how often the controller was asked."""

    def __init__(self) -> None:
        self.nodes: dict[str, Callable[[], httpx.Response]] = {}
        self.controller_is_away = False
        self.looks = 0
        self.asked: list[str] = []

    def client(self) -> TableClient:
        """A client over it."""
        controller = ControllerClient("http://controller", transport=httpx.MockTransport(self._controller))
        return TableClient(controller, NodeClient(transport=httpx.MockTransport(self._node)))

    def _controller(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/nodes"
        self.looks += 1
        if self.controller_is_away:
            raise httpx.ConnectError("away", request=request)
        common = {"fabric": "dc-0", "alive": True, "last_seen_ms": 0, "replicas": 0, "states": {}}
        return httpx.Response(
            200, json={"items": [{"id": name, "url": f"http://{name}", **common} for name in self.nodes]}
        )

    def _node(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.host)
        if request.url.host not in self.nodes:
            raise httpx.ConnectError("gone", request=request)
        return self.nodes[request.url.host]()


def _answers() -> httpx.Response:
    sink = pa.BufferOutputStream()
    table = pa.table({"n": [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return httpx.Response(200, content=sink.getvalue().to_pybytes(), headers={"anew-reads": '["trips: 1 of 1"]'})


def _fails(status: int, code: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(status, content=json.dumps({"error": {"code": code, "message": "it does not work"}}))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    """Three nodes that answer, and a list of nodes that is taken to be right for as long as a test runs."""
    monkeypatch.setattr(tables, "NODES_SECONDS", 3_600.0)
    found = _Cluster()
    found.nodes = {"n1": _answers, "n2": _answers, "n3": _answers}
    return found


def test_queries_begin_with_another_node_each(cluster: _Cluster) -> None:
    """All nodes have their turns, and the controller is not asked for every query."""
    client = cluster.client()
    assert [client.query("SELECT 1 AS n").node for _ in range(6)] == ["n1", "n2", "n3"] * 2
    assert cluster.looks == 1


@pytest.mark.parametrize(
    "answer", [_fails(503, "queries_busy"), _fails(500, "checksum_mismatch"), _fails(500, "file_missing")]
)
def test_another_node_is_asked_when_one_cannot(cluster: _Cluster, answer: Callable[[], httpx.Response]) -> None:
    """One that is busy, or that would need a file that was lost, is passed over."""
    cluster.nodes["n1"] = answer
    answered = cluster.client().query("SELECT 1 AS n")
    assert (answered.node, answered.table.to_pydict(), answered.reads) == ("n2", {"n": [1]}, ("trips: 1 of 1",))


def test_a_wrong_query_is_asked_once(cluster: _Cluster) -> None:
    """What no node would answer is not asked of all of them."""
    cluster.nodes["n1"] = _fails(InvalidRequest.http_status, "bad_query")
    with pytest.raises(InvalidRequest, match="it does not work"):
        cluster.client().query("SELECT nothing")
    assert cluster.asked == ["n1"]


def test_queries_go_on_while_the_controller_is_away(cluster: _Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes that were known are asked, also when their list is old."""
    client = cluster.client()
    client.query("SELECT 1 AS n")
    cluster.controller_is_away = True
    monkeypatch.setattr(tables, "NODES_SECONDS", -1.0)
    assert client.query("SELECT 1 AS n").node == "n2"


def test_without_any_list_the_controller_is_missed(cluster: _Cluster) -> None:
    """A client that never heard of a node says that the controller does not answer."""
    cluster.controller_is_away = True
    with pytest.raises(Unreachable) as caught:
        cluster.client().query("SELECT 1 AS n")
    assert caught.value.code == "controller_unreachable"


def test_nodes_that_came_since_are_found(cluster: _Cluster) -> None:
    """When none of the known ones answers, the list is looked at again, and only the new ones are asked."""
    client = cluster.client()
    client.query("SELECT 1 AS n")
    cluster.nodes = {"n4": _answers}
    cluster.asked.clear()
    assert client.query("SELECT 1 AS n").node == "n4"
    assert cluster.asked == ["n2", "n3", "n1", "n4"]


def test_a_named_node_is_asked_alone(cluster: _Cluster) -> None:
    """Also one that came after the list was made; without it the error says what was found."""
    client = cluster.client()
    assert client.query("SELECT 1 AS n", "n3").node == "n3"
    cluster.nodes["n9"] = _answers
    assert client.query("SELECT 1 AS n", "n9").node == "n9"
    cluster.nodes["n1"] = _fails(503, "not_ready")
    with pytest.raises(Unreachable) as caught:
        client.query("SELECT 1 AS n", "n1")
    assert (caught.value.code, "n1" in str(caught.value.found)) == ("no_node", True)
