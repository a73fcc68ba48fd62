"""The files of a push: their columns, and how they are dealt to tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.codec.avro import parse_schema
from anew.core.errors import InvalidRequest
from anew.core.stores.plan import PushInput
from anew.spark import inputfiles
from anew.spark.inputfiles import (
    Wanted,
    check_columns,
    check_file,
    check_options,
    headers_of,
    json_types,
    merged_header,
    plan_pieces,
    read_piece,
)


def _files(file_format: str, *paths: Path, **options: str) -> PushInput:
    return PushInput(paths=tuple(map(str, paths)), format=file_format, options=options, key=("id",))


@pytest.mark.parametrize("file_format", ["csv", "parquet", "json", "avro"])
@pytest.mark.parametrize("name", ["mode", "badRecordsPath", "recursiveFileLookup", "ignoreCorruptFiles"])
def test_no_format_takes_options_that_change_what_is_counted(file_format: str, name: str) -> None:
    """Options that drop rows or files are refused in every format."""
    with pytest.raises(InvalidRequest) as caught:
        check_options(_files(file_format, **{name: "DROPMALFORMED"}))
    assert caught.value.code == "bad_option"


def test_columns_of_later_files_count(tmp_path: Path) -> None:
    """The input has the columns of all its files; a column that a file lacks is left out of its rows."""
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"id": ["1"]}), first)
    pq.write_table(pa.table({"b": ["B"], "id": ["2"]}), second)
    files = _files("parquet", first, second)
    assert merged_header(files, headers_of(files)) == ["id", "b"]
    wanted = Wanted(("id", "b"), frozenset({"b"}))
    pieces = [piece for group in plan_pieces(files, files.paths, 2) for piece in group]
    rows = [row for piece in pieces for found in read_piece(piece, files, wanted) for row in found.batch.to_pylist()]
    assert rows == [{"id": "1"}, {"id": "2", "b": "B"}]


def test_a_column_that_is_there_twice_is_refused() -> None:
    """Which of two columns of one name is meant cannot be known; one that nobody wants does not matter."""
    check_columns(["id", "a", "z", "z"], ["id", "a"])
    with pytest.raises(InvalidRequest) as caught:
        check_columns(["id", "a", "a"], ["id", "a"])
    assert (caught.value.code, caught.value.expected) == ("duplicate_column", "a once")


def test_columns_that_differ_in_case_are_two() -> None:
    """Names are what they are: ID is not id, and is offered as what may have been meant."""
    check_columns(["ID", "id"], ["id"])
    with pytest.raises(InvalidRequest) as caught:
        check_columns(["Ident", "a"], ["ident"])
    assert caught.value.hint == "did you mean Ident?"


@pytest.mark.parametrize("near", ["Email", "EMAIL", " email", "e_mail", "e-mail", "emial", "emails"])
def test_a_column_under_nearly_its_name_is_not_lost(near: str) -> None:
    """A file that has an optional column under nearly its name is refused with the question, not read as nulls."""
    wanted = Wanted(("id", "email"), frozenset({"email"}), frozenset({"email"}))
    for is_json in (False, True):
        with pytest.raises(InvalidRequest, match=r"/in\.csv") as caught:
            check_file("/in.csv", ["id", near], wanted, is_json=is_json)
        assert str(caught.value.hint).startswith(f"did you mean {near}?")


@pytest.mark.parametrize(
    "names", [["id", "email", "Email"], ["id", "name"], ["id"], ["id", "phone", "mail_sent_at"], ["id", "email2"]]
)
def test_other_columns_do_not_matter(names: list[str]) -> None:
    """A file with the column itself, or with others that are not like it, is taken."""
    check_file("/in.csv", names, Wanted(("id", "email"), frozenset({"email"}), frozenset({"email"})))


def test_a_file_that_lacks_a_column_is_named() -> None:
    """Of several files the one without a needed column is named."""
    with pytest.raises(InvalidRequest, match=r"/b\.csv: the input has no column id"):
        check_file("/b.csv", ["a"], Wanted(("id", "a")))


def test_values_of_unions_are_kept_as_json() -> None:
    """What JSON values usually are follows from the schema; where a text and a number differ, they are kept apart."""
    kinds: list[tuple[str, Any, Any]] = [
        ("a", "int", pa.int64()),
        ("b", ["null", "double"], pa.float64()),
        ("c", "boolean", pa.bool_()),
        ("d", {"type": "array", "items": "int"}, pa.string()),
        ("e", ["int", "string"], None),
        ("f", {"type": "array", "items": ["int", "string"]}, None),
    ]
    fields = [{"name": name, "type": of_type} for name, of_type, _ in kinds]
    schema = parse_schema({"type": "record", "name": "V", "fields": fields})
    assert json_types(schema, [name for name, _, _ in kinds]) == {name: found for name, _, found in kinds}
    assert json_types(parse_schema("long"), ["k"]) == {"k": pa.int64()}


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet"])
def test_large_files_are_read_by_several_tasks(
    tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pieces of all tasks together are the input: every row once, with its place."""
    monkeypatch.setattr(inputfiles, "_LEAST_PART_BYTES", 100)
    path = tmp_path / "in"
    if file_format == "csv":
        path.write_text("id\n" + "\n".join(f"{number}" for number in range(3_000)) + "\n")
    elif file_format == "json":
        path.write_text("".join(f'{{"id": "{number}"}}\n' for number in range(3_000)))
    else:
        pq.write_table(pa.table({"id": [str(number) for number in range(3_000)]}), path, row_group_size=100)
    monkeypatch.setattr("anew.codec.textfile.BLOCK_BYTES", 500)
    files, wanted = _files(file_format, path), Wanted(("id",))
    groups = plan_pieces(files, files.paths, 4)
    found = [rows for group in groups for piece in group for rows in read_piece(piece, files, wanted)]
    rows = [(int(n), x) for one in found for n, x in zip(one.lines, one.batch.column("id").to_pylist(), strict=True)]
    first = 2 if file_format == "csv" else 1
    assert rows == [(number + first, str(number)) for number in range(3_000)]
    assert 3 <= len(groups) <= 8


def test_files_without_a_byte_have_no_row(tmp_path: Path) -> None:
    """An empty file among others is passed over, as writers leave one where they had no row; alone it is refused."""
    empty, full = tmp_path / "a.csv", tmp_path / "b.csv"
    empty.touch()
    full.write_text("id\n1\n")
    files = _files("csv", empty, full)
    assert headers_of(files) == {str(full): ["id"]}
    assert [piece.path for group in plan_pieces(files, files.paths, 2) for piece in group] == [str(full)]
    with pytest.raises(InvalidRequest) as caught:
        headers_of(_files("csv", empty))
    assert caught.value.code == "empty_input"


def test_small_files_share_tasks(tmp_path: Path) -> None:
    """Many small files do not become as many tasks."""
    paths = [tmp_path / f"{number}.csv" for number in range(50)]
    for path in paths:
        path.write_text("id\n1\n")
    files = _files("csv", *paths)
    groups = plan_pieces(files, files.paths, 2)
    assert len(groups) == 1
    assert [piece.path for piece in groups[0]] == list(files.paths)
