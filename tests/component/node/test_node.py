"""A whole node over HTTP, against a controller that is played by a few lines."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from anew.api.models import DesiredState, NodeReport
from anew.api.stores.node_wire import KeyState, decode_answer, decode_page, encode_keys
from anew.core.errors import Failed, Refused, Unreachable
from anew.core.partition import XxHash64Partitioner
from anew.node.keeping import read_desired
from anew.node.process import Node, NodeSettings
from tests.component.node.harness import World, caught_up, clock, key_of, wait_for, world

pytestmark = pytest.mark.processes


class PlayedController:
    """Gives out one desired state, takes reports, and can be away."""

    def __init__(self) -> None:
        self.state: DesiredState | None = None
        self.reports: list[NodeReport] = []
        self.away = False

    def desired(self, node: str, fabric: str, after: int = -1, wait_seconds: float = 0.0) -> DesiredState | None:
        """The state, when it is newer."""
        self._answer()
        if self.state is not None and self.state.revision > after:
            return self.state
        threading.Event().wait(0.01)
        return None

    def report(self, request: NodeReport) -> None:
        """Keep the report."""
        self._answer()
        self.reports.append(request)

    def _answer(self) -> None:
        if self.away:
            raise Unreachable("controller_unreachable", "away")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def settings_in(folder: Path) -> NodeSettings:
    """A node's settings in a folder."""
    return NodeSettings("n1", "dc-0", folder / "node", "http://unused", "127.0.0.1", free_port(), clock)


