"""Who is let in to the controller: every route with no token, too small a one, and one for another store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from anew.api.gate import Gate, Tokens
from anew.api.rights import ANY_SUBJECT, NODE_RIGHTS, Concerns, Need
from anew.api.security import Credentials, RequestLimits, ServerSecurity
from anew.api.stores.requests import RollBack
from anew.controller.http.admission import RIGHT_SHOWN, Admission, guarded
from anew.controller.subjects import SUBJECTS
from anew.core.errors import InvalidRequest, NotFound, Refused
from anew.core.grants import Grant, Right, format_grants, token_hash
from tests.component.controller.harness import Cluster, opened_cluster, refused
from tests.controllerroutes import CONTROLLER_RIGHTS

_BELOW = {Right.READ: None, Right.WRITE: "reader", Right.OPERATE: "writer", Right.SUBMIT: "operator"}
_NAMES = {Right.READ: "reader", Right.WRITE: "writer", Right.OPERATE: "operator", Right.SUBMIT: "submitter"}
_PARTS = {"name": "flights", "node": "node-1", "rebuild_id": "r1", "config_hash": "t1-0", "number": "1"}


def _grants() -> tuple[Grant, ...]:
    everything = [Grant(_NAMES[right], right, token_hash(_NAMES[right])) for right in Right]
    flights = Grant("flights-operator", Right.OPERATE, token_hash("flights-operator"), frozenset({"flights"}))
    submitter = Grant("flights-submitter", Right.SUBMIT, token_hash("flights-submitter"), frozenset({"flights"}))
    return (*everything, flights, submitter)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Cluster]:
    """A controller that asks for tokens, with a store."""
    file = tmp_path / "tokens.toml"
    file.write_text(format_grants(_grants()), encoding="utf-8")
    file.chmod(0o600)
    limits = RequestLimits(body_bytes=20_000)
    with opened_cluster(tmp_path, security=ServerSecurity(Tokens(file, "own"), limits=limits)) as cluster:
        cluster.create("flights")
        cluster.create("people")
        yield cluster


def _ask(cluster: Cluster, route: tuple[str, str], token: str | None, **request: Any) -> tuple[int, str]:
    method, path = route
    headers = {"content-type": "application/json"} | ({} if token is None else {"authorization": f"Bearer {token}"})
    parts = _PARTS | request.pop("parts", {})
    answer = cluster.http.request(method, path.format(**parts), headers=headers, **request)
    shown = answer.json() if answer.headers.get("content-type") == "application/json" else {}
    code = shown["error"]["code"] if isinstance(shown, dict) and "error" in shown else ""
    return answer.status_code, code


def _takes(cluster: Cluster, needs: dict[tuple[str, str], Need]) -> dict[tuple[str, str], Need]:
    """Routes that take a right, without those that would wait or forget a node."""
    assert needs
    return {route: need for route, need in needs.items() if need.right is not None}


def test_every_route_declares_its_right(closed: Cluster) -> None:
    """The document tells the right of each route; one that declares none cannot be made, nor is there any beside."""
    document = closed.http.get("/openapi.json").json()
    shown = {
        (method.upper(), path): operation[RIGHT_SHOWN]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert shown == {route: need.right or "none" for route, need in CONTROLLER_RIGHTS.items()}
    served = {getattr(route, "path", None) for route in closed.app.routes}
    assert served - {path for _, path in shown} == {"/docs", "/docs/oauth2-redirect", "/openapi.json"}
    app = FastAPI()
    app.router.route_class = guarded(Admission(closed.context, Gate(None, closed.clock), RequestLimits()))
    with pytest.raises(LookupError):
        app.get("/v1/forgotten")(lambda: None)


def test_only_health_is_open() -> None:
    """Everything else takes a right; what changes something takes more than reading."""
    needs = {f"{method} {path}": need for (method, path), need in CONTROLLER_RIGHTS.items()} | NODE_RIGHTS
    assert {name.split()[-1] for name, need in needs.items() if need.right is None} == {"/healthz", "/readyz"}
    reading = {n for n, need in needs.items() if need.right is Right.READ and not n.startswith(("GET", "/"))}
    assert reading == {
        "POST /v1/stores/{name}/hold",
        "POST /v1/tables/{name}/refresh:plan",
        "POST /v1/jobs/{name}/diff",
        "POST /v1/jobs/{name}/rewind:plan",
        "keys",
        "keys:batch",
        "partitions",
    }


def test_nobody_is_let_in_without_a_token(closed: Cluster) -> None:
    """Every route but the open ones answers 401 and says how to ask; an unknown token gains nothing."""
    for route, need in CONTROLLER_RIGHTS.items():
        expected = (401, "token_missing") if need.right is not None else (200, "")
        assert _ask(closed, route, None) == expected, route
        if need.right is not None:
            assert _ask(closed, route, "guess") == (401, "token_unknown"), route
    assert closed.http.get("/v1/stores").headers["www-authenticate"] == "Bearer"


def test_every_route_refuses_the_right_below_its_own(closed: Cluster) -> None:
    """403 for a token that is known but too small, before anything is read or changed; its own right is let in."""
    for route, need in _takes(closed, CONTROLLER_RIGHTS).items():
        assert need.right is not None
        below = _BELOW[need.right]
        if below is not None:
            assert _ask(closed, route, below) == (403, "not_allowed"), route
        assert _ask(closed, route, _NAMES[need.right])[0] not in (401, 403), route


def test_a_token_for_one_store_is_refused_for_others_and_the_whole(closed: Cluster) -> None:
    """Wherever a request says which store it concerns: path, query, body, plan or rebuild."""
    plan = closed.push_plan("people").model_dump(mode="json")
    rebuild = closed.begin(closed.push_plan("people"))
    requests: dict[Concerns, dict[str, Any]] = {
        Concerns.PATH: {"parts": {"name": "people"}},
        Concerns.QUERY: {"params": {"store": "people"}},
        Concerns.BODY: {"json": {"store": "people"}},
        Concerns.PLAN: {"json": {"plan": plan}},
        Concerns.REBUILD: {"parts": {"rebuild_id": rebuild.id}},
        Concerns.CLUSTER: {},
    }
    for route, need in _takes(closed, CONTROLLER_RIGHTS).items():
        if need.concerns is Concerns.NO_STORE:
            assert _ask(closed, route, "flights-operator")[0] in (200, 404), route
            continue
        assert _ask(closed, route, "flights-operator", **requests[need.concerns]) == (403, "not_allowed"), route
        if need.concerns is not Concerns.PATH:
            assert _ask(closed, route, "flights-operator") == (403, "not_allowed"), (route, "names no store")
    assert _ask(closed, ("POST", "/v1/stores"), "flights-operator", json={"name": "other"})[0] == 403


def test_a_token_for_one_store_does_what_it_may_there(closed: Cluster) -> None:
    """Its store can be shown, updated, rebuilt, paused and deleted."""
    client = closed.acting("mallory", Credentials("flights-operator"))
    assert client.store("flights").name == "flights"
    assert client.rebuilds(store="flights") == []
    client.pause("flights")
    client.unpause("flights")
    assert refused(Refused, lambda: client.pause("people")).code == "not_allowed"
    assert refused(Refused, lambda: client.roll_back("flights", RollBack())).code != "not_allowed"
    client.delete_store("flights")
    assert refused(NotFound, lambda: closed.client.store("flights")).code == "unknown_store"


def test_history_bears_the_tokens_name(closed: Cluster) -> None:
    """Whatever a client says of itself, what it did is written down under its token's name."""
    closed.acting("mallory", Credentials("operator")).pause("people")
    assert closed.client.history("people", 1)[0].actor == "operator"
    closed.client.pause("flights")
    assert closed.client.history("flights", 1)[0].actor == "cluster"


