"""The controller's client: requests as the routes want them, answers as values, failures as this project's errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from anew.api.http import ControllerClient
from anew.api.models import BeginRebuild, EndRebuild, Heartbeat, NodeReport, NodeView
from anew.api.rebuilds import StoreStart
from anew.api.stores.requests import CreateStore, RollBack, Seal, Swap, UpdateStore
from anew.api.stores.routing import SnapshotView
from anew.api.stores.views import Deleted, StoreView, SwapAnswer
from anew.api.upkeep import Alive, HistoryLine, ReclaimView
from anew.core.errors import AnewError, Failed, NotFound, OutcomeUnknown, Refused, Unreachable
from anew.core.ledger import Ledger
from anew.core.rebuild import Stage
from anew.core.stores.rebuild import Fingerprints
from anew.core.stores.store import ManifestRef
from anew.testing.answers import a_rebuild_view, a_store_detail, a_table_rebuild_view
from anew.testing.builders import a_feed, a_plan, a_rebuild, a_store, a_version
from anew.testing.table_builders import a_table, a_table_rebuild

Handler = Callable[[httpx.Request], httpx.Response]
Call = Callable[[ControllerClient], object]

_CREATE = CreateStore(name="flights", key_schema='"string"', value_schema='"string"')
_MANIFEST = ManifestRef(path="m", checksum="c", files=1, rows=1, tombstones=0, bytes=1, fingerprint=1)
_SEAL = Seal(
    epoch=1, manifest=_MANIFEST, ledger=Ledger(), fingerprint=Fingerprints(source=1, target=1), records_per_s=1.0
)
_REPORT = NodeReport(node="node-1", fabric="dc-0", url="http://127.0.0.1:1", started_at_ms=1, replicas=())
_BEGIN = BeginRebuild(plan=a_plan(a_store()), request_id="r-1")


def _client(handler: Handler, **options: Any) -> ControllerClient:
    return ControllerClient("http://controller/", transport=httpx.MockTransport(handler), **options)


def _answering(body: Any, status: int = 200) -> Handler:
    return lambda _: httpx.Response(status, json=body)


def _raising(error: type[httpx.HTTPError]) -> Handler:
    def handle(request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request)  # type: ignore[call-arg]  # transport errors take the request

    return handle


def _shown(answer: BaseModel) -> dict[str, Any]:
    return answer.model_dump(mode="json", by_alias=True)


_STORE = a_store_detail(a_store())
_MOVED = SwapAnswer(store="flights", dry_run=False, done={}, loaded={}, failed={})
_REBUILD = a_rebuild_view(a_rebuild(a_store()))
_NODE = NodeView(id="n", fabric="dc-0", url="http://n", alive=True, last_seen_ms=1, replicas=0, states={})
_LINE = HistoryLine(id="op-1", at_ms=1, actor="ann", what="swap", subject="flights", detail={"to": [2]})
_WAITS = ReclaimView(id="r", kind="tree", fabric="dc-0", not_before_ms=1, reason="why")

_ROUTES: list[tuple[Call, str, BaseModel]] = [
    (lambda c: c.create_store(_CREATE), "POST /v1/stores", _STORE),
    (lambda c: c.store("flights"), "GET /v1/stores/flights", _STORE),
    (lambda c: c.store("flights", 7), "GET /v1/stores/flights?version=7", _STORE),
    (lambda c: c.store("a/b?c"), "GET /v1/stores/a%2Fb%3Fc", _STORE),
    (lambda c: c.update_store("flights", UpdateStore()), "PATCH /v1/stores/flights", _STORE),
    (lambda c: c.delete_store("flights"), "DELETE /v1/stores/flights", Deleted(deleted="flights")),
    (lambda c: c.swap("flights", Swap(version=2)), "POST /v1/stores/flights/swap", _MOVED),
    (lambda c: c.roll_back("flights", RollBack()), "POST /v1/stores/flights/rollback", _MOVED),
    (lambda c: c.rebuild("r-1"), "GET /v1/rebuilds/r-1", _REBUILD),
    (
        lambda c: c.rebuild("r-1", after=Stage.LOAD, wait_seconds=2.5),
        "GET /v1/rebuilds/r-1?after=load&wait_seconds=2.5",
        _REBUILD,
    ),
    (lambda c: c.rebuild("r-1"), "GET /v1/rebuilds/r-1", a_table_rebuild_view(a_table_rebuild(a_table()))),
    (lambda c: c.seal("r-1", _SEAL), "POST /v1/rebuilds/r-1/seal", _REBUILD),
    (lambda c: c.fail_rebuild("r-1", EndRebuild(epoch=1, error="e")), "POST /v1/rebuilds/r-1/fail", _REBUILD),
    (lambda c: c.kill_rebuild("r-1"), "POST /v1/rebuilds/r-1/kill", _REBUILD),
    (lambda c: c.healthz(), "GET /healthz", Alive(status="alive")),
]


@pytest.mark.parametrize(("call", "route", "answer"), _ROUTES, ids=[route for _, route, _ in _ROUTES])
def test_each_method_asks_its_route(call: Call, route: str, answer: BaseModel) -> None:
    """A method sends one request to its route and gives back what is answered; fields that it does not know are not."""
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        return httpx.Response(200, json={**_shown(answer), "of_a_later_release": 1})

    assert call(_client(handle)) == answer
    assert asked == [route]


_LISTS: list[tuple[Call, str, BaseModel]] = [
    (lambda c: c.stores(), "/v1/stores?", StoreView.model_validate(_shown(_STORE))),
    (lambda c: c.rebuilds(), "/v1/rebuilds?running=false&", _REBUILD),
    (lambda c: c.rebuilds(store="flights", running=True), "/v1/rebuilds?store=flights&running=true&", _REBUILD),
    (lambda c: c.nodes(), "/v1/nodes?", _NODE),
    (lambda c: c.history("flights", 2_500), "/v1/history?store=flights&", _LINE),
    (lambda c: c.reclaims(), "/v1/reclaims?", _WAITS),
]


@pytest.mark.parametrize(("call", "route", "item"), _LISTS, ids=[route for _, route, _ in _LISTS])
def test_a_list_is_read_page_by_page(call: Call, route: str, item: BaseModel) -> None:
    """Each page is asked for by the key that the one before gave, until one gives none; an empty page ends nothing."""
    asked: list[str] = []
    pages = iter([([item], "k/1"), ([], "k2"), ([item, item], None)])

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        items, following = next(pages)
        return httpx.Response(200, json={"items": [_shown(each) for each in items], "next": following})

    found = call(_client(handle))
    assert isinstance(found, list)
    assert found == [item] * 3
    assert asked == [f"{route}limit=1000{after}" for after in ("", "&after=k%2F1", "&after=k2")]


def test_no_more_history_is_read_than_was_asked_for() -> None:
    """A few lines are one request, with their number as the limit, though there are more."""
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"items": [_shown(_LINE)] * 5, "next": "op-1"})

    assert _client(handle).history(limit=5) == [_LINE] * 5
    assert asked == ["/v1/history?limit=5"]


def test_the_rebuild_of_a_request_is_one_or_none() -> None:
    """It is asked for by the request's id alone."""
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"items": [_shown(_REBUILD)][: len(asked) - 1], "next": None})

    client = _client(handle)
    assert (client.begun_by("r-1"), client.begun_by("r-1")) == ([], [_REBUILD])
    assert asked == ["/v1/rebuilds?request_id=r-1"] * 2


