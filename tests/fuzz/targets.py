"""What is fuzzed: each target takes any bytes, and ends, or raises the error that its parser documents.

A target that understood the bytes also says what it understood again, and must understand the same: a parser that
takes two meanings from one text is as bad as one that fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anew.api.stores.node_wire import (
    BatchAnswer,
    KeyResult,
    KeyState,
    ScanItem,
    ScanPage,
    decode_answer,
    decode_keys,
    decode_page,
    encode_answer,
    encode_keys,
    encode_page,
)
from anew.api.stores.replicas import DesiredStore, DesiredVersion
from anew.codec.avro import decode_datum, encode_datum, parse_schema
from anew.codec.compression import compressor
from anew.codec.plain import from_plain, to_plain
from anew.core.arrow import bytes_list
from anew.core.blocks import cut, unpack
from anew.core.cell import decode_cell, encode_cell
from anew.core.condition import parse_condition
from anew.core.errors import AnewError
from anew.core.feed import NOWHERE
from anew.core.grants import Grant, Right, format_grants, parse_grants, token_hash
from anew.core.identity import identified_origins, split_identity
from anew.core.ledger import Ledger
from anew.core.merge import Cell
from anew.core.partition import XxHash64Partitioner
from anew.core.rows import ROWS
from anew.core.schedule import parse_schedule
from anew.core.stamp import Origin, Stamp, fabric_origin
from anew.core.stores.store import ManifestRef, RebuildKind
from anew.node.exchange import Request
from anew.node.stores.reads import Reads, decode_key
from anew.node.stores.serving import Picture, ServedStore, ServedVersion
from anew.segments.manifest import BaseFile, Manifest, SubPartition, parse_manifest
from anew.segments.record import (
    SegmentList,
    StoreRecord,
    TableRecord,
    parse_config,
    parse_record,
    parse_segment_list,
    parse_table_record,
)
from anew.testing.builders import a_store, a_version
from anew.testing.table_builders import a_segment, a_segment_config, a_table

_SCHEMA = parse_schema(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "text", "type": "string"},
            {"name": "number", "type": ["null", "long"]},
            {"name": "real", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
            {"name": "tags", "type": {"type": "array", "items": "bytes"}},
            {"name": "more", "type": {"type": "map", "values": "boolean"}},
        ],
    }
)
_DATUM = {"text": "ä", "number": 1, "real": 0.5, "at": "2026-01-01T00:00:00Z", "price": "1.25", "day": "2026-01-01"} | {
    "kind": "A",
    "tags": ["eHg="],
    "more": {"a": True},
}
_MOST_BYTES = 1 << 20
_A_LIST = SegmentList.of(a_segment(name).model_dump_json() for name in ("a", "b"))
_NO_HEADERS: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, and texts that it takes, from which the search begins."""

    take: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _batch(body: bytes) -> None:
    keys = decode_keys(body)
    assert decode_keys(encode_keys(keys)) == keys


def _answer(body: bytes) -> None:
    answer = decode_answer(body)
    assert decode_answer(encode_answer(answer)) == answer


def _page(body: bytes) -> None:
    page = decode_page(body)
    assert decode_page(encode_page(page)) == page


def _cell(encoded: bytes) -> None:
    cell = decode_cell(encoded)
    assert decode_cell(encode_cell(cell)) == cell


def _origin(encoded: bytes) -> None:
    try:
        origin = Origin.decode(encoded)
    except ValueError:
        return
    assert origin.encoded == encoded


def _identity(encoded: bytes) -> None:
    try:
        origin, batch, sequence = split_identity(encoded)
    except ValueError:
        return
    assert bytes_list(identified_origins(origin, batch, np.array([sequence]))) == [encoded]


def _manifest(content: bytes) -> None:
    ref = ManifestRef(
        path="m", checksum=hashlib.sha256(content).hexdigest(), files=0, rows=0, tombstones=0, bytes=0, fingerprint=0
    )
    manifest = parse_manifest(content, ref)
    again = manifest.to_bytes()
    assert parse_manifest(again, manifest.ref("m")).to_bytes() == again


def _record(content: bytes) -> None:
    record = parse_record(content, "r")
    assert parse_record(record.to_bytes(), "r") == record


