"""The JSON face by examples."""

from __future__ import annotations

from typing import Any

import pytest

from anew.codec.avro import parse_schema
from anew.codec.plain import from_plain, key_from_text, to_plain
from anew.core.errors import InvalidRequest

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 9}
UUID = {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize(
    ("of_type", "json_value", "written"),
    [
        (MILLIS, "2013-01-01T05:00:00Z", None),
        (MILLIS, "2013-01-01 06:00:00.250+01:00", "2013-01-01T05:00:00.250Z"),
        (MILLIS, "2013-01-01T05:00:00", "2013-01-01T05:00:00Z"),
        (DECIMAL, "0.000000001", None),
        (DECIMAL, 3, "3.000000000"),
        ("bytes", "/w==", None),
        ("double", "NaN", None),
        ("double", 1, 1.0),
        (["null", "string"], None, None),
        (UUID, "0B11C9F8-0000-4000-8000-00000000000A", "0b11c9f8-0000-4000-8000-00000000000a"),
        ({"type": "int", "logicalType": "date"}, "2013-01-01", None),
        ({"type": "int", "logicalType": "time-millis"}, "05:00:00.001", None),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "2013-01-01T05:00:00.000001", None),
    ],
)
def test_json_values_and_back(of_type: Any, json_value: Any, written: Any) -> None:
    """Each type has one JSON form that it is written in, and reads some more."""
    schema = parse_schema(of_type)
    expected = json_value if written is None else written
    assert to_plain(schema, from_plain(schema, json_value)) == expected


@pytest.mark.parametrize(
    ("of_type", "json_value"),
    [
        ("string", 3),
        ("int", 3.0),
        ("bytes", "not base64!"),
        (MILLIS, "2013-01-01T05:00:00.0001Z"),
        (MILLIS, "yesterday"),
        (MILLIS, 1357016400000),
        (DECIMAL, 0.1),
        (DECIMAL, "abc"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
    ],
)
def test_a_misfit_names_the_field(of_type: Any, json_value: Any) -> None:
    """The path of the field stands in the message."""
    schema = parse_schema({"type": "record", "name": "F", "fields": [{"name": "carrier", "type": of_type}]})
    with pytest.raises(InvalidRequest) as caught:
        from_plain(schema, {"carrier": json_value})
    assert caught.value.code == "value_misfit"
    assert caught.value.message == "carrier does not fit the schema"


def test_an_unknown_field_is_refused_with_the_nearest_name() -> None:
    """A misspelt field is told before the one that it leaves missing."""
    schema = parse_schema({"type": "record", "name": "F", "fields": [{"name": "carrier", "type": "string"}]})
    with pytest.raises(InvalidRequest) as caught:
        from_plain(schema, {"carier": "UA"})
    assert caught.value.message == "carier does not fit the schema"
    assert caught.value.hint == "did you mean carrier?"


def test_missing_fields_take_their_default() -> None:
    """Each read makes its own copy of a default that can change."""
    array = {"type": "array", "items": "int"}
    schema = parse_schema({"type": "record", "name": "F", "fields": [{"name": "a", "type": array, "default": [1]}]})
    first = from_plain(schema, {})
    first["a"].append(2)
    assert from_plain(schema, {}) == {"a": [1]}


def test_keys_from_text() -> None:
    """A string key is literal text, any other JSON."""
    assert key_from_text(parse_schema("string"), '"quoted"') == '"quoted"'
    assert key_from_text(parse_schema("long"), "12") == 12
    with pytest.raises(InvalidRequest) as caught:
        key_from_text(parse_schema("long"), "twelve")
    assert caught.value.code == "bad_json"