def test_a_rebuild_of_what_nobody_knows_is_no_answer() -> None:
    """An answer that fits no subject, or lacks what its subject has, is refused as unexpected."""
    shown = _shown(_REBUILD)
    for broken in ({**shown, "stage": "tea"}, {key: shown[key] for key in shown if key != "store"}, 7):
        with pytest.raises(Failed) as caught:
            _client(_answering(broken)).rebuild("r-1")
        assert caught.value.code == "unexpected_answer"


def test_models_come_back_whole() -> None:
    """Wire models survive the way there and back, with whole-number keys, positions and tuples."""
    store = a_store(feeds=(a_feed(),), versions=(a_version(),))
    snapshot = SnapshotView(store=store, base_files={1: 2}, now_ms=5)
    sent = json.loads(snapshot.model_dump_json())
    assert _client(_answering(sent)).snapshot("flights", 3) == snapshot
    start = StoreStart(rebuild=a_rebuild(store), subject=store)
    assert _client(_answering(json.loads(start.model_dump_json()), 201)).begin_rebuild(_BEGIN, StoreStart) == start
    answer = {"kill_asked": False, "lease_until_ms": 7, "of a later release": 1}
    beat = _client(_answering(answer)).heartbeat("r-1", Heartbeat(epoch=1, stage=Stage.BUILD))
    assert (beat.kill_asked, beat.lease_until_ms) == (False, 7)


