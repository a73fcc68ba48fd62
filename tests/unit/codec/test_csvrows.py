"""CSV: which bytes are a row, what its cells are, and which rows are told apart as bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anew.codec import textfile
from anew.codec.csvdialect import csv_dialect
from anew.codec.csvrows import csv_file, read_csv, split_csv
from anew.codec.textfile import TextPart
from anew.core.errors import InvalidRequest

Rows = list[tuple[int, list[str | None]]]


def read(path: Path, data: bytes, options: dict[str, str] | None = None) -> tuple[Rows, list[tuple[int, str]]]:
    """The rows with their lines, and the bad ones."""
    path.write_bytes(data)
    dialect = csv_dialect(options or {})
    file = csv_file(str(path), dialect)
    rows: Rows = []
    bad: list[tuple[int, str]] = []
    for found in read_csv(TextPart(str(path), dialect.encoding), dialect, file, file.names):
        values = [list(row.values()) for row in found.batch.to_pylist()]
        rows += zip(found.lines.tolist(), values, strict=True)
        bad += [(row.line, row.text) for row in found.unparsed]
    return rows, bad


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ('1,p,"first\nk9,second,part"\n2,q,z\n', {}, [(2, ["1", "p", "first\nk9,second,part"]), (4, ["2", "q", "z"])]),
        ('1,"a\r\n\r\nb",c\r\n2,d,e', {}, [(2, ["1", "a\r\n\r\nb", "c"]), (5, ["2", "d", "e"])]),
        ('1,"",\n', {}, [(2, ["1", "", None])]),
        ('1,NA,"NA"\n', {"nullValue": "NA"}, [(2, ["1", None, "NA"])]),
        ('1,"say ""hi""",5" pipe\n', {}, [(2, ["1", 'say "hi"', '5" pipe'])]),
        ("1;a,b;c\n", {"sep": ";"}, [(2, ["1", "a,b", "c"])]),
        ("1\ta\tc\n", {"delimiter": "\\t"}, [(2, ["1", "a", "c"])]),
        ("1,'a,b',c\n", {"quote": "'"}, [(2, ["1", "a,b", "c"])]),
        ('1,"say \\"hi\\", C:\\\\x",C:\\d\n', {"escape": "\\"}, [(2, ["1", 'say "hi", C:\\x', "C:\\d"])]),
        ("1, a , b\n", {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "TRUE"}, [(2, ["1", "a", "b"])]),
        ("1, a ,b\n", {}, [(2, ["1", " a ", "b"])]),
        ("\n1,a,b\n\n\n2,c,d\n", {}, [(3, ["1", "a", "b"]), (6, ["2", "c", "d"])]),
        ("1,a,b\r2,c,d\r", {}, [(2, ["1", "a", "b"]), (3, ["2", "c", "d"])]),
        ("1,\x00,b\n", {}, [(2, ["1", "\x00", "b"])]),
    ],
)
def test_cells_are_what_was_written(tmp_path: Path, body: str, options: dict[str, str], expected: Rows) -> None:
    """Quotes keep separators and line breaks, an empty cell in quotes is text, and each row knows its line."""
    separator = {"sep": ";", "delimiter": "\t"}.get(next(iter(options), ""), ",")
    header = separator.join(["id", "a", "b"])
    assert read(tmp_path / "in.csv", f"{header}\n{body}".encode(), options) == (expected, [])


@pytest.mark.parametrize(
    ("body", "bad"),
    [
        (b"1,a\n2,c,d\n", [(2, "1,a")]),
        (b"1,a,b,c\n2,c,d\n", [(2, "1,a,b,c")]),
        (b'1,"a"x,b\n2,c,d\n', [(2, '1,"a"x,b')]),
        (b'1,"a\n2,c,d\n', [(2, '1,"a\n2,c,d')]),
        (b"1,caf\xe9,b\n2,c,d\n", [(2, "1,caf\\xe9,b")]),
    ],
)
def test_a_row_that_does_not_parse_is_told_apart(tmp_path: Path, body: bytes, bad: list[tuple[int, str]]) -> None:
    """Too few or many cells, text after a closing quote, an open quote, other bytes than UTF-8: the line is named."""
    rows, found = read(tmp_path / "in.csv", b"id,a,b\n" + body)
    assert found == bad
    assert rows == ([] if "\n" in bad[0][1] else [(3, ["2", "c", "d"])])


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    """A file as spreadsheets write it has the columns that one sees."""
    assert read(tmp_path / "in.csv", b"\xef\xbb\xbfid,a\n1,x\n") == ([(2, ["1", "x"])], [])


