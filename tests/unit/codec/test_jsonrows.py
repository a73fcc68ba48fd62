"""JSON lines: one object on each line, or a bad row that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.codec.jsonrows import JsonColumns, json_encoding, json_names, read_json, split_json
from anew.codec.textfile import TextPart
from anew.core.errors import InvalidRequest

_COLUMNS = JsonColumns({"s": pa.string(), "n": pa.int64(), "u": None})
_AT_ONCE = JsonColumns({"s": pa.string(), "n": pa.int64()})


def _read(path: Path, data: bytes, columns: JsonColumns = _COLUMNS, encoding: str = "utf-8") -> tuple[Any, Any]:
    path.write_bytes(data)
    found = list(read_json(TextPart(str(path), encoding), columns))
    rows = [(int(n), row) for one in found for n, row in zip(one.lines, one.batch.to_pylist(), strict=True)]
    return rows, [(row.line, row.text, row.expected) for one in found for row in one.unparsed]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"s":"x","n":7}', {"s": "x", "n": "7", "u": None}),
        (b'{"s":1.10,"n":1e2}', {"s": "1.10", "n": "1e2", "u": None}),
        (b'{"s":123456789012345678901234567890}', {"s": "123456789012345678901234567890", "n": None, "u": None}),
        (b'{"s":true,"n":"8"}', {"s": "true", "n": "8", "u": None}),
        (b'{"s":{"a": [1, "\xc3\xa9"]}}', {"s": '{"a":[1,"é"]}', "n": None, "u": None}),
        (b'{"u":"5"}', {"s": None, "n": None, "u": '"5"'}),
        (b'{"u":5}', {"s": None, "n": None, "u": "5"}),
        (b'{"s":"","z":1,"z":2}', {"s": "", "n": None, "u": None}),
        (b'{"z":"\\ud800","s":"\\ud83d\\ude00"}', {"s": "😀", "n": None, "u": None}),
        (b' {"S":"other","s":"x"} ', {"s": "x", "n": None, "u": None}),
    ],
)
def test_members_are_what_was_written(tmp_path: Path, line: bytes, expected: dict[str, Any]) -> None:
    """Numbers keep their digits, an empty text is no null, other members do not matter, names have a case."""
    assert _read(tmp_path / "in.jsonl", line + b"\n") == ([(1, expected)], [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"s":"a"} {"s":"b"}', "one JSON object"),
        (b'{"s":"a"}{"s":"b"}', "one JSON object"),
        (b'{"s":"a"', "one JSON object"),
        (b'[{"s":"a"}]', "one JSON object"),
        (b"7", "one JSON object"),
        (b"not json", "one JSON object"),
        (b'{"s":"a",}', "one JSON object"),
        (b'{"s":"a\tb"}', "one JSON object"),
        (b'{"s":' + b"[" * 100_000, "one JSON object"),
        (b'{"n":' + b"9" * 5_000 + b"}", "one JSON object"),
        (b'{"s":"caf\xe9"}', "UTF-8"),
        (b'{"s":"q\\ud800"}', "surrogates"),
        (b'{"s":["q\\udc00"]}', "surrogates"),
        (b'{"s":"a","s":"b"}', "the member s once"),
        (b'{"s":{"a":1,"a":2}}', "each member once"),
    ],
)
@pytest.mark.parametrize("columns", [_COLUMNS, _AT_ONCE])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: bytes, said: str, columns: JsonColumns) -> None:
    """The line is told with what is wrong with it, and its neighbours are read."""
    rows, bad = _read(tmp_path / "in.jsonl", b'\n{"s":"x"}\n' + line + b'\n{"s":"y"}', columns)
    assert [(place, row["s"]) for place, row in rows] == [(2, "x"), (4, "y")]
    assert [place for place, _, _ in bad] == [3]
    assert said in bad[0][2]


def test_an_object_over_several_lines_is_not_read_as_rows(tmp_path: Path) -> None:
    """A document that is no JSON lines gives bad rows only, also where it has as many lines as objects."""
    _, bad = _read(tmp_path / "in.jsonl", b'{"s":"a",\n"n":1}\n', _AT_ONCE)
    assert [place for place, _, _ in bad] == [1, 2]
    rows, bad = _read(tmp_path / "in.jsonl", b'{"s":"a","n":\n1}\n{"s":"b"} {"s":"c"}\n{"s":"d"}\n', _AT_ONCE)
    assert ([row["s"] for _, row in rows], len(bad)) == (["d"], 3)


def test_marks_and_encodings_are_those_of_text_files(tmp_path: Path) -> None:
    """A byte order mark goes, and another encoding is read when it is named."""
    path, row = tmp_path / "in.jsonl", {"s": "é", "n": None}
    assert _read(path, '\ufeff{"s":"é"}\r\n'.encode(), _AT_ONCE) == ([(1, row)], [])
    assert _read(path, '{"s":"é"}\n'.encode("latin1"), _AT_ONCE, json_encoding({"charset": "ISO-8859-1"})) == (
        [(1, row)],
        [],
    )


def test_numbers_in_text_are_their_digits(tmp_path: Path) -> None:
    """A column of text may hold whole numbers throughout, in some lines, or others: each is what was written."""
    columns = JsonColumns({"t": pa.string(), "s": pa.string()})
    for written in (["5", "7"], ['"x"', "5"], ["5", '"x"'], ["5", "1.10"], ["-0", "5"], ["5", "null"], ["9" * 30, "1"]):
        data = "".join(f'{{"t":{text},"s":{text}}}\n' for text in written)
        rows, bad = _read(tmp_path / "in.jsonl", data.encode(), columns)
        expected = [None if text == "null" else text.strip('"') for text in written]
        assert ([(row["t"], row["s"]) for _, row in rows], bad) == ([(text, text) for text in expected], [])


@pytest.mark.parametrize("name", ["mode", "multiLine", "lineSep", "samplingRatio", "dropFieldIfAllNull", "sep"])
def test_options_that_are_not_taken_are_refused(name: str) -> None:
    """JSON lines take the encoding, and nothing that would change which rows there are."""
    with pytest.raises(InvalidRequest) as caught:
        json_encoding({name: "true"})
    assert caught.value.code == "bad_option"


def test_a_file_is_read_in_parts_of_whole_lines(tmp_path: Path) -> None:
    """The parts of a file together are its lines, each once and with its own number."""
    path = tmp_path / "in.jsonl"
    whole, _ = _read(path, b"".join(b'{"s":"%d"}\n' % number for number in range(500)), _AT_ONCE)
    parts = split_json(str(path), "utf-8", 700)
    found = [one for part in parts for one in read_json(part, _AT_ONCE)]
    rows = [(int(n), row) for one in found for n, row in zip(one.lines, one.batch.to_pylist(), strict=True)]
    assert (len(parts) > 5, rows) == (True, whole)
    assert json_names(str(path), "utf-8") == ["s"]
