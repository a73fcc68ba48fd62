"""Datums: the Python values that fastavro takes and gives, checked and completed before it sees them.

fastavro by itself writes True as the int 1, reads a naive datetime in the machine's time zone and cuts
microseconds off a millisecond timestamp; here these are settled first (naive is UTC; nothing is cut off).
"""

from __future__ import annotations

import copy
import datetime
import decimal
import numbers
import uuid
from collections.abc import Callable
from typing import Any

from anew.codec.misfit import ValueMisfit, describe
from anew.codec.nodes import Named, Node
from anew.codec.walk import Compiler, Direction, Fill, Step

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EPOCH_NAIVE = EPOCH.replace(tzinfo=None)
EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
# Half a step above the greatest float32: what is below rounds to it, what is not overflows.
FLOAT32_LIMIT = 3.4028235677973366e38


def integer(value: Any, bits: int, expected: str) -> int:
    """The value as a signed integer of so many bits; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueMisfit(describe(value), expected)
    whole = int(value)
    if not -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
        raise ValueMisfit(f"{describe(whole)}, out of range", f"{expected} of {bits} bits")
    return whole


def real(value: Any, expected: str) -> float:
    """The value as a float; ``float`` refuses what overflows 32 bits."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueMisfit(describe(value), expected)
    try:
        number = float(value)
    except OverflowError:
        raise ValueMisfit(f"{describe(value)}, out of range", expected) from None
    if expected == "float" and FLOAT32_LIMIT <= abs(number) < float("inf"):
        raise ValueMisfit(f"{describe(value)}, out of range", expected)
    return number


