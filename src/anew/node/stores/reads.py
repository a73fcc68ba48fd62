"""What a node answers to a read: plain functions from a request to an answer, without any server.

Every answer of a store carries the current version and the store's revision, so that a client learns of a swap with
the next read.
"""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anew.api.stores.node_wire import (
    AVRO_TYPE,
    HEADER_SCHEMA_ID,
    HEADER_STORE_UID,
    HEADER_VERSION,
    HEADER_WRITTEN_AT,
    BatchAnswer,
    KeyResult,
    KeyState,
    ScanItem,
    ScanPage,
    decode_keys,
    encode_answer,
    encode_page,
)
from anew.codec.avro import decode_datum
from anew.codec.plain import to_plain
from anew.core.errors import AnewError, Failed, InvalidRequest, NotFound
from anew.core.feed import Feed, FeedKind, FeedPartition, PositionMap
from anew.core.stamp import Origin, OriginKind, Stamp
from anew.node.exchange import Answer, Headers, Request, error_answer, json_answer, parse_number
from anew.node.stores.serving import NotHere, Picture, ServedStore, ServedVersion, parsed_schema
from anew.storage.replica import Live

SCAN_LIMIT = 1_000
SCAN_BYTES = 1024 * 1024
_PREFIX = "/v1/stores/"
_URL_SAFE, _STANDARD_ONLY = bytes.maketrans(b"-_", b"+/"), frozenset(b"+/")


@dataclass(slots=True)
class ReadCounts:
    """How often what was answered: (store, outcome) → times."""

    times: Counter[tuple[str, str]] = field(default_factory=Counter)


class Reads:
    """Answers reads from the engine's picture of the moment; fast and without blocking, so one thread serves all."""

    def __init__(self, picture: Callable[[], Picture], node: str) -> None:
        self.counts = ReadCounts()
        self._picture = picture
        self._node = node

    def answer(self, request: Request) -> Answer:
        """The answer to anything below ``/v1/stores/``; errors are answers too."""
        headers: Headers = []
        name = ""
        try:
            parts = request.path[len(_PREFIX) :].split("/")
            if len(parts) < 4 or parts[1] != "versions":
                raise NotFound("unknown_path", "there is nothing at this path", found=request.path)
            name = parts[0]
            store = self._picture().store(name, request.header(HEADER_STORE_UID))
            headers = store.headers
            return self._route(request, store, store.version(parts[2]), parts[3:])
        except AnewError as error:
            if error.code == "replica_closed":
                # Between the picture and the read the replica was closed: its successor is elsewhere, or soon here.
                error = NotHere("not_here", "the replica was just closed", hint="ask again")
            self.counts.times[name if headers else "", error.code] += 1
            return error_answer(error, headers)

    def _route(self, request: Request, store: ServedStore, version: ServedVersion, rest: list[str]) -> Answer:
        match request.method, rest:
            case "GET", ["keys", key]:
                return self._get(request, store, version, key)
            case "POST", ["keys:batch"]:
                return self._batch(request, store, version)
            case "GET", ["partitions", partition, "scan"]:
                return self._scan(request, store, version, partition)
            case "GET", ["keys", key, "cell"]:
                return self._cell(store, version, key)
        raise NotFound("unknown_path", "there is nothing at this path", found=f"{request.method} {request.path}")

    def _get(self, request: Request, store: ServedStore, version: ServedVersion, encoded: str) -> Answer:
        key = decode_key(encoded)
        live = version.replica_of(version.place_of(key)).get(key)
        self.counts.times[store.desired.name, "absent" if live is None else "found"] += 1
        if live is None:
            return json_answer(404, store.headers, {"found": False, "version": version.number})
        if request.wants_json:
            return json_answer(200, store.headers, _plain(store, version, live))
        headers = [
            *store.headers,
            ("content-type", AVRO_TYPE),
            (HEADER_SCHEMA_ID, str(live.schema_id)),
            (HEADER_WRITTEN_AT, str(live.time_ms)),
            (HEADER_VERSION, str(version.number)),
        ]
        return Answer(200, headers, live.body)

    def _batch(self, request: Request, store: ServedStore, version: ServedVersion) -> Answer:
        keys = decode_keys(request.body)
        by_place: dict[tuple[int, int], list[int]] = {}
        for index, key in enumerate(keys):
            by_place.setdefault(version.place_of(key), []).append(index)
        found: list[Live | None] = [None] * len(keys)
        elsewhere: set[int] = set()
        for place, indices in by_place.items():
            replica = version.replicas.get(place)
            if replica is None:
                elsewhere.update(indices)
                continue
            for index, live in zip(indices, replica.get_many([keys[i] for i in indices]), strict=True):
                found[index] = live
        self.counts.times[store.desired.name, "found"] += len(keys) - found.count(None)
        self.counts.times[store.desired.name, "absent"] += found.count(None) - len(elsewhere)
        if request.wants_json:
            shown = [
                {"state": "elsewhere"} if index in elsewhere else _plain(store, version, live)
                for index, live in enumerate(found)
            ]
            return json_answer(200, store.headers, {"version": version.number, "results": shown})
        results = tuple(_result(live, here=index not in elsewhere) for index, live in enumerate(found))
        answer = BatchAnswer(version.number, store.desired.revision, results)
        headers = [*store.headers, ("content-type", AVRO_TYPE), (HEADER_VERSION, str(version.number))]
        return Answer(200, headers, encode_answer(answer))

    def _scan(self, request: Request, store: ServedStore, version: ServedVersion, partition: str) -> Answer:
        sub = parse_number(request.query.get("sub", "0"), "sub-partition")
        replica = version.replica_of((parse_number(partition, "partition"), sub))
        after = request.query.get("after")
        limit = min(parse_number(request.query.get("limit", str(SCAN_LIMIT)), "limit"), SCAN_LIMIT)
        page = replica.scan(None if after is None else decode_key(after), max(1, limit), SCAN_BYTES)
        items = tuple(ScanItem(key, live.schema_id, live.time_ms, live.body) for key, live in page.items)
        self.counts.times[store.desired.name, "scanned"] += len(items)
        headers = [*store.headers, ("content-type", AVRO_TYPE), (HEADER_VERSION, str(version.number))]
        return Answer(200, headers, encode_page(ScanPage(version.number, items, page.next_after)))

    def _cell(self, store: ServedStore, version: ServedVersion, encoded: str) -> Answer:
        """Where a key's value, or its absence, comes from."""
        key = decode_key(encoded)
        partition, sub = version.place_of(key)
        cell = version.replica_of((partition, sub)).cell(key)
        shown: dict[str, Any] = {
            "found": cell is not None and not cell.tombstone,
            "version": version.number,
            "partition": partition,
            "sub_partition": sub,
            "node": self._node,
            "tombstone": cell is not None and cell.tombstone,
        }
        if cell is None:
            return json_answer(404, store.headers, shown)
        stamp = cell.stamp
        origin = Origin.decode(stamp.origin)
        feeds = [f for f in store.desired.feeds if (f.incarnation, f.origin_bytes) == (stamp.incarnation, stamp.origin)]
        is_job = origin.kind is OriginKind.JOB
        partition_name, offset_name = ("batch", "sequence") if is_job else ("feed_partition", "offset")
        shown |= {
            "schema_id": cell.schema_id,
            "written_at": stamp.time_ms,
            "append_timed": stamp.append_timed,
            "origin": str(origin),
            "incarnation": stamp.incarnation,
            partition_name: stamp.partition,
            offset_name: stamp.offset,
            "source": _source_of(feeds[0], version.desired.start, stamp) if feeds else "base",
            "feed": feeds[0].id if feeds else None,
        }
        return json_answer(200, store.headers, shown)


