"""The controller's own description of itself: served, with examples that hold and errors that have one shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from anew.api import models
from anew.api import topics as of_topics
from anew.api.errors import ErrorAnswer
from anew.api.jobs import requests as of_jobs
from anew.api.pages import DEFAULT_ITEMS, MAX_ITEMS
from anew.api.stores import requests as of_stores
from anew.api.tables import requests as of_tables
from tests.component.controller.harness import Cluster

_MADE_BY_DRIVERS_AND_NODES = {"BeginRebuild", "Seal", "NodeReport"} | {
    "CommitSegment",
    "CommitLoad",
    "RecordBatch",
    "DriverEnded",
}
"""Bodies that nobody writes by hand: plans, manifests and reports."""


@pytest.fixture
def document(cluster: Cluster) -> dict[str, Any]:
    """The OpenAPI document as the controller serves it."""
    answer = cluster.http.get("/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


_BOUNDED = {"POST /v1/rebuilds/{rebuild_id}/segments:read"}
"""Answers that are lists as long as what was asked for, which has a limit of its own."""

_NAME_A_STORE = {"POST /v1/stores", "POST /v1/rebuilds", "GET /v1/rebuilds", "GET /v1/history", "GET /v1/events"} | {
    "POST /v1/pause",
    "POST /v1/unpause",
    "POST /v1/gc",
    "POST /v1/tables",
    "POST /v1/jobs",
    "POST /v1/topics",
}
"""Operations that may name a store that is not there, though not in their path."""


def _operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def _bodies(document: dict[str, Any]) -> dict[str, str]:
    """Each operation with a body → the name of the body's model."""
    return {
        name: operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        for name, operation in _operations(document).items()
        if "requestBody" in operation
    }


def _model(name: str) -> type[BaseModel]:
    found: list[type[BaseModel]] = [
        vars(m)[name] for m in (models, of_stores, of_tables, of_topics, of_jobs) if name in vars(m)
    ]
    return found[0]


def test_the_page_for_people_is_served(cluster: Cluster) -> None:
    """``/docs`` shows the document."""
    answer = cluster.http.get("/docs")
    assert (answer.status_code, "/openapi.json" in answer.text) == (200, True)


def test_every_body_that_people_write_has_an_example_that_holds(document: dict[str, Any]) -> None:
    """The examples in the document are requests that their own models accept, with the values as they were written."""
    bodies = _bodies(document)
    assert {"POST /v1/stores", "PATCH /v1/stores/{name}", "POST /v1/rebuilds"} <= bodies.keys()
    for model in set(bodies.values()) - _MADE_BY_DRIVERS_AND_NODES:
        examples = document["components"]["schemas"][model]["examples"]
        assert examples, model
        for example in examples:
            dumped = _model(model).model_validate(example).model_dump(mode="json", exclude_unset=True)
            assert dumped == example, model


def test_an_example_with_a_typing_error_would_not_hold(document: dict[str, Any]) -> None:
    """Requests refuse fields that they do not have, so that a wrong example is noticed."""
    for model in set(_bodies(document).values()) - _MADE_BY_DRIVERS_AND_NODES:
        example = document["components"]["schemas"][model]["examples"][0]
        with pytest.raises(ValidationError):
            _model(model).model_validate({**example, "no_such_field": 1})


def test_the_example_of_a_store_makes_one(cluster: Cluster, document: dict[str, Any]) -> None:
    """What the document shows for making a store can be sent as it is, and again."""
    example = document["components"]["schemas"]["CreateStore"]["examples"][0]
    made = cluster.http.post("/v1/stores", json=example)
    again = cluster.http.post("/v1/stores", json=example)
    assert (made.status_code, again.status_code) == (201, 201), made.text
    assert made.json()["name"] == example["name"]


def test_every_operation_says_what_it_does(document: dict[str, Any]) -> None:
    """Every operation has a summary of its own: one sentence, without a full stop."""
    summaries = {name: operation["summary"] for name, operation in _operations(document).items()}
    assert {name for name, text in summaries.items() if not text or text.endswith(".") or "\n" in text} == set()
    assert summaries["DELETE /v1/stores/{name}"] == "Delete a store"


def test_errors_are_described_as_they_are_answered(cluster: Cluster, document: dict[str, Any]) -> None:
    """The described shape is that of real refusals, and operations name the errors that they can give."""
    for name, operation in _operations(document).items():
        if " /v1/" not in name:
            continue
        errors = {status for status in operation["responses"] if status >= "400"}
        wanted = {"401", "403", "422", "503"} | ({"404"} if "{" in name or name in _NAME_A_STORE else set())
        wanted |= set() if name.startswith("GET") else {"409"}
        wanted |= {"408", "413", "415"} if name.startswith(("POST", "PATCH")) else set()
        assert errors == wanted, name
        for status in errors:
            schema = operation["responses"][status]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}, name
    absent = cluster.http.get("/v1/stores/nobody")
    misfit = cluster.http.post("/v1/stores", json={"name": 1})
    for answer, status in ((absent, 404), (misfit, 422)):
        assert answer.status_code == status
        assert ErrorAnswer.model_validate(answer.json()).model_dump() == answer.json()
    assert ErrorAnswer.model_validate(absent.json()).error.code == "unknown_store"