def text(value: Any) -> str:
    """The value as a string that UTF-8 can hold."""
    if not isinstance(value, str):
        raise ValueMisfit(describe(value), "string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueMisfit(describe(value), "a string without lone surrogates") from None
    return value


def scaled(value: decimal.Decimal, node: Node) -> decimal.Decimal:
    """The same number with exactly the schema's scale, refused where it needs more digits."""
    scale, precision = int(node.get("scale", 0)), int(node["precision"])
    expected = f"decimal({precision}, {scale})"
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueMisfit(describe(value), expected)
    unscaled, shift = int("".join(map(str, digits))), exponent + scale
    if unscaled == 0:
        shift = 0
    # Lengths first: 1e999999999 must not be written out in order to be refused.
    if (len(digits) + shift > precision and shift > 0) or -shift > len(digits):
        raise ValueMisfit(describe(value), expected)
    if shift >= 0:
        unscaled, rest = unscaled * 10**shift, 0
    else:
        unscaled, rest = divmod(unscaled, 10**-shift)
    too_wide = node["type"] == "fixed" and unscaled.bit_length() >= node["size"] * 8
    if rest != 0 or unscaled >= 10**precision or too_wide:
        raise ValueMisfit(describe(value), expected)
    return decimal.Decimal((sign if unscaled else 0, tuple(map(int, str(unscaled))), -scale))


def whole_millis(value: Any, micros: int, expected: str) -> None:
    """Refuse a time that milliseconds would cut."""
    if micros % 1000 != 0:
        raise ValueMisfit(describe(value), f"{expected}, in whole milliseconds")


def instant_leaf(expected: str) -> Callable[[Node], Step]:
    """Timestamps: a datetime (naive is UTC) or the raw number."""

    def step(value: Any) -> Any:
        if not isinstance(value, datetime.datetime):
            return integer(value, 64, expected)
        if expected.endswith("millis"):
            whole_millis(value, value.microsecond, expected)
        return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value

    return lambda _node: step


def local_leaf(expected: str) -> Callable[[Node], Step]:
    """Local timestamps: a datetime without a time zone, or the raw number."""

    def step(value: Any) -> Any:
        if not isinstance(value, datetime.datetime):
            return integer(value, 64, expected)
        if value.tzinfo is not None:
            raise ValueMisfit(describe(value), f"{expected}, without a time zone")
        if expected.endswith("millis"):
            whole_millis(value, value.microsecond, expected)
        return value

    return lambda _node: step


def time_leaf(expected: str, bits: int) -> Callable[[Node], Step]:
    """Times of day: a time, or the raw number."""

    def step(value: Any) -> Any:
        if not isinstance(value, datetime.time):
            return integer(value, bits, expected)
        if expected.endswith("millis"):
            whole_millis(value, value.microsecond, expected)
        return value

    return lambda _node: step


def _null(value: Any) -> None:
    if value is not None:
        raise ValueMisfit(describe(value), "null")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueMisfit(describe(value), "boolean")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ValueMisfit(describe(value), "bytes")
    return bytes(value)


def _date(value: Any) -> Any:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    return integer(value, 32, "date")


def _uuid(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    try:
        return str(uuid.UUID(value if isinstance(value, str) else ""))
    except ValueError:
        raise ValueMisfit(describe(value), "uuid") from None


def _decimal_leaf(node: Node) -> Step:
    def step(value: Any) -> decimal.Decimal:
        if isinstance(value, int) and not isinstance(value, bool):
            value = decimal.Decimal(value)
        if not isinstance(value, decimal.Decimal):
            raise ValueMisfit(describe(value), f"decimal({node['precision']}, {node.get('scale', 0)})")
        return scaled(value, node)

    return step


def enum_leaf(node: Node) -> Step:
    """Enums: one of the symbols."""
    symbols = frozenset(node["symbols"])

    def step(value: Any) -> str:
        if not isinstance(value, str) or value not in symbols:
            raise ValueMisfit(describe(value), f"one of {', '.join(node['symbols'])}")
        return value

    return step


def fixed_leaf(node: Node) -> Step:
    """Fixed: bytes of exactly the schema's size."""
    size = int(node["size"])

    def step(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview) or len(value) != size:
            raise ValueMisfit(describe(value), f"fixed of {size} bytes")
        return bytes(value)

    return step


DATUM_LEAVES: dict[str, Callable[[Node], Step]] = {
    "null": lambda _node: _null,
    "boolean": lambda _node: _boolean,
    "int": lambda _node: lambda value: integer(value, 32, "int"),
    "long": lambda _node: lambda value: integer(value, 64, "long"),
    "float": lambda _node: lambda value: real(value, "float"),
    "double": lambda _node: lambda value: real(value, "double"),
    "string": lambda _node: text,
    "bytes": lambda _node: _bytes,
    "enum": enum_leaf,
    "fixed": fixed_leaf,
    "int-date": lambda _node: _date,
    "int-time-millis": time_leaf("time-millis", 32),
    "long-time-micros": time_leaf("time-micros", 64),
    "long-timestamp-millis": instant_leaf("timestamp-millis"),
    "long-timestamp-micros": instant_leaf("timestamp-micros"),
    "long-local-timestamp-millis": local_leaf("local-timestamp-millis"),
    "long-local-timestamp-micros": local_leaf("local-timestamp-micros"),
    "bytes-decimal": _decimal_leaf,
    "fixed-decimal": _decimal_leaf,
    "string-uuid": lambda _node: _uuid,
}


def datum_fill(named: Named) -> Fill:
    """Makers of the datums that missing fields take."""
    compiler = default_compiler(named)

    def fill(node: Node, raw: Any, step: Step) -> Callable[[], Any]:
        del step
        # Compiled on first use: a recursive record's default would not end otherwise. Copied: datums are mutable.
        made: list[Any] = []

        def make() -> Any:
            if not made:
                made.append(compiler.compile(node)(raw))
            return copy.deepcopy(made[0])

        return make

    return fill


def datum_direction(named: Named) -> Direction:
    """Datum → the datum that fastavro gets; missing fields take their default."""
    return Direction(DATUM_LEAVES, datum_fill(named))


# ---- defaults, as a schema's JSON spells them ------------------------------------------------------------------


def _latin(value: Any, expected: str) -> bytes:
    if not isinstance(value, str):
        raise ValueMisfit(describe(value), f"a string of the code points of {expected}")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueMisfit(describe(value), f"code points up to 255 for {expected}") from None


def _default_decimal(node: Node) -> Step:
    def step(value: Any) -> decimal.Decimal:
        unscaled = int.from_bytes(_latin(value, "decimal"), "big", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        number = decimal.Decimal((int(unscaled < 0), digits, -int(node.get("scale", 0))))
        return scaled(number, node)

    return step


def _default_instant(expected: str, unit_micros: int, epoch: datetime.datetime) -> Callable[[Node], Step]:
    def step(value: Any) -> datetime.datetime:
        number = integer(value, 64, expected)
        try:
            return epoch + datetime.timedelta(microseconds=number * unit_micros)
        except OverflowError:
            raise ValueMisfit(describe(value), f"{expected} within the years 1 to 9999") from None

    return lambda _node: step


def _default_date(value: Any) -> datetime.date:
    try:
        return datetime.date.fromordinal(integer(value, 32, "date") + EPOCH_ORDINAL)
    except (ValueError, OverflowError):
        raise ValueMisfit(describe(value), "date within the years 1 to 9999") from None


def _default_time(expected: str, unit_micros: int) -> Callable[[Node], Step]:
    def step(value: Any) -> datetime.time:
        number = integer(value, 64, expected) * unit_micros
        if not 0 <= number < 86_400_000_000:
            raise ValueMisfit(describe(value), f"{expected} within one day")
        return (EPOCH_NAIVE + datetime.timedelta(microseconds=number)).time()

    return lambda _node: step


def _default_uuid(value: Any) -> uuid.UUID:
    return uuid.UUID(_uuid(value))


_DEFAULT_LEAVES: dict[str, Callable[[Node], Step]] = {
    **DATUM_LEAVES,
    "bytes": lambda _node: lambda value: _latin(value, "bytes"),
    "fixed": lambda node: lambda value: fixed_leaf(node)(_latin(value, "fixed")),
    "int-date": lambda _node: _default_date,
    "int-time-millis": _default_time("time-millis", 1000),
    "long-time-micros": _default_time("time-micros", 1),
    "long-timestamp-millis": _default_instant("timestamp-millis", 1000, EPOCH),
    "long-timestamp-micros": _default_instant("timestamp-micros", 1, EPOCH),
    "long-local-timestamp-millis": _default_instant("local-timestamp-millis", 1000, EPOCH_NAIVE),
    "long-local-timestamp-micros": _default_instant("local-timestamp-micros", 1, EPOCH_NAIVE),
    "bytes-decimal": _default_decimal,
    "fixed-decimal": _default_decimal,
    "string-uuid": lambda _node: _default_uuid,
}


def default_compiler(named: Named) -> Compiler:
    """A compiler whose steps turn a schema's JSON default into the datum that decoding would give."""
    return Compiler(named, Direction(_DEFAULT_LEAVES, lambda _node, raw, step: lambda: step(raw)))
