"""Lists of the controller in pages: over the wire, and as its client puts them together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from anew.api.http import ControllerClient
from anew.api.topics import CreateTopic
from anew.catalog.change import Change, PutPastVersions
from anew.core.stores.store import VersionStatus
from anew.testing.builders import a_version
from tests.component.controller.harness import Cluster, node_report, opened_cluster, plain
from tests.component.controller.tables.tables_harness import Tables

_LISTS: dict[str, Callable[[ControllerClient], Sequence[BaseModel]]] = {
    "/v1/stores": lambda client: client.stores(),
    "/v1/tables": lambda client: client.tables(),
    "/v1/tables/trips/segments": lambda client: client.segments("trips"),
    "/v1/tables/trips/segments?stale=true": lambda client: client.segments("trips", stale=True),
    "/v1/rebuilds": lambda client: client.rebuilds(),
    "/v1/rebuilds?running=true": lambda client: client.rebuilds(running=True),
    "/v1/rebuilds?store=flights": lambda client: client.rebuilds(store="flights"),
    "/v1/rebuilds?table=trips": lambda client: client.rebuilds(table="trips"),
    "/v1/topics": lambda client: client.topics(),
    "/v1/nodes": lambda client: client.nodes(),
    "/v1/history": lambda client: client.history(limit=1_000),
    "/v1/history?store=flights": lambda client: client.history("flights", 1_000),
    "/v1/reclaims": lambda client: client.reclaims(),
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A controller with several of everything that it lists."""
    with opened_cluster(tmp_path_factory.mktemp("controller")) as cluster:
        for name in ("flights", "batch", "people", "a_store", "z_store"):
            cluster.create(name, hybrid=name == "flights")
        for _ in range(2):
            cluster.serve(cluster.push_plan())
            # So that of several rebuilds some began at one time.
            cluster.serve(cluster.empty_push_plan("people"))
            cluster.pass_seconds(1)
        tables = Tables(cluster)
        for name in ("trips", "cabs", "buses"):
            tables.create(name)
        tables.load("c", "a", "e", "b", "d")
        tables.update(sort="city")
        refresh = tables.begin(tables.plan(max_segments=2))
        tables.commit(refresh, tables.refreshed(refresh, refresh.plan.segments[0].segment))
        for number in range(3, 8):
            cluster.client.report(node_report(f"node-{number}"))
        for name in ("clicks", "alerts", "zones", "bells"):
            cluster.client.create_topic(CreateTopic(name=name))
        cluster.client.delete_store("z_store")
        cluster.begin(cluster.push_plan())
        yield cluster


def _ask(cluster: Cluster, route: str, **params: object) -> tuple[int, Any]:
    """The status and the body of an answer."""
    url = httpx.URL(route)
    answer = cluster.http.get(url.path, params={**url.params, **{name: str(value) for name, value in params.items()}})
    return answer.status_code, answer.json()


def _pages(cluster: Cluster, route: str, limit: int) -> list[list[dict[str, Any]]]:
    """What is answered, page by page."""
    pages: list[list[dict[str, Any]]] = []
    after: dict[str, str] = {}
    while True:
        status, body = _ask(cluster, route, limit=limit, **after)
        assert status == 200, body
        assert set(body) == {"items", "next"}
        pages.append(body["items"])
        if body["next"] is None:
            return pages
        after = {"after": body["next"]}


@pytest.mark.parametrize("route", _LISTS)
@pytest.mark.parametrize("limit", [1, 2, 1_000])
def test_a_list_is_the_same_in_pages(full: Cluster, route: str, limit: int) -> None:
    """However long pages are, together they hold what the client gives, in its order, each once; none is too long."""
    pages = _pages(full, route, limit)
    found = [item for page in pages for item in page]
    assert found == plain(_LISTS[route](full.client))
    assert len(found) > 2 or route in ("/v1/rebuilds?running=true", "/v1/rebuilds?table=trips")
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert 0 < len(pages[-1]) <= limit


def test_a_page_reads_no_more_than_it_shows(full: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stores one more than the page holds, by which it is known that there is another page."""
    catalog, asked = full.context.catalog, []
    stores_page = catalog.stores_page

    def counted(after: str, limit: int) -> Any:
        asked.append((after, limit))
        return stores_page(after, limit)

    monkeypatch.setattr(catalog, "stores_page", counted)
    monkeypatch.setattr(catalog, "stores", lambda: pytest.fail("all stores are read"))
    assert full.http.get("/v1/stores", params={"limit": 2, "after": "a_store"}).json()["next"] == "flights"
    assert asked == [("a_store", 3)]


@pytest.mark.parametrize("route", _LISTS)
def test_limits_of_pages_are_kept(full: Cluster, route: str) -> None:
    """A page of nothing, or of more than the greatest limit, is refused; so is a key that no page gave."""
    for limit in (0, -1, 1_001, "many"):
        status, body = _ask(full, route, limit=limit)
        assert (status, body["error"]["code"]) == (422, "bad_request")
    for key in ("\0", "x" * 401):
        status, body = _ask(full, route, after=key)
        assert (status, body["error"]["code"]) == (422, "bad_request")
    if "rebuilds" in route or "reclaims" in route:
        for key in ("", "id-0001", ":id-0001", "1_0:x", "\uff11:x", "9" * 19 + ":x"):
            status, body = _ask(full, route, after=key)
            assert (status, body["error"]["code"]) == (422, "bad_page_key"), key


def test_what_goes_between_two_pages_is_missing_alone(cluster: Cluster) -> None:
    """The key of a page need not be there any more when the next one is asked for."""
    for name in ("a", "b", "c", "d"):
        cluster.create(name, hybrid=False)
    first = cluster.http.get("/v1/stores", params={"limit": 2}).json()
    assert first["next"] == "b"
    cluster.client.delete_store("b")
    second = cluster.http.get("/v1/stores", params={"limit": 2, "after": "b"}).json()
    assert ([store["name"] for store in second["items"]], second["next"]) == (["c", "d"], None)


def test_reclaimed_versions_of_a_store_come_in_pages(cluster: Cluster) -> None:
    """A store is shown with so many of them, the greatest numbers, and says below which number others are."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    past = tuple(a_version(number, VersionStatus.RECLAIMED) for number in range(10, 16))
    operation = cluster.context.operation("leave", "flights", "tester")
    put = PutPastVersions(cluster.store().uid, past, cluster.clock())
    cluster.context.catalog.commit(Change(operation, (put,)))

    def shown(**params: int) -> tuple[list[int], str | None]:
        answer = cluster.http.get("/v1/stores/flights", params=params).json()
        return [version["number"] for version in answer["fabrics"]["dc-0"]["versions"]], answer["next"]

    assert shown() == ([1, 10, 11, 12, 13, 14, 15], None)
    assert shown(limit=2) == ([1, 14, 15], "14")
    assert shown(limit=2, after=14) == ([1, 12, 13], "12")
    assert shown(limit=4, after=14) == ([1, 10, 11, 12, 13], None)
    assert shown(version=12, limit=1) == shown(version=12, after=11) == ([12], None)
    assert cluster.client.store("flights").next is None
    for params in ({"after": 2**31}, {"version": 2**31}, {"limit": 1_001}):
        assert cluster.http.get("/v1/stores/flights", params=params).status_code == 422
