"""A node's read face from the outside."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from anew.api.node_wire import (
    AVRO_TYPE,
    HEADER_CURRENT_VERSION,
    HEADER_STORE_REVISION,
    HEADER_STORE_UID,
    BatchAnswer,
    ScanPage,
    decode_answer,
    decode_page,
    encode_keys,
)
from anew.core.errors import Failed, Refused, Unreachable, error_from_json

_OK = 200
_NOT_FOUND = 404
_SERVER_ERRORS = 500
_REFUSALS = frozenset({403, 410, 421})
"""What a node refuses for reasons of its own: reads are disabled, the version is gone, it is not held here."""


@dataclass(frozen=True, slots=True)
class Address:
    """What a read names: a store by name and identity, and one version of it."""

    store: str
    uid: str
    version: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What every answer says of the store besides: which version is current there, by which revision."""

    current: int
    revision: int


class NodeClient:
    """Reads from any node, over kept connections; safe to use from several threads.

    Errors common to all methods: `Unreachable` code ``node_unreachable``; what the node says, such as
    `Refused` codes ``not_here``, ``version_gone``, ``other_store``, ``reads_disabled``.
    """

    def __init__(self, timeout_seconds: float = 10.0, *, transport: httpx.BaseTransport | None = None) -> None:
        """Connect lazily.

        Args:
            timeout_seconds: How long each request may take.
            transport: In place of the network.
        """
        limits = httpx.Limits(keepalive_expiry=4.0)
        self._http = httpx.Client(timeout=timeout_seconds, limits=limits, trust_env=False, transport=transport)

    def batch(self, url: str, address: Address, keys: list[bytes]) -> tuple[BatchAnswer, Seen]:
        """The cells of many keys, all of the addressed version."""
        path = f"{_path(address)}/keys:batch"
        answer = self._send("POST", url, path, address, content=encode_keys(keys))
        _check(answer)
        batch = decode_answer(answer.content)
        if len(batch.results) != len(keys):
            raise _unexpected(f"{len(batch.results)} results for {len(keys)} keys")
        return batch, _seen(answer)

    def page(self, url: str, address: Address, place: tuple[int, int], after: bytes | None) -> tuple[ScanPage, Seen]:
        """The next page of a (partition, sub-partition)'s records in key order."""
        query = {"sub": str(place[1])} | ({} if after is None else {"after": _encoded(after)})
        path = f"{_path(address)}/partitions/{place[0]}/scan"
        answer = self._send("GET", url, path, address, params=query)
        _check(answer)
        return decode_page(answer.content), _seen(answer)

    def cell(self, url: str, address: Address, key: bytes) -> dict[str, Any]:
        """All that a replica knows of one key: stamp, origin, tombstone, base or feed; just that where it is absent."""
        answer = self._send("GET", url, f"{_path(address)}/keys/{_encoded(key)}/cell", address)
        body = _json(answer)
        if answer.status_code == _NOT_FOUND and "found" in body:
            return body
        _check(answer)
        return body

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def _send(self, method: str, url: str, path: str, address: Address, **request: Any) -> httpx.Response:
        headers = {HEADER_STORE_UID: address.uid, "accept": AVRO_TYPE}
        try:
            return self._http.request(method, url + path, headers=headers, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unreachable(f"{url}: {type(error).__name__}: {error}") from error


def _path(address: Address) -> str:
    return f"/v1/stores/{quote(address.store, safe='')}/versions/{address.version}"


def _encoded(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def _seen(answer: httpx.Response) -> Seen:
    headers = answer.headers
    return Seen(int(headers.get(HEADER_CURRENT_VERSION, 0)), int(headers.get(HEADER_STORE_REVISION, 0)))


def _check(answer: httpx.Response) -> None:
    """Raise unless the node did what was asked.

    Raises:
        AnewError: What the node says, as the same class here.
        Unreachable: ``node_unreachable``: something answered in its place that it cannot.
        Failed: ``unexpected_answer``: not the answer of a node.
    """
    status = answer.status_code
    if status == _OK:
        return
    error = _json(answer).get("error")
    if isinstance(error, dict):
        raise error_from_json(Refused.http_status if status in _REFUSALS else status, error)
    found = f"{answer.request.url}: {status} {answer.text[:200]}"
    raise _unreachable(found) if status >= _SERVER_ERRORS else _unexpected(found)


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _unexpected(found: str) -> Failed:
    return Failed(
        "unexpected_answer",
        "this is not the answer of a node",
        found=found,
        expected="an answer of the same release",
        hint="anew node list",
    )


def _unreachable(found: str) -> Unreachable:
    return Unreachable(
        "node_unreachable",
        "the node does not answer",
        found=found,
        expected="an answer within the timeout",
        hint="anew node list",
    )
