"""The JSON face of keys and values: plain JSON by the schema, without union wrappers.

=====================  =====================================================
type                   JSON
=====================  =====================================================
bytes, fixed           base64 text
timestamps             ISO-8601 in UTC with ``Z``; read with any offset, naive is UTC
local timestamps       ISO-8601 without an offset
date, times            ISO-8601
decimal                text with the schema's scale
uuid, enum             text
float, double          a number; ``"NaN"``, ``"Infinity"``, ``"-Infinity"`` as text, which JSON has no numbers for
=====================  =====================================================

A value of a union is the first branch that fits, so branches that look alike in JSON (bytes and string) are
told apart by their order alone.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any

from anew.codec.datum import (
    DATUM_LEAVES,
    EPOCH,
    EPOCH_NAIVE,
    EPOCH_ORDINAL,
    datum_fill,
    default_compiler,
    real,
    scaled,
    whole_millis,
)
from anew.codec.misfit import ValueMisfit, describe
from anew.codec.nodes import Node, kind
from anew.codec.schema import AvroSchema
from anew.codec.walk import Compiler, Direction, Step
from anew.core.errors import InvalidRequest

ISO_INSTANT = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?"
_ISO_INSTANT = re.compile(ISO_INSTANT + r"\Z", re.ASCII)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def from_plain(schema: AvroSchema, json_value: Any) -> Any:
    """The datum of a JSON value; missing fields take their default.

    Raises:
        InvalidRequest: ``value_misfit``, naming the path of the first value that does not fit; fields that the
            schema does not have are refused, with the nearest name.
    """
    try:
        return _reader(schema)(json_value)
    except ValueMisfit as misfit:
        raise misfit.as_request_error() from None


def to_plain(schema: AvroSchema, datum: Any) -> Any:
    """The JSON value of a datum; the other way round of ``from_plain``.

    Raises:
        InvalidRequest: ``value_misfit``, naming the path.
    """
    try:
        return _writer(schema)(datum)
    except ValueMisfit as misfit:
        raise misfit.as_request_error() from None


def key_from_text(schema: AvroSchema, key_text: str) -> Any:
    """The datum of a key as the command line spells it: literal text for a string schema, JSON for any other.

    Raises:
        InvalidRequest: ``bad_json`` or ``value_misfit``.
    """
    if kind(schema.root) in ("string", "string-uuid"):
        return from_plain(schema, key_text)
    try:
        value = json.loads(key_text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            "bad_json",
            f"the key is no JSON: {error.msg} (column {error.colno})",
            found=describe(key_text),
            expected=f"JSON that fits the key schema {schema.canonical}",
            hint="only keys of a string schema are written without quotes",
        ) from None
    return from_plain(schema, value)


def misfit_of(schema: AvroSchema, json_value: Any) -> tuple[Any, ValueMisfit | None]:
    """The datum, or the misfit as a value, for callers that collect misfits."""
    try:
        return _reader(schema)(json_value), None
    except ValueMisfit as misfit:
        return None, misfit


@functools.lru_cache(maxsize=1024)
def _reader(schema: AvroSchema) -> Step:
    return Compiler(schema.named, Direction(_FROM_PLAIN, datum_fill(schema.named))).compile(schema.root)


@functools.lru_cache(maxsize=1024)
def _writer(schema: AvroSchema) -> Step:
    defaults = datum_fill(schema.named)

    def fill(node: Node, raw: Any, step: Step) -> Callable[[], Any]:
        make = defaults(node, raw, step)
        return lambda: step(make())

    return Compiler(schema.named, Direction(_TO_PLAIN, fill)).compile(schema.root)


# ---- JSON to datum ---------------------------------------------------------------------------------------------


def _read_real(expected: str) -> Callable[[Node], Step]:
    def step(value: Any) -> float:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        return real(value, expected)

    return lambda _node: step


def _read_base64(value: Any, expected: str) -> bytes:
    if not isinstance(value, str):
        raise ValueMisfit(describe(value), f"{expected} as base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueMisfit(describe(value), f"{expected} as base64 text") from None


def _read_fixed(node: Node) -> Step:
    check = DATUM_LEAVES["fixed"](node)
    return lambda value: check(_read_base64(value, f"fixed of {node['size']} bytes"))


def parse_instant(value: Any, expected: str) -> datetime.datetime:
    """The instant of an ISO-8601 text, in UTC; naive is UTC; at most six digits of a second's fraction."""
    if isinstance(value, str) and _ISO_INSTANT.match(value) is not None:
        try:
            parsed = datetime.datetime.fromisoformat(value)
            if parsed.tzinfo is None:
                return parsed.replace(tzinfo=datetime.UTC)
            return parsed.astimezone(datetime.UTC)
        except (ValueError, OverflowError):
            pass
    raise ValueMisfit(describe(value), f"{expected} as ISO-8601 text, such as 2013-01-01T05:00:00Z")


def _read_instant(expected: str) -> Callable[[Node], Step]:
    def step(value: Any) -> datetime.datetime:
        parsed = parse_instant(value, expected)
        if expected.endswith("millis"):
            whole_millis(value, parsed.microsecond, expected)
        return parsed

    return lambda _node: step


def _read_local(expected: str) -> Callable[[Node], Step]:
    check = DATUM_LEAVES[f"long-{expected}"]("")

    def step(value: Any) -> Any:
        if not isinstance(value, str) or _ISO_INSTANT.match(value) is None:
            raise ValueMisfit(describe(value), f"{expected} as ISO-8601 text without an offset")
        try:
            return check(datetime.datetime.fromisoformat(value))
        except ValueMisfit:
            raise
        except ValueError:
            raise ValueMisfit(describe(value), f"{expected} as ISO-8601 text without an offset") from None

    return lambda _node: step