_ANY_JSON = {
    "Change.now",
    "Change.wanted",
    "ColumnStats.greatest",
    "ColumnStats.least",
    "ErrorDetail.expected",
    "ErrorDetail.found",
    "JobChange.now",
    "JobChange.wanted",
    "JsonValue",
    "PendingChange.now",
    "PendingChange.wanted",
    "Plan.segments",
}
"""Fields of answers that hold whatever JSON there is: values of settings and of columns, and what an error is about."""


def _untyped(document: dict[str, Any], schema: dict[str, Any], at: str, seen: set[str]) -> Iterator[str]:
    """Where a schema says nothing of what it describes: anything at all, or an object with any members."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        if name not in seen:
            seen.add(name)
            found = document["components"]["schemas"][name]
            yield from _untyped(document, found, name.removesuffix("-Output"), seen)
        return
    parts = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, ())]
    members, others = schema.get("properties", {}), schema.get("additionalProperties")
    is_open = schema.get("type") == "object" and not members and not (isinstance(others, dict) and others)
    if is_open or not (parts or {"type", "const", "enum"} & schema.keys()):
        yield at
    for part in (*parts, *([others] if isinstance(others, dict) and others else ())):
        yield from _untyped(document, part, at, seen)
    if "items" in schema:
        yield from _untyped(document, schema["items"], at, seen)
    for name, member in members.items():
        yield from _untyped(document, member, f"{at}.{name}", seen)


def _answers(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas of what is answered where all went well."""
    for status, answer in operation["responses"].items():
        if status.startswith("2") and "application/json" in answer.get("content", {}):
            yield answer["content"]["application/json"]["schema"]


def test_every_answer_is_typed_through_and_through(document: dict[str, Any]) -> None:
    """Whatever is answered has a schema that names its members, down to values that can be any JSON."""
    operations = _operations(document)
    bare = {name for name, operation in operations.items() if not list(_answers(operation))}
    assert bare == {
        "GET /metrics",
        "POST /v1/stores/{name}/hold",
        "POST /v1/nodes/{node}/report",
        "POST /v1/rebuilds/{rebuild_id}/ended",
    }
    seen: set[str] = set()
    found = {
        place
        for name, operation in operations.items()
        for schema in _answers(operation)
        for place in _untyped(document, schema, name, seen)
    }
    assert found == _ANY_JSON


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": True},
        {"type": "array", "items": {}},
        {"type": "array", "items": {"type": "object", "additionalProperties": True}},
        {"anyOf": [{"type": "string"}, {"title": "Anything"}]},
        {"type": "object", "additionalProperties": {"type": "object"}},
        {"type": "object", "properties": {"inner": {}}},
    ],
)
def test_an_answer_without_a_type_would_be_found(schema: dict[str, Any]) -> None:
    """Anything, an object of anything, or lists and members of them."""
    assert list(_untyped({}, schema, "GET /v1/tea", set()))


def test_every_list_is_paged(document: dict[str, Any]) -> None:
    """No answer is a bare list; each list has ``limit``, with a default and a greatest value, and ``after``."""
    paged = set()
    for name, operation in _operations(document).items():
        for schema in _answers(operation):
            assert schema.get("type") != "array" or name in _BOUNDED, name
            reference = schema.get("$ref", "").rsplit("/", 1)[-1]
            if set(document["components"]["schemas"].get(reference, {}).get("properties", {})) == {"items", "next"}:
                paged.add(name)
                parameters = {each["name"]: each["schema"] for each in operation["parameters"]}
                limit = {key: parameters["limit"][key] for key in ("minimum", "maximum", "default")}
                assert limit == {"minimum": 1, "maximum": MAX_ITEMS, "default": DEFAULT_ITEMS}, name
                assert [form["type"] for form in parameters["after"]["anyOf"]] == ["string", "null"], name
    assert paged == {
        "GET /v1/history",
        "GET /v1/jobs",
        "GET /v1/jobs/{name}/dead-letters",
        "GET /v1/nodes",
        "GET /v1/rebuilds",
        "GET /v1/reclaims",
        "GET /v1/stores",
        "GET /v1/tables",
        "GET /v1/tables/{name}/segments",
        "GET /v1/topics",
    }
