"""Columns: what a schema file may say of them, and the one form in which they are kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anew.core.errors import InvalidRequest
from anew.core.tables.columns import (
    MAX_COLUMNS,
    TYPES,
    Column,
    Role,
    arrow_type,
    check_known,
    parse_columns,
    type_name,
)


def _one(**column: Any) -> Column:
    return parse_columns({"columns": [{"name": "a", "type": "varchar", **column}]})[0]


def _refused(document: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_columns(document)
    assert caught.value.code == "bad_schema"
    return caught.value


def test_a_column_is_a_nullable_dimension_unless_told_otherwise() -> None:
    """Name and type are enough; all the rest has a default, and what is said is kept."""
    assert _one() == Column(name="a", type="varchar", role=Role.DIMENSION, nullable=True, default=None)
    said = _one(type="bigint", role="metric", nullable=False, default=0)
    assert said == Column(name="a", type="bigint", role=Role.METRIC, nullable=False, default=0)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_goes_to_arrow_and_back(name: str) -> None:
    """Each type is known by its own name, in any case, and is found again from what Arrow holds."""
    assert _one(type=f" {name.upper()} ").type == name
    assert (arrow_type(name), type_name(TYPES[name])) == (TYPES[name], name)
    assert _one(type=name).arrow_type == TYPES[name]


@pytest.mark.case("tables:A6")
@pytest.mark.parametrize(
    ("alias", "canonical"),
    [
        ("bool", "boolean"),
        ("int16", "smallint"),
        ("SHORT", "smallint"),
        ("int", "integer"),
        ("int32", "integer"),
        ("long", "bigint"),
        ("Int64", "bigint"),
        ("float", "real"),
        ("float32", "real"),
        ("float64", "double"),
        ("string", "varchar"),
        ("text", "varchar"),
        ("binary", "blob"),
        ("bytes", "blob"),
        ("date32", "date"),
        ("datetime", "timestamp"),
        ("decimal(10, 2)", "decimal(10,2)"),
        ("NUMERIC(10,02)", "decimal(10,2)"),
    ],
)
def test_other_names_of_types_mean_the_same(alias: str, canonical: str) -> None:
    """What SQL dialects, Spark and Arrow call a type is kept under one name."""
    assert _one(type=alias) == _one(type=canonical)
    assert _one(type=alias).type == canonical


@pytest.mark.parametrize(
    ("held", "name"),
    [
        (pa.dictionary(pa.int32(), pa.string()), "varchar"),
        (pa.large_string(), "varchar"),
        (pa.large_binary(), "blob"),
        (pa.timestamp("ms", "UTC"), "timestamp"),
        (pa.decimal128(20, 3), "decimal(20,3)"),
        (pa.list_(pa.int32()), None),
        (pa.uint64(), None),
    ],
)
def test_what_arrow_holds_has_a_type_or_none(held: pa.DataType, name: str | None) -> None:
    """Other ways of holding the same values give the same type; what tables have no type for gives none."""
    assert type_name(held) == name


@pytest.mark.parametrize(
    ("kind", "said", "kept"),
    [
        ("boolean", False, False),
        ("integer", 7, 7),
        ("double", 1, 1.0),
        ("double", "2.5", 2.5),
        ("decimal(10,2)", 1.5, "1.50"),
        ("decimal(10,2)", "1.50", "1.50"),
        ("varchar", "none", "none"),
        ("blob", "YQ==", "YQ=="),
        ("date", "2013-01-31", "2013-01-31"),
        ("timestamp", "2013-01-31", "2013-01-31T00:00:00"),
        ("timestamp", "2013-01-31T02:00:00+02:00", "2013-01-31T00:00:00"),
        ("timestamp", "2013-01-31T00:00:00Z", "2013-01-31T00:00:00"),
    ],
)
@pytest.mark.case("tables:A6")
def test_a_default_has_one_form(kind: str, said: Any, kept: Any) -> None:
    """However a default is said, it is kept in one form, and that form is read as the same value."""
    column = _one(type=kind, default=said)
    assert (column.default, type(column.default)) == (kept, type(kept))
    assert _one(type=kind, default=kept) == column
    assert Column.model_validate_json(column.model_dump_json()).fill.equals(column.fill)
    assert column.fill.type == column.arrow_type


def test_no_default_fills_with_null() -> None:
    """A column without a default has null where rows were written without it."""
    fill = _one(type="bigint").fill
    assert (fill.is_valid, fill.type) == (False, pa.int64())


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("boolean", 1),
        ("integer", True),
        ("integer", 1.0),
        ("integer", "1"),
        ("smallint", 70_000),
        ("double", "NaN"),
        ("double", float("inf")),
        ("real", 1e300),
        ("double", "much"),
        ("decimal(10,2)", "1.234"),
        ("decimal(10,2)", "NaN"),
        ("decimal(4,2)", 123),
        ("varchar", 5),
        ("blob", "no base64!"),
        ("blob", 5),
        ("date", "31.1.2013"),
        ("timestamp", 5),
    ],
)
def test_a_default_that_does_not_fit_its_type_is_refused(kind: str, default: Any) -> None:
    """A default that would lose something, or has no place in canonical JSON, is refused with what was found."""
    error = _refused({"columns": [{"name": "a", "type": kind, "default": default}]})
    assert "the default of a" in error.message
    assert error.expected == str(arrow_type(kind))


@pytest.mark.parametrize(
    ("column", "about"),
    [
        ("a", "a column is not right"),
        ({"type": "varchar"}, "a column is not right"),
        ({"name": 5, "type": "varchar"}, "a column is not right"),
        ({"name": "a", "type": "varchar", "nullible": True}, "a column is not right"),
        ({"name": "1a", "type": "varchar"}, "a column's name"),
        ({"name": "a b", "type": "varchar"}, "a column's name"),
        ({"name": "a" * 129, "type": "varchar"}, "a column's name"),
        ({"name": "", "type": "varchar"}, "a column's name"),
        ({"name": "a", "type": "varchar", "role": "key"}, "the role of a"),
        ({"name": "a", "type": "varchar", "nullable": "no"}, "nullable of a"),
        ({"name": "a"}, "the type of a"),
        ({"name": "a", "type": "list"}, "the type of a"),
        ({"name": "a", "type": "decimal(39,2)"}, "the type of a"),
        ({"name": "a", "type": "decimal(4,5)"}, "the type of a"),
        ({"name": "a", "type": "decimal(0,0)"}, "the type of a"),
    ],
)
def test_a_column_that_is_not_right_is_refused(column: Any, about: str) -> None:
    """What is wrong with a column is said, and which column it is."""
    assert about in _refused({"columns": [{"name": "b", "type": "date"}, column]}).message


def test_an_unknown_type_has_the_nearest_name() -> None:
    """A misspelt type is refused with the one that was meant."""
    assert _refused({"columns": [{"name": "a", "type": "timestmp"}]}).hint == "did you mean timestamp?"


@pytest.mark.parametrize("document", [None, [], {}, {"columns": []}, {"columns": {}}, {"columns": [], "table": "x"}])
def test_a_schema_is_a_list_of_columns(document: Any) -> None:
    """Anything but an object with columns, and nothing else, is refused."""
    assert "a list of columns" in _refused(document).message


def test_names_differ_in_more_than_case() -> None:
    """Two columns that SQL could not tell apart are refused, and so are more columns than a table may have."""
    twice = [{"name": name, "type": "varchar"} for name in ("a", "b", "A")]
    assert _refused({"columns": twice}).found == "a"
    many = [{"name": f"c{number}", "type": "varchar"} for number in range(MAX_COLUMNS + 1)]
    assert _refused({"columns": many}).found == MAX_COLUMNS + 1
    assert len(parse_columns({"columns": many[:-1]})) == MAX_COLUMNS


def test_an_unknown_column_has_the_nearest_name() -> None:
    """Who names a column that is not there is told where, what there is, and what was meant."""
    known = {"city": _one(), "fare": _one()}
    check_known("city", known, "the setting sort")
    with pytest.raises(InvalidRequest) as caught:
        check_known("ctiy", known, "the setting sort")
    error = caught.value
    assert (error.code, error.found, error.expected) == ("unknown_column", "ctiy", "city, fare")
    assert "the setting sort" in error.message
    assert error.hint == "did you mean city?"