def _read_date(value: Any) -> datetime.date:
    try:
        if isinstance(value, str) and len(value) == len("2013-01-01"):
            return datetime.date.fromisoformat(value)
    except ValueError:
        pass
    raise ValueMisfit(describe(value), "date as ISO-8601 text, such as 2013-01-01")


def _read_time(expected: str) -> Callable[[Node], Step]:
    def step(value: Any) -> datetime.time:
        try:
            parsed = datetime.time.fromisoformat(value if isinstance(value, str) else "")
        except ValueError:
            raise ValueMisfit(describe(value), f"{expected} as ISO-8601 text, such as 05:00:00") from None
        if parsed.tzinfo is not None:
            raise ValueMisfit(describe(value), f"{expected} without an offset")
        if expected.endswith("millis"):
            whole_millis(value, parsed.microsecond, expected)
        return parsed

    return lambda _node: step


def _read_decimal(node: Node) -> Step:
    expected = f"decimal({node['precision']}, {node.get('scale', 0)}) as text"

    def step(value: Any) -> decimal.Decimal:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, str) and not whole:
            raise ValueMisfit(describe(value), expected)
        try:
            return scaled(decimal.Decimal(value), node)
        except (decimal.InvalidOperation, ValueMisfit):
            raise ValueMisfit(describe(value), expected) from None

    return step


def _read_uuid(_node: Node) -> Step:
    # A uuid as decoding gives it, not the text that fastavro is given.
    return default_compiler({}).compile({"type": "string", "logicalType": "uuid"})


_FROM_PLAIN: dict[str, Callable[[Node], Step]] = {
    **DATUM_LEAVES,
    "float": _read_real("float"),
    "double": _read_real("double"),
    "bytes": lambda _node: lambda value: _read_base64(value, "bytes"),
    "fixed": _read_fixed,
    "int-date": lambda _node: _read_date,
    "int-time-millis": _read_time("time-millis"),
    "long-time-micros": _read_time("time-micros"),
    "long-timestamp-millis": _read_instant("timestamp-millis"),
    "long-timestamp-micros": _read_instant("timestamp-micros"),
    "long-local-timestamp-millis": _read_local("local-timestamp-millis"),
    "long-local-timestamp-micros": _read_local("local-timestamp-micros"),
    "bytes-decimal": _read_decimal,
    "fixed-decimal": _read_decimal,
    "string-uuid": _read_uuid,
}

# ---- datum to JSON ---------------------------------------------------------------------------------------------


def _after(check: Callable[[Node], Step], convert: Callable[[Any], Any]) -> Callable[[Node], Step]:
    """First the datum's own check, then its JSON form."""

    def leaf(node: Node) -> Step:
        checked = check(node)
        return lambda value: convert(checked(value))

    return leaf


def _write_real(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _write_instant(unit_micros: int) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        try:
            if isinstance(value, int):
                value = EPOCH + datetime.timedelta(microseconds=value * unit_micros)
            in_utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
        except OverflowError:
            raise ValueMisfit(describe(value), "a timestamp within the years 1 to 9999") from None
        return f"{_iso(in_utc)}Z"

    return convert


def _write_local(unit_micros: int) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        try:
            naive = (
                EPOCH_NAIVE + datetime.timedelta(microseconds=value * unit_micros) if isinstance(value, int) else value
            )
        except OverflowError:
            raise ValueMisfit(describe(value), "a timestamp within the years 1 to 9999") from None
        return _iso(naive)

    return convert


def _iso(value: datetime.datetime | datetime.time) -> str:
    if value.microsecond == 0:
        return value.isoformat(timespec="seconds")
    return value.isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "microseconds")


def _write_date(value: Any) -> str:
    try:
        day = datetime.date.fromordinal(value + EPOCH_ORDINAL) if isinstance(value, int) else value
    except (ValueError, OverflowError):
        raise ValueMisfit(describe(value), "a date within the years 1 to 9999") from None
    return str(day.isoformat())


def _write_time(unit_micros: int) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if isinstance(value, int):
            if not 0 <= value * unit_micros < 86_400_000_000:
                raise ValueMisfit(describe(value), "a time within one day")
            value = (EPOCH_NAIVE + datetime.timedelta(microseconds=value * unit_micros)).time()
        return _iso(value)

    return convert


def _write_decimal(value: decimal.Decimal) -> str:
    # Not str(): that turns to the scientific form for small numbers.
    return format(value, "f")


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "float": _write_real,
    "double": _write_real,
    "bytes": _write_base64,
    "fixed": _write_base64,
    "int-date": _write_date,
    "int-time-millis": _write_time(1000),
    "long-time-micros": _write_time(1),
    "long-timestamp-millis": _write_instant(1000),
    "long-timestamp-micros": _write_instant(1),
    "long-local-timestamp-millis": _write_local(1000),
    "long-local-timestamp-micros": _write_local(1),
    "bytes-decimal": _write_decimal,
    "fixed-decimal": _write_decimal,
}

_TO_PLAIN: dict[str, Callable[[Node], Step]] = {
    **DATUM_LEAVES,
    **{of_kind: _after(DATUM_LEAVES[of_kind], convert) for of_kind, convert in _CONVERSIONS.items()},
}