def test_refusals_reach_the_client_as_refused(closed: Cluster) -> None:
    """401 and 403 are exit code 3 to whoever asked."""
    for token, code in ((None, "token_missing"), ("guess", "token_unknown"), ("reader", "not_allowed")):
        client = closed.acting("somebody", Credentials(token))
        error = refused(Refused, lambda client=client: client.pause("people"))  # type: ignore[misc]  # bound now
        assert (error.code, error.exit_code) == (code, 3)


def test_a_body_that_is_too_large_is_refused(closed: Cluster) -> None:
    """By what it says of its length, or, in chunks, by what came; a token is asked for before either."""
    large, route = b" " * 20_001, ("POST", "/v1/pause")
    assert _ask(closed, route, "operator", content=large) == (413, "request_too_large")
    assert _ask(closed, route, "operator", content=iter([large[:10_000], large[10_000:]])) == (413, "request_too_large")
    assert _ask(closed, route, "operator", content=large[:20_000])[0] == 422, "as large as it may be"
    assert _ask(closed, route, None, content=large) == (401, "token_missing")
    client = closed.acting("somebody", Credentials("operator"))
    error = refused(InvalidRequest, lambda: client.pause("x" * 20_000))
    assert (error.code, error.exit_code) == ("request_too_large", 2)


def test_a_plan_with_another_configuration_is_refused(cluster: Cluster) -> None:
    """Who may push may not thereby change the store's configuration, which may hold a partitioner's code."""
    cluster.create()
    plan = cluster.push_plan()
    config = plan.target.config.model_copy(update={"partitions": 9})
    forged = plan.model_copy(update={"target": plan.target.model_copy(update={"config": config})}).sealed()
    assert refused(Refused, lambda: cluster.begin(forged)).code == "plan_outdated"
    assert cluster.begin(plan).version == 1


def test_paths_that_are_not_there_answer_in_the_shape_of_errors(cluster: Cluster) -> None:
    """Unknown paths and methods are errors like any other."""
    assert _ask(cluster, ("GET", "/v1/nothing"), None) == (404, "unknown_path")
    assert _ask(cluster, ("PUT", "/v1/stores"), None) == (405, "bad_method")


def _parameters(cluster: Cluster) -> dict[tuple[str, str], set[str]]:
    """Which parameters each route has in its query."""
    paths = cluster.http.get("/openapi.json").json()["paths"]
    return {
        (method.upper(), path): {each["name"] for each in told.get("parameters", ()) if each["in"] == "query"}
        for path, methods in paths.items()
        for method, told in methods.items()
    }


