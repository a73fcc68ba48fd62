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
from anew.core.errors import AnewError, Failed, Unreachable, error_from_json

_OK = 200


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

    Errors common to all methods: `Unreachable` code ``node_unreachable``; what the node says: ``not_here``,
    ``version_gone``, ``unknown_store``, ``reads_disabled``.
    """

    def __init__(self, timeout_seconds: float = 10.0) -> None:
        """Connect lazily."""
        self._http = httpx.Client(timeout=timeout_seconds, limits=httpx.Limits(keepalive_expiry=4.0), trust_env=False)

    def batch(self, url: str, address: Address, keys: list[bytes]) -> tuple[BatchAnswer, Seen]:
        """The cells of many keys, all of the addressed version."""
        path = f"{_path(address)}/keys:batch"
        answer = self._send("POST", url, path, address, content=encode_keys(keys))
        return decode_answer(answer.content), _seen(answer)

    def page(self, url: str, address: Address, partition: int, after: bytes | None) -> tuple[ScanPage, Seen]:
        """The next page of a partition's records in key order."""
        query = {} if after is None else {"after": _encoded(after)}
        path = f"{_path(address)}/partitions/{partition}/scan"
        answer = self._send("GET", url, path, address, params=query)
        return decode_page(answer.content), _seen(answer)

    def cell(self, url: str, address: Address, key: bytes) -> dict[str, Any]:
        """All that a replica knows of one key: stamp, origin, tombstone, base or feed."""
        answer = self._send("GET", url, f"{_path(address)}/keys/{_encoded(key)}/cell", address)
        found: dict[str, Any] = answer.json()
        return found

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def _send(self, method: str, url: str, path: str, address: Address, **request: Any) -> httpx.Response:
        headers = {HEADER_STORE_UID: address.uid, "accept": AVRO_TYPE}
        try:
            answer = self._http.request(method, url + path, headers=headers, **request)
        except httpx.HTTPError as error:
            raise Unreachable(
                "node_unreachable",
                "the node does not answer",
                found=f"{url}: {type(error).__name__}: {error}",
                expected="an answer within the timeout",
                hint="anew node list",
            ) from error
        if answer.status_code != _OK:
            raise _error(answer)
        return answer


def _path(address: Address) -> str:
    return f"/v1/stores/{quote(address.store, safe='')}/versions/{address.version}"


def _encoded(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def _seen(answer: httpx.Response) -> Seen:
    headers = answer.headers
    return Seen(int(headers.get(HEADER_CURRENT_VERSION, 0)), int(headers.get(HEADER_STORE_REVISION, 0)))


def _error(answer: httpx.Response) -> AnewError:
    try:
        body = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return Failed("unexpected_answer", "this is not the answer of a node", found=answer.text[:200])
    return error_from_json(answer.status_code, body)