def _table_record(content: bytes) -> None:
    record = parse_table_record(content, "r")
    assert parse_table_record(record.to_bytes(), "r") == record


def _segment_list(content: bytes) -> None:
    listed = parse_segment_list(content, f"1-{_A_LIST.digest}.json.zst")
    assert list(listed.segments()) == list(_A_LIST.segments())


def _segment_config(content: bytes) -> None:
    config = parse_config(content, "c")
    assert parse_config(config.model_dump_json().encode(), "c") == config


def _datum(body: bytes) -> None:
    datum = decode_datum(_SCHEMA, body)
    plain = to_plain(_SCHEMA, datum)
    assert to_plain(_SCHEMA, from_plain(_SCHEMA, plain)) == plain or "nan" in repr(plain).lower()


def _schema(text: bytes) -> None:
    parse_schema(text.decode("utf-8", "replace"))


def _decompressed(codec: str) -> Callable[[bytes], None]:
    made = compressor(codec, max_output_bytes=_MOST_BYTES)

    def take(value: bytes) -> None:
        plain = made.decompress(value)
        assert len(plain) <= _MOST_BYTES
        assert made.decompress(made.compress(plain)) == plain

    return take


def _block(message: bytes) -> None:
    unpack(_CONSTANTS, message).to_pydict()


def _block_head(constants: bytes) -> None:
    unpack(constants, _ROWS).to_pydict()


def _a_block() -> tuple[bytes, bytes]:
    columns: dict[str, Any] = {
        "key": [b"a", b"b"],
        "value": [b"1", None],
        "schema_id": [1, 0],
        "time": [1, 2],
        "origin": [_ORIGIN] * 2,
        "append_timed": [True] * 2,
        "incarnation": [1] * 2,
        "feed_partition": [0] * 2,
        "offset": [0, 1],
        "hash": [3, 4],
    }
    (block,) = cut(pa.RecordBatch.from_pydict(columns, schema=ROWS), np.zeros(2, np.int32), 1 << 20).to_pylist()
    return block["constants"], block["rows"]


def _request(said: bytes) -> None:
    """Path, query and body in one text, divided by NUL; the answer is one of a node, whatever was asked."""
    method, path, query, body, *_ = [*said.split(b"\x00", 3), b"", b"", b""]
    text = path.decode("utf-8", "replace")
    pairs = dict(pair.partition("=")[::2] for pair in query.decode("utf-8", "replace").split("&"))
    for prefix in ("/v1/stores/", "/v1/stores/words/versions/1/"):
        request = Request(method.decode("ascii", "replace"), prefix + text, pairs, _NO_HEADERS.get, body)
        answer = _READS.answer(request)
        assert 200 <= answer.status < 500, (answer.status, answer.body)


def _grants(text: bytes) -> None:
    grants = parse_grants(text.decode("utf-8", "replace"))
    assert parse_grants(format_grants(grants)) == grants


def _decoded(parse: Callable[[str], Any]) -> Callable[[bytes], None]:
    def take(text: bytes) -> None:
        parse(text.decode("utf-8", "replace"))

    return take


def _reads() -> Reads:
    """A node that knows a store and holds none of its replicas: everything up to the replica is run."""
    frozen = a_version().config
    ref = ManifestRef(path="m", checksum="", files=0, rows=0, tombstones=0, bytes=0, fingerprint=0)
    desired = DesiredVersion(
        number=1,
        config=frozen,
        feeds=(),
        start=NOWHERE,
        stop=None,
        ttl_floor_ms=0,
        tombstone_floor_ms=0,
        manifest=ref,
        partitions=(0,),
    )
    store = DesiredStore(
        uid="u",
        name="words",
        revision=1,
        current=1,
        key_schema='"string"',
        schemas={1: '"string"'},
        feeds=(),
        reads=True,
        versions=(desired,),
    )
    version = ServedVersion(1, XxHash64Partitioner(frozen.partitions), desired, {})
    return Reads(lambda: Picture({"words": ServedStore(store, {1: version}, frozenset(), [])}, 1), "n1")