def _named(names: tuple[str, ...]) -> set[str]:
    """The names, with those of all subjects where any may be named."""
    return {name for each in names for name in (SUBJECTS.names if each == ANY_SUBJECT else (each,))}


def test_every_parameter_that_a_route_does_not_have_is_refused(closed: Cluster) -> None:
    """Each route with each parameter of any route, and an unheard one, for each kind of token; nothing is answered."""
    known = _parameters(closed)
    every = set().union(*known.values(), {"table", "store", "name", "unheard"})
    for route, need in _takes(closed, CONTROLLER_RIGHTS).items():
        for name in sorted(every - known[route]):
            for token in ("submitter", "own"):
                found = _ask(closed, route, token, params={name: "flights"})
                assert found == (422, "unknown_parameter"), (route, name, token)
            found = _ask(closed, route, "flights-operator", params={name: "flights"})
            assert found in ((422, "unknown_parameter"), (403, "not_allowed")), (route, name)
        assert need.concerns is not Concerns.QUERY or _named(need.names) <= known[route], route


def test_a_parameter_opens_no_other_store(closed: Cluster) -> None:
    """No parameter of any route, alone, twice or beside another one, shows a token for one store another's data."""
    closed.client.pause("people")
    begun = closed.begin(closed.push_plan("people"), "of-people")
    values = {"store": "people", "table": "people", "request_id": "of-people"}
    for route, names in _parameters(closed).items():
        for name in names & values.keys():
            asked: list[list[tuple[str, str]]] = [
                [(name, values[name])],
                [(name, "flights"), (name, values[name])],
                [(name, values[name]), (name, "flights")],
                *([("store", "flights"), (name, values[name])] for _ in ("",) if name != "store"),
            ]
            for params in asked:
                status, code = _ask(closed, route, "flights-operator", params=params)
                refusals = ((403, "not_allowed"), (422, "repeated_parameter"), (422, "two_names"))
                assert (status, code) in refusals, (route, params)
    headers = {"authorization": "Bearer flights-operator"}
    shown = closed.http.get("/v1/history", params={"store": "flights"}, headers=headers).json()
    assert {each["subject"] for each in shown["items"]} == {"flights"}
    assert begun.id not in str(shown)
    assert closed.http.get("/v1/rebuilds", params={"request_id": "nobodys"}, headers=headers).json()["items"] == []


def test_a_member_that_a_route_does_not_have_is_refused(closed: Cluster) -> None:
    """Names in bodies that disagree, come twice, or are of another route: refused for every token, nothing changed."""
    bodies = {
        "/v1/stores": '{"store": "flights", "name": "other", "key_schema": "1", "value_schema": "1"}',
        "/v1/tables": '{"store": "flights", "name": "other", "columns": {}}',
        "/v1/topics": '{"store": "flights", "name": "other"}',
    }
    revision = closed.context.catalog.revision()
    for (method, path), need in _takes(closed, CONTROLLER_RIGHTS).items():
        if method not in ("POST", "PATCH"):
            continue
        for body in ('{"name": "flights", "unheard": 1}', '{"store": "people", "table": "flights", "unheard": 1}'):
            for token in ("own", "flights-operator"):
                found = _ask(closed, (method, path), token, content=bodies.get(path, body))
                assert found[0] in (403, 404, 422), (method, path, body, token)
        if need.concerns is Concerns.BODY:
            twice = '{"%s": "people", "%s": "flights"}' % (need.names * 2)
            assert _ask(closed, (method, path), "flights-operator", content=twice) == (422, "repeated_member"), path
    assert closed.context.catalog.revision() == revision


def test_a_request_id_opens_no_other_stores_rebuild(closed: Cluster) -> None:
    """Who knows the id of another store's request, and the hash of its plan, is not answered with its rebuild."""
    theirs = closed.push_plan("people")
    closed.begin(theirs, "shared")
    forged = closed.push_plan("flights").model_copy(update={"asked": theirs.request_hash})
    body = {"plan": forged.model_dump(mode="json"), "request_id": "shared", "driver": "mallory"}
    assert _ask(closed, ("POST", "/v1/rebuilds"), "flights-operator", json=body) == (422, "request_id_reused")


def test_a_job_is_begun_by_those_who_may_submit_in_the_whole_cluster(closed: Cluster) -> None:
    """Its plan names code, which runs with the cluster's rights: operating is not enough, nor is one store's token."""
    plan = {"kind": "rewind", "job": "flights", "generation": 1}
    for token in ("writer", "operator", "flights-submitter"):
        asked = _ask(closed, ("POST", "/v1/rebuilds"), token, json={"plan": plan, "request_id": "r"})
        assert asked == (403, "not_allowed"), token
    assert _ask(closed, ("POST", "/v1/rebuilds"), "submitter", json={"plan": plan, "request_id": "r"})[0] == 422
    body = {"name": "flights", "output": "store:people", "inputs": {"a": "b"}}
    assert _ask(closed, ("POST", "/v1/jobs"), "flights-submitter", json=body) == (403, "not_allowed")