@contextmanager
def running(settings: NodeSettings, controller: PlayedController) -> Iterator[tuple[Node, httpx.Client]]:
    """A started node and a client for it."""
    node = Node(settings, controller)
    try:
        node.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{settings.port}") as client:
            yield node, client
    finally:
        node.stop()


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world with one version."""
    with world(tmp_path) as made:
        made.version(1, {f"k{n:02}": f"v{n:02}" for n in range(40)} | {"gone": None})
        yield made


def path_of(text: str, version: str = "current") -> str:
    """The path of a key."""
    encoded = base64.urlsafe_b64encode(key_of(text)).decode().rstrip("=")
    return f"/v1/stores/words/versions/{version}/keys/{encoded}"


def test_reads_over_http(words: World, tmp_path: Path) -> None:
    """Single reads, JSON, batches, scans, cells, health and metrics answer what the base and the feed hold."""
    controller = PlayedController()
    controller.state = words.desired()
    with running(settings_in(tmp_path), controller) as (node, client):
        wait_for("the load", lambda: caught_up(node.engine))
        words.write("k01", "new")
        wait_for("the write", lambda: client.get(path_of("k01")).content == key_of("new"))
        answer = client.get(path_of("k02"))
        assert (answer.status_code, answer.content) == (200, key_of("v02"))
        assert answer.headers["anew-schema-id"] == "1"
        assert answer.headers["anew-current-version"] == "1"
        shown = client.get(path_of("k02"), headers={"accept": "application/json"}).json()
        assert shown == {"found": True, "value": "v02", "written_at": 0, "version": 1}
        absent = client.get(path_of("gone"))
        assert (absent.status_code, absent.json()["found"]) == (404, False)
        cell = client.get(f"{path_of('k01')}/cell").json()
        assert (cell["source"], cell["origin"], cell["tombstone"], cell["node"]) == ("feed", "dc-0", False, "n1")
        assert client.get(f"{path_of('gone')}/cell").json()["tombstone"] is True
        batch = encode_keys([key_of("k01"), key_of("gone"), key_of("k03")])
        results = decode_answer(client.post("/v1/stores/words/versions/1/keys:batch", content=batch).content).results
        assert [r.state for r in results] == [KeyState.FOUND, KeyState.ABSENT, KeyState.FOUND]
        assert [r.value for r in results] == [key_of("new"), b"", key_of("v03")]
        metrics = client.get("/metrics").text
        assert 'anew_reads_total{outcome="found",store="words"}' in metrics
        assert "anew_applied_records_total 1.0" in metrics
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        assert wait_for("a report", lambda: [r for r in controller.reports if r.replicas])[-1].node == "n1"


def test_a_scan_pages_through_a_partition(words: World, tmp_path: Path) -> None:
    """Pages of a scan hold each live key of the partition once, in key order, and no deleted one."""
    controller = PlayedController()
    controller.state = words.desired()
    with running(settings_in(tmp_path), controller) as (node, client):
        wait_for("the load", lambda: caught_up(node.engine))
        found: list[bytes] = []
        for partition in range(2):
            after: bytes | None = None
            keys: list[bytes] = []
            while True:
                query = {"limit": "7"} | ({} if after is None else {"after": base64.urlsafe_b64encode(after).decode()})
                answer = client.get(f"/v1/stores/words/versions/1/partitions/{partition}/scan", params=query)
                page = decode_page(answer.content)
                keys += [item.key for item in page.items]
                if (after := page.next_after) is None:
                    break
            assert keys == sorted(set(keys))
            assert {XxHash64Partitioner(2).of(key) for key in keys} == {partition}
            found += keys
        assert sorted(found) == sorted(key_of(f"k{n:02}") for n in range(40))


@pytest.mark.case("rules:R16")
def test_reads_that_cannot_be_answered_say_why(words: World, tmp_path: Path) -> None:
    """Each refusal has its status and code, and carries the headers of the store where there is one."""
    words.version(2, {"k01": "two"})
    controller = PlayedController()
    controller.state = words.desired()
    with running(settings_in(tmp_path), controller) as (node, client):
        wait_for("the load", lambda: caught_up(node.engine))

        def refused(path: str, **headers: str) -> tuple[int, str]:
            answer = client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            return answer.status_code, answer.json()["error"]["code"]

        assert refused("/v1/stores/other/versions/1/keys/AA") == (421, "not_here")
        assert refused(path_of("k01", "9")) == (421, "not_here")
        assert refused(path_of("k01"), anew_store_uid="u0") == (409, "other_store")
        assert refused("/v1/stores/words/versions/1/keys/a*") == (422, "bad_key")
        assert refused("/v1/nothing") == (404, "unknown_path")
        astray = client.get("/v1/status").json()["error"]
        assert ("a node answers here" in astray["message"], "ANEW_URL" in astray["hint"]) == (True, True)
        assert refused("/v1/stores/words/versions/x/keys/AA") == (404, "unknown_version")
        del words.versions[1]
        words.current = 2
        controller.state = words.desired()
        wait_for("the swap", lambda: client.get(path_of("k01")).content == key_of("two"))
        assert refused(path_of("k01", "1")) == (410, "version_gone")
        controller.state = words.desired(reads=False)
        wait_for("the setting", lambda: client.get(path_of("k01")).status_code == 403)
        assert refused(path_of("k01")) == (403, "reads_disabled")


def test_a_node_restarts_without_a_controller(words: World, tmp_path: Path) -> None:
    """While the controller is away, also over a restart, the node serves and applies what it was told last."""
    controller = PlayedController()
    controller.state = words.desired()
    with running(settings_in(tmp_path), controller) as (node, _):
        wait_for("the load", lambda: caught_up(node.engine))
    controller.away = True
    words.write("k01", "meanwhile")
    with running(settings_in(tmp_path), controller) as (node, client):
        wait_for("the write", lambda: client.get(path_of("k01")).content == key_of("meanwhile"))
        kept = read_desired(tmp_path / "node" / "desired.json")
        assert kept is not None
        assert kept.fabric == "dc-0"


def test_a_directory_and_a_port_have_one_node(words: World, tmp_path: Path) -> None:
    """A second node in the same directory, or at the same address, is refused and disturbs nobody."""
    settings, controller = settings_in(tmp_path), PlayedController()
    with running(settings, controller):
        with pytest.raises(Refused, match="another node works in this directory"):
            Node(settings, controller)
        other = NodeSettings("n2", "dc-0", tmp_path / "n2", "http://unused", "127.0.0.1", settings.port, clock)
        second = Node(other, controller)
        with pytest.raises(Failed, match="cannot serve at its address"):
            second.start()
        second.stop()
