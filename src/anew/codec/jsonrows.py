"""JSON lines: one object on each line, its members as columns.

Blocks of lines that are what their columns expect go through Arrow's parser at once. Any other block is read line by
line, by rules that give the same values: so it is told which line is not an object, and a number in a text column is
the digits that were written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from anew.codec.carried import AS_JSON
from anew.codec.filerows import FileRows, Unparsed, batch_of, line_numbers, shown_bytes, unreadable_file
from anew.codec.options import checked_options
from anew.codec.textfile import MAX_ROW_BYTES, TextPart, check_encoding, is_divisible, text_blocks

NOT_UTF8 = "a line of UTF-8 text (of another encoding: --option encoding=NAME)"
ONE_OBJECT = "a row that parses: one JSON object on the line"
_SURROGATES = "a row that parses: text without lone surrogates, which are no Unicode characters"
_NAMES_OF_ROWS = 100
_A_NUMBER = re.compile(r"Column\(/(?P<name>.*)\) changed from string to number in row")


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """The columns that are wanted.

    Attributes:
        types: Name → the Arrow type that its members usually have: string, int64, double, bool; None: any JSON value,
            which is kept as JSON text.
    """

    types: Mapping[str, pa.DataType | None] = field(default_factory=dict)

    def likely(self) -> dict[str, pa.DataType]:
        """The types to try at once; none where a column can be anything."""
        likely = {name: of_type for name, of_type in self.types.items() if of_type is not None}
        return likely if len(likely) == len(self.types) else {}


def json_encoding(options: Mapping[str, str]) -> str:
    """The encoding that the options name.

    Raises:
        InvalidRequest: ``bad_option``.
    """
    given = checked_options("json", options, ("encoding", "charset"))
    return check_encoding(given.get("encoding", given.get("charset", "utf-8")))


def json_names(path: str, encoding: str) -> list[str]:
    """The names of the members of a file's first objects.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    names: dict[str, None] = {}
    for data, _ in _blocks(TextPart(path, encoding)):
        for line in data.split(b"\n", _NAMES_OF_ROWS)[:_NAMES_OF_ROWS]:
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            names |= dict.fromkeys(found if isinstance(found, dict) else ())
        break
    return list(names)


def read_json(part: TextPart, columns: JsonColumns) -> Iterator[FileRows]:
    """Some members of the objects of a part of a file; null where an object has none.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    for data, line in _blocks(part):
        fast = _at_once(data, columns, line)
        yield _line_by_line(data, columns, line) if fast is None else fast


def split_json(path: str, encoding: str, target_bytes: int) -> list[TextPart]:
    """A file in parts of about so many bytes, each of whole lines.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    size = Path(path).stat().st_size
    if not is_divisible(path, encoding) or size <= target_bytes:
        return [TextPart(path, encoding)]
    parts: list[TextPart] = []
    begin, first_line, at, next_line = 0, 1, 0, 1
    with Path(path).open("rb") as source:
        while at < size:
            block = source.read(target_bytes) + source.readline()
            at, next_line = at + len(block), next_line + block.count(b"\n")
            parts.append(TextPart(path, encoding, begin, at, first_line))
            begin, first_line = at, next_line
    return parts


def _blocks(part: TextPart) -> Iterator[tuple[bytes, int]]:
    """Whole lines, and the number of the first."""
    rest, line = b"", part.first_line
    for block in text_blocks(part):
        rest += block
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end], line
            line += rest.count(b"\n", 0, end)
            rest = rest[end:]
        elif len(rest) > MAX_ROW_BYTES:
            found = f"line {line} of more than {MAX_ROW_BYTES} bytes: {shown_bytes(rest[:100])}"
            raise unreadable_file(part.path, found, "JSON lines")
    if rest:
        yield rest, line


