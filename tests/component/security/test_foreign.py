"""What other sites' pages make a browser send: refused by controller and nodes on every route; programs go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from anew.api.reach import Reach, host_names
from anew.api.rights import NODE_RIGHTS
from anew.api.security import ServerSecurity
from anew.core.errors import InvalidRequest
from anew.core.grants import NotAllowed
from tests.component.security.servers import LOOPBACK, Listening, controller, node
from tests.controllerroutes import CONTROLLER_RIGHTS

pytestmark = pytest.mark.processes

Server = Callable[[Path, ServerSecurity], AbstractContextManager[Listening]]
_PARTS = {"name": "words", "node": "n1", "rebuild_id": "r1", "config_hash": "t1-0", "number": "1"}
_ROUTES = {
    "controller": [
        *((method, path.format(**_PARTS)) for method, path in CONTROLLER_RIGHTS),
        *(("GET", path) for path in ("/docs", "/openapi.json", "/", "/nothing")),
    ],
    "node": [
        (method, kind if kind.startswith("/") else f"/v1/stores/words/versions/1/{kind}")
        for kind in (*NODE_RIGHTS, "nothing")
        for method in ("GET", "POST")
    ],
}
_FOREIGN = ("evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.nip.io", "10.1.2.3", "0.0.0.0")
_ORIGINS = ("http://evil.example", "http://localhost:1", "null", "", "file://", "http://127.0.0.1.nip.io:{port}")
_SIMPLE = ("text/plain", "text/plain; x=application/json", "application/x-www-form-urlencoded", "multipart/form-data")


@pytest.fixture(scope="module", params=[controller, node], ids=["controller", "node"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Listening]]:
    """Each kind of server, without tokens, on the loopback, with a name of a proxy; which kind it is."""
    start: Server = request.param
    folder = tmp_path_factory.mktemp("server")
    with start(folder, ServerSecurity(names=frozenset({"anew.example", "other.example:8443"}))) as listening:
        yield "controller" if start is controller else "node", listening


@pytest.fixture
def http(server: tuple[str, Listening]) -> Iterator[httpx.Client]:
    """A program's client."""
    with httpx.Client(base_url=f"http://{LOOPBACK}:{server[1].port}", timeout=20) as client:
        yield client


def _code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_every_route_refuses_a_foreign_host(server: tuple[str, Listening], http: httpx.Client) -> None:
    """A name that was pointed at the server (DNS rebinding), or another's address, is refused, whatever is asked."""
    kind, listening = server
    for method, path in _ROUTES[kind]:
        answer = http.request(method, path, headers={"host": "evil.example"})
        assert _code(answer) == (403, "foreign_host"), (method, path)
    for host in _FOREIGN:
        answer = http.get("/healthz", headers={"host": host.format(port=listening.port)})
        assert _code(answer) == (403, "foreign_host"), host


def test_every_route_refuses_a_foreign_origin(server: tuple[str, Listening], http: httpx.Client) -> None:
    """A page of another site, also of another port of this machine, is refused before anything is read of a body."""
    kind, listening = server
    for method, path in _ROUTES[kind]:
        answer = http.request(method, path, headers={"origin": "http://evil.example"}, content=b"{}")
        assert _code(answer) == (403, "foreign_origin"), (method, path)
    for origin in _ORIGINS:
        answer = http.get("/healthz", headers={"origin": origin.format(port=listening.port)})
        assert _code(answer) == (403, "foreign_origin"), origin


def test_own_names_and_pages_are_served(server: tuple[str, Listening], http: httpx.Client) -> None:
    """The loopback's names, those that a setting gives, and pages of the very server that is asked."""
    port = server[1].port
    own = [
        f"localhost:{port}",
        f"{LOOPBACK}:{port}",
        f"[::1]:{port}",
        "LOCALHOST",
        "anew.example",
        "other.example:8443",
    ]
    for host in own:
        assert http.get("/healthz", headers={"host": host}).status_code == 200, host
        assert http.get("/healthz", headers={"host": host, "origin": f"http://{host}"}).status_code == 200, host
    proxied = {"host": f"{LOOPBACK}:{port}", "origin": "https://anew.example"}
    assert http.get("/healthz", headers=proxied).status_code == 200
    assert _code(http.get("/healthz", headers={"host": "other.example"})) == (403, "foreign_host")
    assert http.get("/healthz").status_code == 200, "a program"


def test_a_body_that_a_page_may_send_unasked_is_refused(server: tuple[str, Listening], http: httpx.Client) -> None:
    """Every route that takes a body refuses one of a simple type, or, where it takes JSON, of no type."""
    kind, _ = server
    taking = [route for route in _ROUTES[kind] if route[0] in ("POST", "PATCH") and "nothing" not in route[1]]
    bare = ("/kill", "/remove", "/seen")
    for method, path in taking:
        for content_type in _SIMPLE:
            answer = http.request(method, path, headers={"content-type": content_type}, content=b'{"store": null}')
            expected = (422, "unexpected_body") if path.endswith(bare) else (415, "not_json")
            assert _code(answer) == expected, (method, path, content_type)
    route = "/v1/pause" if kind == "controller" else "/v1/query"
    assert _code(http.post(route, content=b"{}")) == (415, "not_json")
    answer = http.post(route, content=json.dumps({"x": 1}), headers={"content-type": "application/json; charset=utf-8"})
    assert answer.status_code == 422, "it is read"


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", ""])
def test_a_server_on_all_addresses_is_reached_by_each_and_by_no_name(bind: str) -> None:
    """No name can be pointed at what is an address already."""
    reach = Reach(bind)
    for host in ("10.1.2.3:7717", "[fd00::1]:7717", "localhost:7717"):
        reach.check(host, None)
    for foreign in ("evil.example", "10.1.2.3.evil.example", "", None):
        with pytest.raises(NotAllowed):
            reach.check(foreign, None)


def test_names_that_are_none_are_refused() -> None:
    """The setting takes names and ports, not URLs."""
    assert host_names("a.example, b.example:8443,") == ("a.example", "b.example:8443")
    for text in ("http://a.example", "a.example/x", "a.example:0", "a.example:x", "*.example"):
        with pytest.raises(InvalidRequest) as caught:
            host_names(text)
        assert caught.value.code == "bad_host_name"
