"""The controller's OpenAPI document, taken at its word: requests made from it, and what it promises of answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from anew.api.security import ServerSecurity
from tests.component.controller.harness import Cluster, opened_cluster
from tests.controllerroutes import CONTROLLER_RIGHTS

_EXAMPLES = 20
"""For each operation: some 700 requests in half a minute."""
_SEED = 20_260_301
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
_LAST = {("DELETE", "/v1/stores/{name}"), ("POST", "/v1/nodes/{node}/remove")}
_ROUTES = sorted(CONTROLLER_RIGHTS, key=lambda route: route in _LAST)
"""What takes something away comes last: all requests are made to one controller."""
_KNOWN = {"name": ["flights", "people"], "node": ["node-1"], "fabric": ["dc-0"], "store": ["flights"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A controller with two stores, a version and a rebuild."""
    # By that name schemathesis asks.
    security = ServerSecurity(names=frozenset({"testserver"}))
    with opened_cluster(tmp_path_factory.mktemp("controller"), security=security) as cluster:
        cluster.create("flights")
        cluster.create("people", hybrid=False)
        cluster.serve(cluster.push_plan())
        yield cluster


@pytest.fixture(scope="module")
def document(cluster: Cluster) -> Any:
    """Its document."""
    return schemathesis.openapi.from_asgi("/openapi.json", cluster.app)


def _aim(case: Any, data: DataObject, rebuild: str) -> None:
    """Let half of the requests name what is there, so that they get further than to its absence; none waits."""
    for values in (case.path_parameters, case.query):
        for name in set(values) & (set(_KNOWN) | {"rebuild_id"}):
            if data.draw(st.booleans()):
                values[name] = data.draw(st.sampled_from([*_KNOWN.get(name, [rebuild])]))
        if "wait_seconds" in values:
            values["wait_seconds"] = 0


@pytest.mark.parametrize("route", _ROUTES, ids=lambda route: " ".join(route))
def test_no_request_makes_the_controller_break_its_word(
    cluster: Cluster, document: Any, route: tuple[str, str]
) -> None:
    """Whatever is asked, the answer is one that the document describes, and never a failure of the server itself."""
    operation = document[route[1]][route[0]]
    (rebuild, *_) = (view.id for view in cluster.client.rebuilds() if view.status == "succeeded")

    @seed(_SEED)
    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), data=st.data())
    def ask(case: Any, data: DataObject) -> None:
        _aim(case, data, rebuild)
        case.validate_response(case.call(), checks=_CHECKS)

    ask()
