"""The columns of a table: names, types, roles and defaults."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from anew.core.errors import InvalidRequest
from anew.core.suggest import did_you_mean

MAX_COLUMNS = 2_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_FIELDS = ("name", "type", "role", "nullable", "default")

TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double": pa.float64(),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
"""Type → how Arrow holds it; besides them there is ``decimal(precision, scale)``. Timestamps are UTC."""

_ALIASES = {
    "bool": "boolean",
    "int16": "smallint",
    "short": "smallint",
    "int": "integer",
    "int32": "integer",
    "long": "bigint",
    "int64": "bigint",
    "float": "real",
    "float32": "real",
    "float64": "double",
    "string": "varchar",
    "text": "varchar",
    "binary": "blob",
    "bytes": "blob",
    "date32": "date",
    "datetime": "timestamp",
}
"""Other names of types, as SQL dialects, Spark and Arrow spell them."""


class Role(StrEnum):
    """What a column is for."""

    DIMENSION = "dimension"
    METRIC = "metric"
    TIME = "time"


class Column(BaseModel):
    """One column, in canonical form.

    Attributes:
        type: A name of `TYPES`, or ``decimal(precision,scale)``.
        default: What rows have that were written without the column, in JSON: bytes as base64, times as ISO-8601 UTC,
            decimals as texts; None: null.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    type: str
    role: Role = Role.DIMENSION
    nullable: bool = True
    default: bool | int | float | str | None = None

    @property
    def arrow_type(self) -> pa.DataType:
        """How Arrow holds it."""
        return arrow_type(self.type)

    @property
    def fill(self) -> pa.Scalar[Any]:
        """The default as Arrow holds it."""
        return _scalar(self.name, self.default, self.arrow_type)


def arrow_type(name: str) -> pa.DataType:
    """How Arrow holds a canonical type."""
    found = _DECIMAL.fullmatch(name)
    return TYPES[name] if found is None else pa.decimal128(int(found[1]), int(found[2]))


def type_name(held: pa.DataType) -> str | None:
    """The type of a column that Arrow holds so; None when tables have none for it."""
    if isinstance(held, pa.DictionaryType):
        return type_name(held.value_type)
    if pa.types.is_decimal(held):
        return f"decimal({held.precision},{held.scale})"
    if pa.types.is_timestamp(held):
        return "timestamp"
    if pa.types.is_large_string(held):
        return "varchar"
    if pa.types.is_large_binary(held):
        return "blob"
    return next((name for name, known in TYPES.items() if known == held), None)


def parse_columns(document: Any) -> tuple[Column, ...]:
    """The columns of a schema file: ``{"columns": [{"name", "type", "role", "nullable", "default"}, …]}``.

    Raises:
        InvalidRequest: ``bad_schema``; names the column.
    """
    found = document.get("columns") if isinstance(document, Mapping) else None
    if not isinstance(found, list) or not found or set(document) - {"columns"}:
        raise _bad("it needs a list of columns and nothing else", document, '{"columns": [{"name", "type", …}, …]}')
    if len(found) > MAX_COLUMNS:
        raise _bad("there are too many columns", len(found), f"at most {MAX_COLUMNS}")
    columns = tuple(_column(entry) for entry in found)
    names = [column.name.lower() for column in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _bad("a column is there twice", twice, "names that differ in more than upper and lower case")
    return columns


def check_known(name: str, columns: Mapping[str, Column], where: str) -> None:
    """Raise unless there is a column of that name.

    Raises:
        InvalidRequest: ``unknown_column``, with the nearest name.
    """
    if name not in columns:
        raise InvalidRequest(
            "unknown_column",
            f"{where} names a column that the table does not have",
            found=name,
            expected=", ".join(columns),
            hint=did_you_mean(name, columns),
        )


def _column(entry: Any) -> Column:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or set(entry) - set(_FIELDS):
        raise _bad("a column is not right", entry, f"an object with {', '.join(_FIELDS)}")
    name = entry["name"]
    if not _NAME.fullmatch(name):
        raise _bad("a column's name is not right", name, "a letter or _, then letters, digits and _; at most 128")
    role, nullable = entry.get("role", Role.DIMENSION), entry.get("nullable", True)
    if role not in tuple(Role):
        raise _bad(f"the role of {name} is unknown", role, " | ".join(Role))
    if not isinstance(nullable, bool):
        raise _bad(f"nullable of {name} is not right", nullable, "true or false")
    column = Column(name=name, type=_canonical(name, entry.get("type")), role=Role(role), nullable=nullable)
    default = entry.get("default")
    if default is None:
        return column
    return column.model_copy(update={"default": _json(_scalar(name, default, column.arrow_type))})


def _canonical(column: str, found: Any) -> str:
    text = str(found).strip().lower()
    text = _ALIASES.get(text, text)
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return f"decimal({int(decimal[1])},{int(decimal[2])})"
    if text not in TYPES:
        known = [*TYPES, "decimal(precision,scale)"]
        raise _bad(f"the type of {column} is unknown", found, ", ".join(known), did_you_mean(text, known))
    return text


def _scalar(name: str, value: Any, held: pa.DataType) -> pa.Scalar[Any]:
    """A JSON value as a scalar of the type; what loses something is refused.

    Raises:
        InvalidRequest: ``bad_schema``.
    """
    try:
        scalar: pa.Scalar[Any] = pa.scalar(_python(value, held), held)
        if pa.types.is_floating(held) and scalar.is_valid and not math.isfinite(scalar.as_py()):
            raise ValueError
        return scalar
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError, InvalidOperation, OverflowError, binascii.Error):
        raise _bad(f"the default of {name} does not fit its type", value, str(held)) from None


def _python(value: Any, held: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(held) != isinstance(value, bool):
        raise ValueError
    if pa.types.is_integer(held) and not isinstance(value, int):
        raise ValueError
    if pa.types.is_floating(held):
        return float(value)
    if pa.types.is_decimal(held):
        return Decimal(str(value))
    if pa.types.is_date(held):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(held):
        moment = dt.datetime.fromisoformat(value)
        return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
    if pa.types.is_binary(held):
        return base64.b64decode(value, validate=True)
    if pa.types.is_string(held) and not isinstance(value, str):
        raise ValueError
    return value


def _json(scalar: pa.Scalar[Any]) -> Any:
    """The JSON form of a default, the same for every way to say it."""
    value: Any = scalar.as_py()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _bad(message: str, found: Any, expected: str, hint: str | None = None) -> InvalidRequest:
    return InvalidRequest(
        "bad_schema", f"the schema does not fit: {message}", found=found, expected=expected, hint=hint
    )