def _a_manifest() -> bytes:
    frozen = a_version().config
    file = BaseFile(
        path="p", rows=1, tombstones=0, bytes=1, checksum="0", smallest_key="00", largest_key="00", fingerprint=1
    )
    return Manifest(
        store="s",
        store_uid="u",
        version=1,
        kind=RebuildKind.FULL_PUSH,
        rebuild="r",
        epoch=1,
        key_schema='"string"',
        schemas={1: '"string"'},
        config=frozen,
        config_hash=frozen.hash,
        created_at_ms=1,
        ledger=Ledger(),
        sub_partitions=(SubPartition(partition=0, sub_partition=0, runs=((file,),)),),
    ).to_bytes()


_ORIGIN = fabric_origin("dc-0").encoded
_CONSTANTS, _ROWS = _a_block()
_READS = _reads()
_STAMP = Stamp(5, _ORIGIN, True, 1, 0, 7)
_BATCH = encode_keys([b"a", b"", b"\xff" * 40])
_GRANTS = (Grant("a b", Right.READ, token_hash("t"), frozenset({"s"}), 5), Grant("c", Right.OPERATE, token_hash("u")))
_PACKED = b"some value, " * 20

TARGETS: dict[str, Target] = {
    "batch": Target(_batch, (_BATCH, b"\x00")),
    "answer": Target(
        _answer,
        (encode_answer(BatchAnswer(1, 2, (KeyResult(KeyState.FOUND, 1, 5, b"v"), KeyResult(KeyState.ABSENT)))),),
    ),
    "page": Target(_page, (encode_page(ScanPage(1, (ScanItem(b"k", 1, 5, b"v"),), b"k")),)),
    "key": Target(_decoded(decode_key), (b"AmE", b"_-8=")),
    "request": Target(
        _request,
        (
            b"GET\x00keys/AmE",
            b"GET\x00keys/AmE/cell",
            b"POST\x00keys:batch\x00\x00" + _BATCH,
            b"GET\x00partitions/0/scan\x00after=AmE&limit=5&sub=0",
        ),
    ),
    "cell": Target(_cell, (encode_cell(Cell(_STAMP, b"value", 1)), encode_cell(Cell(_STAMP, None)))),
    "identity": Target(
        _identity, (b"\x01job\x00" + b"\x00" * 20, b"\x01job\x00" + b"\x00" * 8, b"\x01\xff\x00" + b"\x01" * 20)
    ),
    "origin": Target(_origin, (_ORIGIN, b"\x00", b"\x01job\x00" + b"\x00" * 8)),
    "block": Target(_block, (_ROWS,)),
    "block-head": Target(_block_head, (_CONSTANTS,)),
    "manifest": Target(_manifest, (_a_manifest(),)),
    "record": Target(_record, (StoreRecord(store=a_store(versions=(a_version(),))).to_bytes(),)),
    "table-record": Target(_table_record, (TableRecord(table=a_table(sort="id"), slots={3: "1-a"}).to_bytes(),)),
    "segment-list": Target(_segment_list, (_A_LIST.content,)),
    "segment-config": Target(_segment_config, (a_segment_config(sort="id").model_dump_json().encode(),)),
    "datum": Target(_datum, (encode_datum(_SCHEMA, from_plain(_SCHEMA, _DATUM)),)),
    "schema": Target(_schema, (_SCHEMA.canonical.encode(), b'{"type":"map","values":["null","int"]}', b"string")),
    "gzip": Target(_decompressed("gzip"), (compressor("gzip").compress(_PACKED),)),
    "zstd": Target(_decompressed("zstd"), (compressor("zstd").compress(_PACKED),)),
    "tokens": Target(_grants, (format_grants(_GRANTS).encode(),)),
    "condition": Target(_decoded(parse_condition), (b"stale or not (age > 7d and rows >= 10)",)),
    "schedule": Target(_decoded(parse_schedule), (b"0 3 * * *", b"*/5 1-3 * jan mon")),
}
"""Each parser of bytes from the wire, the log, the deep store, RocksDB or a person, by name."""


def run(name: str, content: bytes) -> None:
    """Let a target take some bytes; what its parser refuses in this project's way is fine."""
    with suppress(AnewError):
        TARGETS[name].take(content)
