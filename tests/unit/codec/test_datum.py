"""Datums: what does not fit is refused by path, and nothing is written."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from anew.codec.avro import AvroSchema, decode_datum, encode_datum, parse_schema
from anew.core.errors import Failed, InvalidRequest


def schema() -> AvroSchema:
    """A record with one field of many kinds."""
    leg = {"type": "record", "name": "Leg", "fields": [{"name": "dest", "type": "string"}]}
    fields: list[tuple[str, Any]] = [
        ("carrier", "string"),
        ("flight", "int"),
        ("late", ["null", "boolean"]),
        ("legs", {"type": "array", "items": leg}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("fare", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}),
    ]
    columns = [{"name": name, "type": of_type} for name, of_type in fields]
    columns[2]["default"] = None
    return parse_schema({"type": "record", "name": "Flight", "fields": columns})


def datum(**changes: Any) -> dict[str, Any]:
    """A datum that fits, with changes."""
    at = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    fitting = {"carrier": "UA", "flight": 1545, "late": True, "legs": [{"dest": "IAH"}], "at": at}
    return {**fitting, "fare": decimal.Decimal("12.50"), **changes}


def test_a_datum_comes_back() -> None:
    """Decoding gives what was encoded, and a missing field its default."""
    assert decode_datum(schema(), encode_datum(schema(), datum())) == datum()
    without = {name: value for name, value in datum().items() if name != "late"}
    assert decode_datum(schema(), encode_datum(schema(), without)) == datum(late=None)


@pytest.mark.case("stores:I7")
@pytest.mark.parametrize(
    ("changes", "path", "found"),
    [
        ({"carrier": 3}, "carrier", "int 3"),
        ({"flight": True}, "flight", "boolean True"),
        ({"flight": 2**31}, "flight", "int 2147483648, out of range"),
        ({"late": "no"}, "late", "text 'no'"),
        ({"legs": [{"dest": "IAH"}, {"dest": None}]}, "legs[1].dest", "null"),
        ({"legs": [{}]}, "legs[0].dest", "nothing: the field is missing"),
        ({"at": datetime.datetime(2013, 1, 1, microsecond=1, tzinfo=datetime.UTC)}, "at", "datetime"),
        ({"fare": decimal.Decimal("1.234")}, "fare", "Decimal"),
        ({"fare": decimal.Decimal("1000")}, "fare", "Decimal"),
        ({"fare": decimal.Decimal("1e999999")}, "fare", "Decimal"),
        ({"carier": "UA"}, "carier", "a field that the schema does not have"),
    ],
)
def test_a_misfit_is_refused_by_path(changes: dict[str, Any], path: str, found: str) -> None:
    """The first value that does not fit is named with its path."""
    with pytest.raises(InvalidRequest) as caught:
        encode_datum(schema(), datum(**changes))
    assert caught.value.code == "value_misfit"
    assert caught.value.message == f"{path} does not fit the schema"
    assert found in caught.value.found


def test_a_naive_datetime_is_utc() -> None:
    """The machine's time zone has no say in the bytes."""
    naive = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC).replace(tzinfo=None)
    assert encode_datum(schema(), datum(at=naive)) == encode_datum(schema(), datum())


def test_a_broken_body_is_told() -> None:
    """Bytes cut off and bytes left over are both corrupt."""
    body = encode_datum(schema(), datum())
    for broken in (body[:-1], body + b"x", b""):
        with pytest.raises(Failed) as caught:
            decode_datum(schema(), broken)
        assert caught.value.code == "corrupt_value"