@pytest.mark.parametrize("encoding", ["latin1", "ISO-8859-1", "windows-1252", "utf-16", "utf-16-le", "utf-32"])
def test_another_encoding_is_read_when_it_is_named(tmp_path: Path, encoding: str) -> None:
    """With ``encoding`` the text is what was written in it; lines count as in the text."""
    data = "id,a\n1,café\n2,x\n".encode(encoding)
    for name in ("encoding", "charset"):
        assert read(tmp_path / "in.csv", data, {name: encoding}) == ([(2, ["1", "café"]), (3, ["2", "x"])], [])


@pytest.mark.parametrize(("encoding", "named"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32")])
def test_a_mark_of_another_encoding_is_refused(tmp_path: Path, encoding: str, named: str) -> None:
    """A file that begins as one of UTF-16 or UTF-32 is refused with the option that reads it."""
    with pytest.raises(InvalidRequest, match=r"in\.csv") as caught:
        read(tmp_path / "in.csv", "id,a\n1,x\n".encode(encoding))
    assert caught.value.hint == f"--option encoding={named}"


def test_bytes_that_are_not_of_the_named_encoding_are_refused(tmp_path: Path) -> None:
    """No byte is replaced by something else."""
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read(tmp_path / "in.csv", b"id,a\n1,caf\x81\n", {"encoding": "windows-1252"})


def test_names_are_given_where_there_is_no_header(tmp_path: Path) -> None:
    """Without a header the columns are _c0, _c1 and so on, and the first row is a row."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"1,x\n")
    assert csv_file(str(path), csv_dialect({"header": "false"})).names == ("_c0", "_c1")
    assert read(path, b"1,x\n", {"header": "false"}) == ([(1, ["1", "x"])], [])


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "DROPMALFORMED"},
        {"Mode": "FAILFAST"},
        {"comment": "#"},
        {"lineSep": ";"},
        {"samplingRatio": "0.5"},
        {"pathGlobFilter": "*.x"},
        {"modifiedBefore": "2020-01-01T00:00:00"},
        {"columnNameOfCorruptRecord": "a"},
        {"enforceSchema": "true"},
        {"sepp": ";"},
        {"multiLine": "false"},
        {"sep": "||"},
        {"sep": '"'},
        {"header": "yes"},
        {"encoding": "klingon"},
        {"encoding": "base64"},
        {"ignoreLeadingWhiteSpace": "true"},
        {"encoding": "utf-8", "ENCODING": "utf-8"},
    ],
)
def test_options_that_are_not_taken_are_refused(options: dict[str, str]) -> None:
    """An option that is unknown, or would change which rows there are, is refused instead of being passed on."""
    with pytest.raises(InvalidRequest) as caught:
        csv_dialect(options)
    assert caught.value.code == "bad_option"


def test_an_option_is_known_in_any_case_and_a_slip_is_pointed_out() -> None:
    """Options are named as Spark names them, in any case of letters."""
    assert csv_dialect({"SEP": ";", "multiline": "true"}).separator == ";"
    with pytest.raises(InvalidRequest) as caught:
        csv_dialect({"nullValues": "NA"})
    assert caught.value.hint == "did you mean nullValue?"


def test_a_file_is_read_in_parts_of_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a file together are its rows, each once and with its own line, wherever quotes hold line breaks."""
    monkeypatch.setattr(textfile, "BLOCK_BYTES", 64)
    path = tmp_path / "in.csv"
    lines = [f'{number},"line\nbreak {number}, and"' if number % 3 else f"{number},x" for number in range(200)]
    whole, _ = read(path, ("\ufeffid,a\n" + "\n".join(lines) + "\n").encode())
    dialect = csv_dialect({})
    parts = split_csv(str(path), dialect, 500)
    file, found = csv_file(str(path), dialect), list[Any]()
    for part in parts:
        for rows in read_csv(part, dialect, file, ["id"]):
            found += zip(rows.lines.tolist(), rows.batch.column("id").to_pylist(), strict=True)
    assert len(parts) > 5
    assert found == [(line, values[0]) for line, values in whole]
