"""What nodes and clients say to each other about many keys: Avro bodies, and the names of headers.

A batch request is an array of keys (Avro bodies under the store's key schema); its answer names one version for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from anew.codec.avro import native_schema, read_body, write_checked
from anew.codec.schema import parse_schema
from anew.core.errors import Failed, InvalidRequest

HEADER_STORE_UID = "anew-store-uid"
HEADER_SCHEMA_ID = "anew-schema-id"
HEADER_WRITTEN_AT = "anew-written-at"
HEADER_VERSION = "anew-version"
HEADER_CURRENT_VERSION = "anew-current-version"
HEADER_STORE_REVISION = "anew-store-revision"

AVRO_TYPE = "application/avro"
JSON_TYPE = "application/json"
MAX_BATCH_KEYS = 10_000
_LONG_BITS = 64


class KeyState(StrEnum):
    """What a node knows of a key of a batch."""

    FOUND = "found"
    ABSENT = "absent"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class KeyResult:
    """The answer for one key; the rest is only there when it was found.

    Attributes:
        state: Whether it was found; ``elsewhere``: this node does not hold its partition.
        schema_id: The schema that wrote the value.
        written_at_ms: When it was written, 0 for records of a base without a time.
        value: The value's Avro body.
    """

    state: KeyState
    schema_id: int = 0
    written_at_ms: int = 0
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answers for the keys of a batch, in their order, all of one version."""

    version: int
    store_revision: int
    results: tuple[KeyResult, ...]


@dataclass(frozen=True, slots=True)
class ScanItem:
    """One live key of a scan."""

    key: bytes
    schema_id: int
    written_at_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ScanPage:
    """A part of a scan in key order; ``next_after`` is what to pass as ``after`` next, None at the end."""

    version: int
    items: tuple[ScanItem, ...]
    next_after: bytes | None


def _record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": "anew.node", "fields": listed}


_KEYS = parse_schema({"type": "array", "items": "bytes"})
_STATE = {"type": "enum", "name": "KeyState", "symbols": [state.value for state in KeyState]}
_RESULT = _record("KeyResult", state=_STATE, schema_id="int", written_at="long", value="bytes")
_ANSWER = parse_schema(
    _record("BatchAnswer", version="int", store_revision="long", results={"type": "array", "items": _RESULT})
)
_ITEM = _record("ScanItem", key="bytes", schema_id="int", written_at="long", value="bytes")
_PAGE = parse_schema(
    _record("ScanPage", version="int", items={"type": "array", "items": _ITEM}, next=["null", "bytes"])
)


def encode_keys(keys: list[bytes]) -> bytes:
    """The body of a batch request."""
    return write_checked(native_schema(_KEYS), keys)


def decode_keys(body: bytes) -> list[bytes]:
    """The inverse of `encode_keys`.

    Raises:
        InvalidRequest: ``bad_batch``: no such body, or more than `MAX_BATCH_KEYS` keys.
    """
    # A body of that many bytes cannot hold more keys; of a longer one they are counted before any is made.
    if len(body) > MAX_BATCH_KEYS:
        _check_count(body)
    try:
        keys: list[bytes] = read_body(native_schema(_KEYS), body)
    except Failed as failed:
        raise InvalidRequest(
            "bad_batch", "the body is no batch of keys", found=failed.found, expected="an Avro array of bytes"
        ) from None
    return keys


def _check_count(body: bytes) -> None:
    """Raise when an array of bytes has too many items; one that is broken is left to whoever reads it."""
    at, total = 0, 0
    try:
        while True:
            count, at = _long(body, at)
            if count < 0:  # such a block says how long it is, too
                count, (_, at) = -count, _long(body, at)
            total += count
            if total > MAX_BATCH_KEYS:
                raise InvalidRequest(
                    "bad_batch", "the batch has too many keys", found=total, expected=f"at most {MAX_BATCH_KEYS}"
                )
            if count == 0:
                return
            for _ in range(count):
                length, at = _long(body, at)
                at += max(length, 0)
    except IndexError:
        return


def _long(body: bytes, at: int) -> tuple[int, int]:
    """An Avro long and where it ends."""
    value, shift = 0, 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > _LONG_BITS:
            return (value >> 1) ^ -(value & 1), at


def encode_answer(answer: BatchAnswer) -> bytes:
    """The body of a batch answer."""
    results = [
        {"state": r.state.value, "schema_id": r.schema_id, "written_at": r.written_at_ms, "value": r.value}
        for r in answer.results
    ]
    datum = {"version": answer.version, "store_revision": answer.store_revision, "results": results}
    return write_checked(native_schema(_ANSWER), datum)


def decode_answer(body: bytes) -> BatchAnswer:
    """The inverse of `encode_answer`.

    Raises:
        Failed: ``corrupt_value``.
    """
    datum = read_body(native_schema(_ANSWER), body)
    results = tuple(
        KeyResult(KeyState(r["state"]), r["schema_id"], r["written_at"], r["value"]) for r in datum["results"]
    )
    return BatchAnswer(datum["version"], datum["store_revision"], results)


def encode_page(page: ScanPage) -> bytes:
    """The body of a page of a scan."""
    items = [
        {"key": i.key, "schema_id": i.schema_id, "written_at": i.written_at_ms, "value": i.value} for i in page.items
    ]
    return write_checked(native_schema(_PAGE), {"version": page.version, "items": items, "next": page.next_after})


def decode_page(body: bytes) -> ScanPage:
    """The inverse of `encode_page`.

    Raises:
        Failed: ``corrupt_value``.
    """
    datum = read_body(native_schema(_PAGE), body)
    items = tuple(ScanItem(i["key"], i["schema_id"], i["written_at"], i["value"]) for i in datum["items"])
    return ScanPage(datum["version"], items, datum["next"])
