"""A node's face from the outside: reads and verifications."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from anew.api.connecting import headers_of, tls_error, trust_of
from anew.api.security import NOBODY, Credentials
from anew.api.stores.node_wire import (
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
from anew.api.stores.verifying import (
    AimVerify,
    EntriesPage,
    ExportedReplica,
    ExportReplica,
    VerifyStage,
    VerifyView,
)
from anew.api.tables.copy_wire import BYTES_PATH, COPY_PATH, AskBytes, AskCopy, SegmentCopy
from anew.api.tables.query_wire import ARROW_TYPE, HEADER_READS, AskQuery
from anew.core.errors import Failed, Refused, Unreachable, error_from_json
from anew.core.feed import PositionMap

_OK = 200
_NOT_FOUND = 404
_SERVER_ERRORS = 500
_AS_JSON = {"content-type": "application/json"}
_REFUSALS = frozenset({401, 403, 410, 421})
"""What a node refuses for reasons of its own: no right, reads are disabled, the version is gone, not held here."""
_REPLICAS_ASKED = 3
_ENTRIES_SECONDS = 300.0
"""The node's loader, which lists them, may have a load to finish first."""

_Answer = TypeVar("_Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Address:
    """What a read names: a store by name and identity, and one version of it."""

    store: str
    uid: str
    version: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries of a verified replica: those of some buckets, behind a key (hex; None: from the first)."""

    buckets: frozenset[int]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What every answer says of the store besides: which version is current there, by which revision."""

    current: int
    revision: int


class NodeClient:
    """Reads from any node, and verifies what it holds, over kept connections; safe to use from several threads.

    Errors common to all methods: `Unreachable` code ``node_unreachable``; what the node says, such as
    `Refused` codes ``not_here``, ``version_gone``, ``other_store``, ``reads_disabled``.
    """

    def __init__(
        self,
        timeout_seconds: float = 10.0,
        *,
        transport: httpx.BaseTransport | None = None,
        credentials: Credentials = NOBODY,
    ) -> None:
        """Connect lazily.

        Args:
            timeout_seconds: How long each request may take; a read a third of it, so that others can be asked in time.
            transport: In place of the network.
            credentials: Who asks, and whose certificates are trusted.

        Raises:
            InvalidRequest: ``bad_tls_ca``.
        """
        self._timeout_seconds = timeout_seconds
        self._read_seconds = timeout_seconds / _REPLICAS_ASKED
        limits = httpx.Limits(keepalive_expiry=4.0)
        self._http = httpx.Client(
            headers=headers_of(credentials),
            verify=trust_of(credentials),
            timeout=timeout_seconds,
            limits=limits,
            trust_env=False,
            transport=transport,
        )

    def batch(self, url: str, address: Address, keys: list[bytes]) -> tuple[BatchAnswer, Seen]:
        """The cells of many keys, all of the addressed version."""
        path = f"{_path(address)}/keys:batch"
        content = encode_keys(keys)
        answer = self._send("POST", url, path, address, content=content, timeout=self._read_seconds)
        _check(answer)
        batch = decode_answer(answer.content)
        if len(batch.results) != len(keys):
            raise _unexpected(f"{len(batch.results)} results for {len(keys)} keys")
        return batch, _seen(answer)

    def page(self, url: str, address: Address, place: tuple[int, int], after: bytes | None) -> tuple[ScanPage, Seen]:
        """The next page of a (partition, sub-partition)'s records in key order."""
        query = {"sub": str(place[1])} | ({} if after is None else {"after": _encoded(after)})
        path = f"{_path(address)}/partitions/{place[0]}/scan"
        answer = self._send("GET", url, path, address, params=query, timeout=self._read_seconds)
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

    def query(self, url: str, sql: str, timeout_seconds: float) -> tuple[bytes, list[str]]:
        """The answer to a query over tables, as an Arrow IPC stream, and what was read for it.

        Raises:
            InvalidRequest: ``not_a_query``, ``bad_query``, or a limit.
            NotFound: ``unknown_table``.
        """
        headers = {"accept": ARROW_TYPE, "content-type": "application/json"}
        content = AskQuery(sql=sql).model_dump_json()
        with _translated(url):
            answer = self._http.request(
                "POST", f"{url}/v1/query", headers=headers, content=content, timeout=timeout_seconds
            )
        _check(answer)
        return answer.content, list(json.loads(answer.headers.get(HEADER_READS, "[]")))

    def segment_copy(self, url: str, table: str, segment: str) -> SegmentCopy:
        """Which copy of a segment the node serves.

        Raises:
            NotFound: ``not_here``.
        """
        with _translated(url):
            answer = self._http.post(
                f"{url}{COPY_PATH}",
                content=AskCopy(table=table, segment=segment).model_dump_json(),
                headers=_AS_JSON,
            )
        return _parsed(SegmentCopy, answer)

    def segment_bytes(self, url: str, table: str, segment: str, copy: SegmentCopy) -> Iterator[bytes]:
        """The bytes of that copy, part by part.

        Raises:
            Refused: ``other_copy``: the node serves another one by now.
            NotFound: ``not_here``.
        """
        offset = 0
        while offset < copy.bytes:
            asked = AskBytes(
                table=table, segment=segment, build=copy.build, config_hash=copy.config_hash, offset=offset
            )
            with _translated(url):
                answer = self._http.post(f"{url}{BYTES_PATH}", content=asked.model_dump_json(), headers=_AS_JSON)
            _check(answer)
            if not answer.content:
                raise _unexpected(f"{offset} of {copy.bytes} bytes of {segment}")
            offset += len(answer.content)
            yield answer.content

    # -- verifications: see `anew.api.stores.verifying` ----------------------------------------------------------------

    def begin_verify(self, url: str, address: Address) -> VerifyView:
        """Let all replicas of the addressed version stand where they are.

        Raises:
            Refused: ``verification_running``.
        """
        return _parsed(VerifyView, self._send("POST", url, _verify_path(address), address))

    def aim_verify(self, url: str, address: Address, job: str, position: PositionMap) -> VerifyView:
        """Let the standing replicas go on to exactly a position.

        Raises:
            NotFound: ``unknown_verification``.
        """
        content = AimVerify(position=position).model_dump_json()
        return _parsed(VerifyView, self._send("PUT", url, _verify_path(address, job), address, content=content))

    def verify_view(
        self, url: str, address: Address, job: str, *, after: VerifyStage | None = None, wait_seconds: float = 0.0
    ) -> VerifyView:
        """How far it is, as soon as it is further than ``after``, or when the wait is over.

        Raises:
            NotFound: ``unknown_verification``.
        """
        query = {} if after is None else {"after": after.value, "wait_seconds": str(wait_seconds)}
        timeout = self._timeout_seconds + wait_seconds
        path = _verify_path(address, job)
        return _parsed(VerifyView, self._send("GET", url, path, address, params=query, timeout=timeout))

    def verify_entries(
        self, url: str, address: Address, job: str, place: tuple[int, int], wanted: Wanted
    ) -> EntriesPage:
        """Keys and row hashes of some buckets of one (partition, sub-partition), a page of them.

        Raises:
            NotFound: ``unknown_verification``.
            Refused: ``not_verified``.
        """
        query = {
            "partition": str(place[0]),
            "sub": str(place[1]),
            "buckets": ",".join(str(bucket) for bucket in sorted(wanted.buckets)),
        } | ({} if wanted.after is None else {"after": wanted.after})
        path = f"{_verify_path(address, job)}/keys"
        answer = self._send("GET", url, path, address, params=query, timeout=_ENTRIES_SECONDS)
        return _parsed(EntriesPage, answer)

    def export_replica(self, url: str, address: Address, job: str, wanted: ExportReplica) -> ExportedReplica:
        """Let a node write a replica, as it was at the position, into its deep store.

        Raises:
            NotFound: ``unknown_verification``.
            Refused: ``not_verified``, ``path_taken``.
            Failed: ``storage_broken``.
        """
        path = f"{_verify_path(address, job)}/export"
        answer = self._send("POST", url, path, address, content=wanted.model_dump_json(), timeout=_ENTRIES_SECONDS)
        return _parsed(ExportedReplica, answer)

    def end_verify(self, url: str, address: Address, job: str) -> None:
        """Give it up; repeating it is harmless."""
        _check(self._send("DELETE", url, _verify_path(address, job), address))

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def _send(self, method: str, url: str, path: str, address: Address, **request: Any) -> httpx.Response:
        headers = {HEADER_STORE_UID: address.uid, "accept": AVRO_TYPE}
        if isinstance(request.get("content"), str):
            headers |= _AS_JSON
        with _translated(url):
            return self._http.request(method, url + path, headers=headers, **request)


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        found = f"{url}: {type(error).__name__}: {error}"
        untrusted = tls_error(error, found)
        raise (_unreachable(found) if untrusted is None else untrusted) from error


def _path(address: Address) -> str:
    return f"/v1/stores/{quote(address.store, safe='')}/versions/{address.version}"


def _verify_path(address: Address, job: str | None = None) -> str:
    return f"{_path(address)}/verify" + ("" if job is None else f"/{quote(job, safe='')}")


def _parsed(model: type[_Answer], answer: httpx.Response) -> _Answer:
    _check(answer)
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise _unexpected(f"{answer.request.url}: {error}") from error


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