def decode_key(encoded: str) -> bytes:
    """The key's body of its base64url form, with or without padding.

    Raises:
        InvalidRequest: ``bad_key``.
    """
    try:
        padded = encoded.encode("ascii") + b"=" * (-len(encoded) % 4)
        if _STANDARD_ONLY.isdisjoint(padded):
            return binascii.a2b_base64(padded.translate(_URL_SAFE), strict_mode=True)
    except ValueError:  # no ASCII, or no base64
        pass
    raise InvalidRequest(
        "bad_key", "the key is not in base64url", found=encoded, expected="the key's Avro body in base64url"
    )


def _source_of(feed: Feed, start: PositionMap, stamp: Stamp) -> str:
    """Whether a version has a record of a feed's in its base or applied it from the feed."""
    if feed.kind is FeedKind.RT:
        return "base" if stamp.offset < start.get(FeedPartition(feed.id, stamp.partition), 0) else "feed"
    # A job's stamp has no offset (rule R20): it tells only where nothing of the feed was folded into the base.
    return "base or feed" if any(start.get(at, 0) for at in feed.feed_partitions()) else "feed"


def _plain(store: ServedStore, version: ServedVersion, live: Live | None) -> dict[str, Any]:
    if live is None:
        return {"found": False, "version": version.number}
    text = store.desired.schemas.get(live.schema_id)
    if text is None:
        raise Failed(
            "unknown_schema",
            "a value was written by a schema that this node does not know",
            found=live.schema_id,
            expected=sorted(store.desired.schemas),
        )
    schema = parsed_schema(text)
    value = to_plain(schema, decode_datum(schema, live.body))
    return {"found": True, "value": value, "written_at": live.time_ms, "version": version.number}


def _result(live: Live | None, *, here: bool) -> KeyResult:
    if live is None:
        return KeyResult(KeyState.ABSENT if here else KeyState.ELSEWHERE)
    return KeyResult(KeyState.FOUND, live.schema_id, live.time_ms, live.body)
