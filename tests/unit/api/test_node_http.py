"""A node's answers as values, and what is no answer of a node as this project's errors."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from anew.api.node_http import Address, NodeClient, Seen
from anew.api.stores.node_wire import BatchAnswer, KeyResult, KeyState, ScanItem, ScanPage, encode_answer, encode_page
from anew.core.errors import AnewError, Failed, InvalidRequest, NotFound, Refused, Unreachable

_ADDRESS = Address("flights", "uid-1", 7)
_ANSWER = BatchAnswer(7, 3, (KeyResult(KeyState.FOUND, 1, 5, b"v"), KeyResult(KeyState.ABSENT)))
_SEEN = {"anew-current-version": "8", "anew-store-revision": "12"}


def _client(handle: Callable[[httpx.Request], httpx.Response]) -> NodeClient:
    return NodeClient(transport=httpx.MockTransport(handle))


def _refused(answer: httpx.Response) -> AnewError:
    with pytest.raises(AnewError) as caught:
        _client(lambda _: answer).batch("http://node-1", _ADDRESS, [b"a", b"b"])
    return caught.value


def test_answers_are_values_with_what_the_node_says_of_the_store() -> None:
    """Batches and pages come with the current version and revision; requests carry the store's uid (rule R16)."""
    asked: list[str] = []
    page = ScanPage(7, (ScanItem(b"k", 1, 5, b"v"),), b"k")

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.headers["anew-store-uid"] == "uid-1"
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        content = encode_answer(_ANSWER) if request.method == "POST" else encode_page(page)
        return httpx.Response(200, headers=_SEEN, content=content)

    client = _client(handle)
    assert client.batch("http://node-1", _ADDRESS, [b"a", b"b"]) == (_ANSWER, Seen(8, 12))
    assert client.page("http://node-1", _ADDRESS, (3, 0), b"\xff\xfe") == (page, Seen(8, 12))
    assert client.page("http://node-1", Address("a/b", "uid-1", 7), (3, 0), None)[0] == page
    assert asked == [
        "POST /v1/stores/flights/versions/7/keys:batch",
        "GET /v1/stores/flights/versions/7/partitions/3/scan?sub=0&after=__4",
        "GET /v1/stores/a%2Fb/versions/7/partitions/3/scan?sub=0",
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, Refused),
        (404, NotFound),
        (409, Refused),
        (410, Refused),
        (421, Refused),
        (422, InvalidRequest),
        (500, Failed),
        (503, Unreachable),
    ],
)
def test_what_a_node_refuses_has_its_class(status: int, kind: type[AnewError]) -> None:
    """Every refusal of a node is a refusal here, whatever status it wears; code and attributes are kept."""
    said = Refused("some_code", "why", found=1, expected=2, hint="do that")
    error = _refused(httpx.Response(status, json={"error": said.to_json()}))
    assert type(error) is kind
    assert error.to_json() == said.to_json()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=encode_answer(BatchAnswer(7, 3, _ANSWER.results[:1]))),
        httpx.Response(302, text="over there"),
        httpx.Response(404, text="<html>"),
        httpx.Response(404, json=["error"]),
        httpx.Response(404, json={"error": "text"}),
    ],
)
def test_what_no_node_says_is_a_failure(answer: httpx.Response) -> None:
    """An answer for another number of keys, or of something that is no node, is never taken for one."""
    assert _refused(answer).code == "unexpected_answer"


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_gateway_in_front_of_a_node_that_is_down_counts_as_silence(status: int) -> None:
    """A server error without a node's own words means that the node did not answer, so that a replica is asked."""
    error = _refused(httpx.Response(status, text="Bad Gateway"))
    assert (type(error), error.code) == (Unreachable, "node_unreachable")


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError])
def test_a_node_that_does_not_answer_is_unreachable(error: type[httpx.TransportError]) -> None:
    """Whatever breaks on the way is one error that names the node."""

    def handle(request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request)

    with pytest.raises(Unreachable) as caught:
        _client(handle).page("http://node-1", _ADDRESS, (0, 0), None)
    assert (caught.value.code, "http://node-1" in caught.value.found) == ("node_unreachable", True)


def test_an_address_that_is_none_is_unreachable() -> None:
    """A node that reported nonsense as its address is treated as one that does not answer."""
    with pytest.raises(Unreachable):
        NodeClient().page("http://[nowhere", _ADDRESS, (0, 0), None)


def test_a_cell_that_is_absent_is_an_answer() -> None:
    """404 with what the replica knows is an answer; 404 with an error is one."""
    shown = {"found": False, "version": 7, "tombstone": False}
    assert _client(lambda _: httpx.Response(404, json=shown)).cell("http://node-1", _ADDRESS, b"k") == shown
    error = {"error": NotFound("unknown_path", "nothing here").to_json()}
    with pytest.raises(NotFound):
        _client(lambda _: httpx.Response(404, json=error)).cell("http://node-1", _ADDRESS, b"k")
