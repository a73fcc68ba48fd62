"""Avro container files: every type and codec of the specification arrives as it was written, or is refused by name."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard

from anew.codec.avro import AvroSchema, decode_datum, parse_schema
from anew.codec.container import container_columns, read_container
from anew.codec.plain import to_plain
from anew.codec.vector import Misfit, cast_columns, encode_table
from anew.core.errors import InvalidRequest

_CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_FIXED_CENTS = {"type": "fixed", "name": "Cents", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2}
_DATE = {"type": "int", "logicalType": "date"}
_NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}
_LOCAL = datetime.datetime.fromisoformat("2020-01-02T03:04:05.678901")
_COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
_INNER = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "bytes"}, {"name": "t", "type": _DATE}]}


def _timed(base: str, logical: str) -> dict[str, str]:
    return {"type": base, "logicalType": logical}


def _written(path: Path, of_type: Any, values: list[Any], codec: str = "null") -> str:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": of_type}]}
    rows = [{"id": number, "x": value} for number, value in enumerate(values)]
    with path.open("wb") as sink:
        fastavro.writer(sink, fastavro.parse_schema(schema), rows, codec=codec)
    return str(path)


def _value_schema(of_type: Any) -> AvroSchema:
    return parse_schema({"type": "record", "name": "V", "fields": [{"name": "x", "type": of_type}]})


def _arrived(path: str, of_type: Any) -> tuple[list[Any], list[Misfit]]:
    schema, values, misfits = _value_schema(of_type), list[Any](), list[Misfit]()
    for rows in read_container(path, ["x"]):
        cast = cast_columns(schema, rows.batch)
        misfits += cast.misfits
        bodies: Any = encode_table(schema, cast.batch)
        values += [to_plain(schema, decode_datum(schema, body))["x"] for body in bodies.to_pylist()]
    return values, misfits


_KINDS: list[tuple[Any, list[Any]]] = [
    ("null", [None]),
    ("boolean", [True, False]),
    ("int", [-(2**31), 2**31 - 1]),
    ("long", [-(2**63), 2**63 - 1]),
    ("float", [0.5, float("inf")]),
    ("double", [0.1, -0.0]),
    ("bytes", [b"", b"\x00\xff"]),
    ("string", ["", "é😀"]),
    (_COLOUR, ["BLUE"]),
    ({"type": "fixed", "name": "F", "size": 2}, [b"ab"]),
    (_CENTS, [decimal.Decimal("1.23"), decimal.Decimal("-4.50")]),
    (_FIXED_CENTS, [decimal.Decimal("-0.01")]),
    (_timed("string", "uuid"), [uuid.UUID(int=7)]),
    (_DATE, [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    (_timed("int", "time-millis"), [datetime.time(1, 2, 3, 4000)]),
    (_timed("long", "time-micros"), [datetime.time(1, 2, 3, 4)]),
    (_timed("long", "timestamp-millis"), [datetime.datetime(1969, 12, 31, 23, tzinfo=datetime.UTC)]),
    (_timed("long", "timestamp-micros"), [datetime.datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)]),
    (_timed("long", "local-timestamp-millis"), [_LOCAL.replace(microsecond=678000)]),
    (_timed("long", "local-timestamp-micros"), [_LOCAL]),
    ({"type": "array", "items": "bytes"}, [[b"abc", b"\x00\xff"], []]),
    ({"type": "array", "items": ["null", _CENTS]}, [[None, decimal.Decimal("1.00")]]),
    ({"type": "map", "values": ["null", "string"]}, [{"a": "1"}, {"b": None}, {}]),
    ({"type": "map", "values": {"type": "array", "items": _timed("long", "time-micros")}}, [{"a": [datetime.time(1)]}]),
    (_INNER, [{"a": b"\xff", "t": datetime.date(2020, 1, 1)}]),
    (["null", _INNER], [None, {"a": b"", "t": datetime.date(1970, 1, 1)}]),
    (["null", "int", "string"], [None, 5, "five"]),
    (["string", "null"], [None, "x"]),
    (["null", "float", "double"], [None, 0.5, 0.1]),
    ({"type": "array", "items": ["int", "string"]}, [[1, "a"], []]),
    (_NODE, [{"v": 1, "next": {"v": 2, "next": None}}]),
]


@pytest.mark.parametrize(("of_type", "values"), _KINDS, ids=[json.dumps(of_type)[:50] for of_type, _ in _KINDS])
def test_every_type_arrives_as_it_was_written(tmp_path: Path, of_type: Any, values: list[Any]) -> None:
    """Each type of a writer becomes the same type of the store with the values that another reader finds."""
    path = _written(tmp_path / "in.avro", of_type, values)
    schema = _value_schema(of_type)
    with Path(path).open("rb") as source:
        expected = [to_plain(schema, {"x": row["x"]})["x"] for row in fastavro.reader(source)]  # type: ignore[index,call-overload]  # rows are records
    assert _arrived(path, of_type) == (expected, [])


@pytest.mark.parametrize(
    ("of_type", "values", "wanted", "expected"),
    [
        (_CENTS, [decimal.Decimal("1.20")], "string", ["1.20"]),
        (_timed("string", "uuid"), [uuid.UUID(int=7)], "string", ["00000000-0000-0000-0000-000000000007"]),
        (_DATE, [datetime.date(2020, 1, 2)], "string", ["2020-01-02"]),
        (_COLOUR, ["RED"], "string", ["RED"]),
        ("int", [5], "long", [5]),
        ("long", [5], _CENTS, ["5.00"]),
        ("string", ["5"], "long", [5]),
        (["int", "string"], [5, 6], "long", [5, 6]),
        (_timed("int", "time-millis"), [datetime.time(1)], _timed("long", "time-micros"), ["01:00:00"]),
        ({"type": "fixed", "name": "F", "size": 3}, [b"abc"], "bytes", ["YWJj"]),
    ],
)
def test_types_widen_without_a_loss(
    tmp_path: Path, of_type: Any, values: list[Any], wanted: Any, expected: list[Any]
) -> None:
    """A value goes into another type of the store where that type holds it exactly; text is what JSON shows."""
    assert _arrived(_written(tmp_path / "in.avro", of_type, values), wanted) == (expected, [])


@pytest.mark.parametrize(
    ("of_type", "values", "wanted"),
    [
        ("long", [2**40], "int"),
        ("long", [2**53 + 1], "double"),
        (_CENTS, [decimal.Decimal("1.23")], {**_CENTS, "scale": 1}),
        (_timed("long", "time-micros"), [datetime.time(1, 2, 3, 4)], _timed("int", "time-millis")),
        (["null", "int", "string"], [5], ["null", "string"]),
        ({"type": "array", "items": ["null", "int"]}, [[None]], {"type": "array", "items": "int"}),
        (_timed("long", "timestamp-millis"), [253_402_300_800_000], _timed("long", "timestamp-millis")),
        (_DATE, [2_932_897], _DATE),
        ("string", ["x"], _COLOUR),
    ],
)
def test_what_does_not_fit_is_a_bad_row(tmp_path: Path, of_type: Any, values: list[Any], wanted: Any) -> None:
    """A value that the store's type cannot hold, or that no calendar has, is told with its row and left out."""
    arrived, misfits = _arrived(_written(tmp_path / "in.avro", of_type, values), wanted)
    assert (arrived, [(misfit.row, misfit.column) for misfit in misfits]) == ([], [(0, "x")])


