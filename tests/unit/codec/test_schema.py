"""Schemas: what is accepted, what is refused and where."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from anew.codec.avro import (
    AvroSchema,
    can_read,
    check_evolution,
    check_key_schema,
    decode_datum,
    encode_datum,
    parse_schema,
)
from anew.core.errors import InvalidRequest


def record(*fields: dict[str, Any], name: str = "Flight") -> AvroSchema:
    """A record schema of these fields."""
    return parse_schema({"type": "record", "name": name, "fields": list(fields)})


def column(name: str, of_type: Any, **more: Any) -> dict[str, Any]:
    """One field."""
    return {"name": name, "type": of_type, **more}


def test_a_schema_is_a_value() -> None:
    """The same schema spelt in two ways is equal, hashes equal and survives pickling."""
    one = parse_schema('{"fields": [{"type": {"type": "string"}, "name": "a"}], "name": "ns.F", "type": "record"}')
    two = parse_schema({"type": "record", "name": "F", "namespace": "ns", "fields": [column("a", "string")]})
    assert one == two
    assert hash(one) == hash(two)
    assert one.name == "ns.F"
    assert pickle.loads(pickle.dumps(one)) == one
    assert parse_schema(one.canonical) == one


@pytest.mark.parametrize("spelling", ["string", '"string"', {"type": "string"}, ' {"type":{"type":"string"}} '])
def test_a_primitive_may_be_spelt_by_its_name(spelling: Any) -> None:
    """A bare name, a JSON string and an object all mean the primitive."""
    assert parse_schema(spelling).canonical == '"string"'


def test_a_name_without_namespace_stays_so_inside_of_one() -> None:
    """The canonical text keeps a type out of the namespace around it."""
    inner = {"type": "fixed", "name": "Id", "namespace": "", "size": 2}
    schema = parse_schema({"type": "record", "name": "ns.F", "fields": [column("a", inner)]})
    again = parse_schema(schema.canonical)
    assert set(again.named) == {"ns.F", "Id"}
    assert decode_datum(again, encode_datum(schema, {"a": b"ab"})) == {"a": b"ab"}


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ("strin", "no JSON"),
        ({"name": "F"}, "schema: the object has no type"),
        ({"type": "record", "name": "F"}, "schema: the record has no list of fields"),
        ({"type": "record", "name": "F", "fields": [column("a", "strng")]}, "schema.a: the type is unknown"),
        ({"type": "record", "name": "F", "fields": [column("a", "int"), column("a", "int")]}, "schema.a: the field is"),
        ({"type": "record", "name": "F", "fields": [column("a", "int", default="x")]}, "schema.a: the default"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "symbols are not valid"),
        ({"type": "fixed", "name": "X", "size": 0}, "no valid size"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, "decimal is not valid"),
        (["null", "int", "int"], "same type twice"),
        ([], "the union is empty"),
        ({"type": "array"}, "the array has no items"),
        (3, "this is no schema"),
    ],
)
def test_a_bad_schema_is_refused_with_its_place(bad: Any, where: str) -> None:
    """What is wrong and where stands in the message."""
    with pytest.raises(InvalidRequest) as caught:
        parse_schema(bad)
    assert caught.value.code == "bad_schema"
    assert where in caught.value.message


@pytest.mark.parametrize(
    ("of_type", "of_name"),
    [
        ({"type": "map", "values": "int"}, "map"),
        ({"type": "array", "items": "int"}, "array"),
        ("float", "float"),
        (["null", "double"], "double"),
    ],
)
def test_a_key_schema_without_one_to_one_bytes_is_refused(of_type: Any, of_name: str) -> None:
    """Maps, arrays and floats are found at any depth, and the path is named."""
    inner = {"type": "record", "name": "Inner", "fields": [column("deep", of_type)]}
    with pytest.raises(InvalidRequest) as caught:
        check_key_schema(record(column("a", "string"), column("b", ["null", inner])))
    assert caught.value.code == "bad_key_schema"
    assert caught.value.found == f"{of_name} at key.b.deep"


def test_a_key_schema_of_exact_types_is_accepted() -> None:
    """Records, unions, decimals and dates are fine in a key."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    check_key_schema(record(column("a", "string"), column("b", ["null", decimal])))
    check_key_schema(parse_schema("string"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([column("a", "int"), column("b", "string")], [column("a", "int")]),
        ([column("a", "int")], [column("a", "int"), column("b", "string", default="x")]),
        ([column("a", "int")], [column("a", "double")]),
        ([column("a", "int")], [column("a", ["null", "long"], default=None)]),
        ([column("a", "int")], [column("b", "int", aliases=["a"])]),
        ([column("a", ["null", "int"])], [column("a", ["null", "long", "string"])]),
    ],
)
def test_an_allowed_change_can_be_read(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    """What the check allows, decoding can do."""
    writer, reader = record(*old), record(*new)
    assert can_read(reader, writer)
    check_evolution([writer, reader], reader)
    body = encode_datum(writer, {one["name"]: "x" if one["type"] == "string" else 7 for one in old})
    read = decode_datum(writer, body, reader)
    assert set(read) == {one["name"] for one in new}
    assert read[new[0]["name"]] == 7


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (column("a", "string"), column("b", "string")),
        (column("b", "string"), column("b", "int")),
        (column("b", "double"), column("b", "float")),
        (column("b", ["null", "string"]), column("b", "string")),
        (column("b", MILLIS), column("b", MICROS)),
        (column("b", MILLIS), column("b", "long")),
        (
            column("b", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            column("b", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ),
        (
            column("b", {"type": "fixed", "name": "X", "size": 2}),
            column("b", {"type": "fixed", "name": "X", "size": 3}),
        ),
    ],
)
def test_a_change_that_cannot_be_read_is_refused_by_field(old: dict[str, Any], new: dict[str, Any]) -> None:
    """The refusal names the field."""
    with pytest.raises(InvalidRequest) as caught:
        check_evolution([record(new), record(old)], record(new))
    assert caught.value.code == "incompatible_schema"
    assert "value schema 2, at value.b" in caught.value.message


def test_defaults_are_read_as_datums() -> None:
    """A default of bytes or of a timestamp is decoded to what a written value would be."""
    reader = record(column("a", "int"), column("b", "bytes", default="\u00ff"), column("t", MILLIS, default=0))
    read = decode_datum(record(column("a", "int")), b"\x02", reader)
    assert read["b"] == b"\xff"
    assert read["t"].isoformat() == "1970-01-01T00:00:00+00:00"
