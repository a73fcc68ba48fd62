"""Claims about rows of text files over generated ones."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.codec import textfile
from anew.codec.csvdialect import csv_dialect
from anew.codec.csvrows import csv_file, read_csv
from anew.codec.jsonrows import JsonColumns, read_json
from anew.codec.textfile import TextPart

MODEST = settings(derandomize=True, max_examples=150, deadline=None)
_BLOCKS = st.sampled_from([1, 2, 3, 7, 64, 4096])
_CELLS = st.text(st.sampled_from('ab",\n\r é'), max_size=6)
_LOOSE = st.lists(st.sampled_from(["a", "b", ",", '"', '""', "\n", "\r\n", "x", "é"]), max_size=30).map("".join)


def _csv_rows(data: bytes, block_bytes: int) -> tuple[list[list[str | None]], list[tuple[int, str]]]:
    with tempfile.TemporaryDirectory() as folder, patch.object(textfile, "BLOCK_BYTES", block_bytes):
        path = Path(folder) / "in.csv"
        path.write_bytes(data)
        dialect, rows, bad = csv_dialect({}), list[list[str | None]](), list[tuple[int, str]]()
        file = csv_file(str(path), dialect)
        for found in read_csv(TextPart(str(path)), dialect, file, file.names):
            rows += [list(row.values()) for row in found.batch.to_pylist()]
            bad += [(row.line, row.text) for row in found.unparsed]
    return rows, bad


@given(st.lists(st.tuples(_CELLS, _CELLS), max_size=8), _BLOCKS, st.sampled_from(["\n", "\r\n"]))
@MODEST
def test_what_a_writer_of_csv_writes_comes_back(rows: list[tuple[str, str]], block_bytes: int, end: str) -> None:
    """Cells come back whatever they hold, however the file is cut into blocks; nothing in quotes is an empty text."""
    sink = io.StringIO(newline="")
    csv.writer(sink, quoting=csv.QUOTE_ALL, lineterminator=end).writerows([("h", "i"), *rows])
    assert _csv_rows(sink.getvalue().encode(), block_bytes) == ([list(row) for row in rows], [])


@given(_LOOSE, _BLOCKS)
@MODEST
def test_rows_do_not_depend_on_blocks(body: str, block_bytes: int) -> None:
    """Rows and bad rows are the same wherever a block ends, also in a file that is not well formed."""
    data = f"h,i\n{body}".encode()
    assert _csv_rows(data, block_bytes) == _csv_rows(data, 4096)


_MEMBERS = st.sampled_from(['"s":"é"', '"s":null', '"n":7', '"n":-0', '"n":9007199254740993', '"f":0.1', '"f":1e3'])
_ODD = st.sampled_from(
    ['"s":7', '"n":1.5', '"f":"NaN"', '"b":true', '"b":"x"', '"s":"\\ud800"', '"s":[1]', '"z":{}', ""]
)
_LINES = st.lists(st.lists(_MEMBERS | _MEMBERS | _ODD, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}"))
_COLUMNS = JsonColumns({"s": pa.string(), "n": pa.int64(), "f": pa.float64(), "b": pa.bool_()})


def _json_rows(data: bytes, *, at_once: bool) -> tuple[list[int], list[Any], list[int]]:
    never: Any = patch.object(JsonColumns, "likely", lambda _self: {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_bytes(data)
        if at_once:
            found = list(read_json(TextPart(str(path)), _COLUMNS))
        else:
            with never:
                found = list(read_json(TextPart(str(path)), _COLUMNS))
    lines = [int(line) for rows in found for line in rows.lines]
    bad = [row.line for rows in found for row in rows.unparsed]
    return lines, [_typed(row) for rows in found for row in rows.batch.to_pylist()], bad


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the values that casting makes of its texts."""
    return {name: value if name == "s" else _number(value) for name, value in row.items()}


def _number(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        return value


@given(_LINES)
@MODEST
def test_both_ways_to_read_json_lines_agree(lines: list[str]) -> None:
    """What is read at once is what would be read line by line."""
    data = "\n".join(lines).encode()
    assert _json_rows(data, at_once=True) == _json_rows(data, at_once=False)