@pytest.mark.parametrize("wanted", ["string", "boolean", _DATE, {"type": "array", "items": "string"}])
def test_a_column_of_which_no_value_fits_is_refused(tmp_path: Path, wanted: Any) -> None:
    """Bytes become no text, boolean, date or array: the refusal names the column."""
    with pytest.raises(InvalidRequest, match="column x") as caught:
        _arrived(_written(tmp_path / "in.avro", "bytes", [b"a"]), wanted)
    assert caught.value.code == "column_type"


def test_nanoseconds_and_uuids_in_bytes_are_known(tmp_path: Path) -> None:
    """Logical types that only writers have are taken for what they are: exact, or a bad row."""
    nanos = _timed("long", "timestamp-nanos")
    path = _written(tmp_path / "in.avro", nanos, [1_000, 1_500])
    arrived, misfits = _arrived(path, _timed("long", "timestamp-micros"))
    assert (arrived, [misfit.row for misfit in misfits]) == (["1970-01-01T00:00:00.000001Z"], [1])
    of_bytes = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    path = _written(tmp_path / "in.avro", of_bytes, [uuid.UUID(int=7).bytes])
    assert _arrived(path, "string") == (["00000000-0000-0000-0000-000000000007"], [])


# -- codecs and damage -----------------------------------------------------------------------------------------------