def _at_once(data: bytes, columns: JsonColumns, first_line: int) -> FileRows | None:
    """The rows of a block if each line is an object whose members have the expected types, else None."""
    types = columns.likely()
    data = data.replace(b"\r\n", b"\n")
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    # Each line begins and ends an object: then as many objects as lines are one on each line.
    begins = data.startswith(b"{") + data.count(b"\n{")
    ends = data.count(b"}\n") + data.endswith(b"}")
    if not types or begins != count or ends != count:
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    # Each try takes one more column of text for one of whole numbers.
    for _ in range(len(types) + 1):
        try:
            table = _parsed(data, types)
        except pa.ArrowInvalid as error:
            number = _A_NUMBER.search(str(error))
            if number is None or types.get(number["name"]) != pa.string() or b"-0" in data:
                return None
            types[number["name"]] = pa.int64()
            continue
        if table.num_rows != count:
            return None
        arrays: list[Any] = [table.column(name).combine_chunks() for name in types]
        wanted = zip(arrays, columns.types.values(), strict=True)
        texts = [array.cast(of_type) if of_type == pa.string() else array for array, of_type in wanted]
        return FileRows(pa.RecordBatch.from_arrays(texts, names=list(types)), line_numbers(first_line, count))
    return None


def _parsed(data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    source: Any = pa.BufferReader(data)
    return arrow_json.read_json(
        source,
        arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        arrow_json.ParseOptions(explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="ignore"),
    )


class _Bad(Exception):
    """A line that does not parse as a row, and what it should have been."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


class _Number(float):
    """A number with a fraction or an exponent, and the digits that were written."""

    __slots__ = ("text",)
    text: str


def _line_by_line(data: bytes, columns: JsonColumns, first_line: int) -> FileRows:
    texts: dict[str, list[str | None]] = {name: [] for name in columns.types}
    lines: list[int] = []
    unparsed: list[Unparsed] = []
    for number, line in enumerate(data.split(b"\n"), start=first_line):
        if not line.strip():
            continue
        try:
            row = _row(line, columns)
        except _Bad as bad:
            unparsed.append(Unparsed(number, shown_bytes(line), bad.expected))
            continue
        lines.append(number)
        for name, values in texts.items():
            values.append(row[name])
    arrays = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    batch = batch_of(arrays, len(lines))
    if arrays:
        fields = [
            pa.field(name, pa.string(), metadata=AS_JSON if of_type is None else None)
            for name, of_type in columns.types.items()
        ]
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), schema=pa.schema(fields))
    return FileRows(batch, np.array(lines, np.int64), unparsed)


def _row(line: bytes, columns: JsonColumns) -> dict[str, str | None]:
    try:
        parsed = _DECODER.decode(line.decode())
    except UnicodeDecodeError:
        raise _Bad(NOT_UTF8) from None
    except (ValueError, RecursionError):
        raise _Bad(ONE_OBJECT) from None
    if not isinstance(parsed, dict):
        raise _Bad(ONE_OBJECT)
    if isinstance(parsed, _Twice) and not columns.types.keys().isdisjoint(parsed.names):
        raise _Bad(f"a row that parses: the member {', '.join(sorted(parsed.names))} once")
    try:
        return {name: _text(parsed.get(name), of_type) for name, of_type in columns.types.items()}
    except UnicodeEncodeError:
        raise _Bad(_SURROGATES) from None
    except (ValueError, RecursionError):
        raise _Bad(ONE_OBJECT) from None


class _Twice(dict[str, Any]):
    """An object that has members twice."""

    names: set[str]


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    counts = Counter(name for name, _ in pairs)
    twice = _Twice(found)
    twice.names = {name for name, count in counts.items() if count > 1}
    return twice


def _number(text: str) -> _Number:
    number = _Number(text)
    number.text = text
    return number


def _whole(text: str) -> int | _Number:
    # Python's whole numbers have one zero.
    return _number(text) if text == "-0" else int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_float=_number, parse_int=_whole)


def _has_twice(value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(value, _Twice) or any(_has_twice(inner) for inner in value.values())
    return isinstance(value, list) and any(_has_twice(inner) for inner in value)


def _text(value: Any, of_type: pa.DataType | None) -> str | None:
    """The text of a JSON value as `anew.codec.casting` reads it.

    Raises:
        UnicodeEncodeError: A lone surrogate is in it.
    """
    if value is None:
        return None
    if isinstance(value, str) and of_type is not None:
        text = value
    elif isinstance(value, _Number):
        text = value.text
    elif _has_twice(value):
        raise _Bad("a row that parses: each member once, inside of its values too")
    else:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text.encode()
    return text