def test_a_long_poll_waits_longer_than_the_timeout() -> None:
    """The wait that the controller is asked for is added to the timeout; nothing new is None."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    client = _client(handle, timeout_seconds=3.0)
    assert client.desired("node-1", "dc-0", after=5, wait_seconds=20.0) is None
    assert client.report(_REPORT) is None  # type: ignore[func-returns-value]  # that it answers nothing is the claim
    query = dict(seen[0].url.params)
    assert query == {"fabric": "dc-0", "after": "5", "wait_seconds": "20.0"}
    assert [request.extensions["timeout"]["read"] for request in seen] == [23.0, 3.0]


def test_a_desired_state_is_parsed() -> None:
    """What a node should hold comes as a value."""
    log = {"kind": "embedded", "address": "/log"}
    body = {"revision": 3, "fabric": "dc-0", "log": log, "deep_store": "/deep", "stores": []}
    desired = _client(_answering(body)).desired("node-1", "dc-0")
    assert desired is not None
    assert (desired.revision, desired.log.address, desired.stores) == (3, "/log", ())


@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (409, Refused), (503, Unreachable), (500, Failed)])
def test_the_controller_s_errors_come_back_as_they_were(status: int, kind: type[AnewError]) -> None:
    """An error body becomes the same class with code, found, expected and hint."""
    error = {"code": "some_code", "message": "no", "found": 1, "expected": 2, "hint": "anew up"}
    with pytest.raises(kind) as caught:
        _client(_answering({"error": error}, status)).create_store(_CREATE)
    assert type(caught.value) is kind
    assert caught.value.to_json() == error


def test_a_controller_that_is_not_there() -> None:
    """A request that was never sent is controller_unreachable, also for a change."""
    calls: list[Call] = [lambda c: c.stores(), lambda c: c.create_store(_CREATE)]
    for error in (httpx.ConnectError, httpx.ConnectTimeout):
        for call in calls:
            with pytest.raises(Unreachable) as caught:
                call(_client(_raising(error)))
            assert caught.value.code == "controller_unreachable"
            assert "anew up" in str(caught.value.hint)


_CHANGES: list[tuple[Call, str]] = [
    (lambda c: c.create_store(_CREATE), "anew store show flights"),
    (lambda c: c.update_store("flights", UpdateStore()), "anew store show flights"),
    (lambda c: c.delete_store("flights"), "anew store list"),
    (lambda c: c.swap("flights", Swap(version=1)), "anew store show flights"),
    (lambda c: c.roll_back("flights", RollBack()), "anew store show flights"),
    (lambda c: c.begin_rebuild(_BEGIN, StoreStart), "anew rebuild list"),
    (lambda c: c.seal("r-1", _SEAL), "anew rebuild show r-1"),
    (lambda c: c.fail_rebuild("r-1", EndRebuild()), "anew rebuild show r-1"),
    (lambda c: c.kill_rebuild("r-1"), "anew rebuild show r-1"),
    (lambda c: c.heartbeat("r-1", Heartbeat(epoch=1, stage=Stage.BUILD)), "anew rebuild show r-1"),
    (lambda c: c.report(_REPORT), "anew node list"),
]


@pytest.mark.case("rules:R22")
@pytest.mark.parametrize(("call", "hint"), _CHANGES)
@pytest.mark.parametrize(
    "handler",
    [
        _raising(httpx.ReadTimeout),
        _raising(httpx.RemoteProtocolError),
        _raising(httpx.WriteError),
        lambda _: httpx.Response(502, text="Bad Gateway"),
    ],
)
def test_a_lost_answer_to_a_change_is_unknown(call: Call, hint: str, handler: Handler) -> None:
    """A change that was sent and not answered is answer_lost, and the hint is the command that looks it up."""
    with pytest.raises(OutcomeUnknown) as caught:
        call(_client(handler))
    assert (caught.value.code, caught.value.hint) == ("answer_lost", hint)


@pytest.mark.parametrize("handler", [_raising(httpx.ReadTimeout), lambda _: httpx.Response(502, text="Bad Gateway")])
def test_a_lost_answer_to_a_question_is_unreachable(handler: Handler) -> None:
    """A question changes nothing, so that its lost answer is nothing worse than no answer."""
    with pytest.raises(Unreachable) as caught:
        _client(handler).store("flights")
    assert caught.value.code == "controller_unreachable"


@pytest.mark.parametrize(
    "answer", [httpx.Response(200, text="<html>"), httpx.Response(200, json=[1]), httpx.Response(404, text="nope")]
)
def test_somebody_else_s_answer_is_unexpected(answer: httpx.Response) -> None:
    """What is no answer of a controller is said to be so, with what was found."""
    with pytest.raises(Failed) as caught:
        _client(lambda _: answer).cluster("dc-0")
    assert caught.value.code == "unexpected_answer"