def _repacked(path: str, codec: str, pack: Any) -> bytes:
    """A container of the codec null as one of another codec."""
    content = Path(path).read_bytes()
    sync = content[-16:]
    header, blocks = content.split(sync, 1)[0], content.split(sync, 1)[1]
    count, rest = blocks[:1], blocks[1:]
    size, at = 0, 0
    while True:
        size |= (rest[at] & 0x7F) << (7 * at)
        at += 1
        if rest[at - 1] < 0x80:
            break
    packed = pack(rest[at : at + size // 2])
    name = codec.encode()
    header = header.replace(b"\x08null", bytes([2 * len(name)]) + name)
    length, out = 2 * len(packed), bytearray()
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(header + sync + count + bytes([*out, length]) + packed + sync)


def _snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")


def _streamed_zstd(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


_PACKED = {"snappy": _snappy, "zstandard": zstandard.compress, "zstandard ": _streamed_zstd}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", *_PACKED])
def test_every_codec_is_read(tmp_path: Path, codec: str) -> None:
    """All codecs of the specification give the same rows; zstandard also where its frame does not say the size."""
    path, values = tmp_path / "in.avro", [f"value {number}" for number in range(50)]
    if codec in _PACKED:
        _written(path, "string", values)
        path.write_bytes(_repacked(str(path), codec.strip(), _PACKED[codec]))
    else:
        _written(path, "string", values, codec)
    assert _arrived(str(path), "string") == (values, [])


def _damages(content: bytes) -> dict[str, bytes]:
    return {
        "nothing": b"",
        "no container": b"PAR1" + content,
        "no header": content[:20],
        "cut short": content[:-20],
        "another sync marker": content[:-1] + bytes([content[-1] ^ 1]),
        "an unknown codec": content.replace(b"\x08null", b"\x08lzma"),
        "a schema that is not JSON": content.replace(b'"type"', b"'type'"),
        "a body that is not text": content.replace(b"value 7", b"\xff\xfe\xfdue 7"),
    }


@pytest.mark.parametrize("damage", list(_damages(b"some bytes")))
def test_a_damaged_container_is_refused_with_its_name(tmp_path: Path, damage: str) -> None:
    """Whatever is wrong with a container, the refusal names the file and says what was found."""
    path = tmp_path / "in.avro"
    _written(path, "string", [f"value {number}" for number in range(9)])
    path.write_bytes(_damages(path.read_bytes())[damage])
    with pytest.raises(InvalidRequest, match=r"in\.avro cannot be read") as caught:
        _arrived(str(path), "string")
    assert (caught.value.code, bool(caught.value.found)) == ("unreadable_input", True)


def test_a_snappy_block_with_another_checksum_is_refused(tmp_path: Path) -> None:
    """The checksum that follows a Snappy block is looked at."""
    path = tmp_path / "in.avro"
    _written(path, "string", ["a"])
    path.write_bytes(_repacked(str(path), "snappy", lambda data: _snappy(data)[:-1] + b"\x00"))
    with pytest.raises(InvalidRequest, match="checksum"):
        _arrived(str(path), "string")


def test_a_container_of_other_values_than_records_is_refused(tmp_path: Path) -> None:
    """Only records have columns."""
    path = tmp_path / "in.avro"
    with path.open("wb") as sink:
        fastavro.writer(sink, ["null", "int"], [1, None])
    with pytest.raises(InvalidRequest, match=r"in\.avro") as caught:
        container_columns(str(path))
    assert caught.value.expected == "a container of records"
