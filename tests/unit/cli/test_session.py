"""How commands read their arguments."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from anew.cli.session import comma_list, datum, json_value, lines_of, misfits, pairs, schema_text
from anew.codec.avro import parse_schema
from anew.core.errors import InvalidRequest, NotFound
from anew.core.stores.plan import Plan


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    """Values may hold ``=`` and be empty; blanks around key and value do not count; nothing given is no pairs."""
    assert pairs(["a=1", " b = c=d ", "e="], "--set") == {"a": "1", "b": "c=d", "e": ""}
    assert pairs(None, "--set") == pairs([], "--set") == {}


@pytest.mark.parametrize("given", [["a"], ["=1"], [" =1"], [""], ["a=1", "a=1"], ["a=1", " a =2"]])
def test_what_is_no_pair_is_refused(given: list[str]) -> None:
    """Without ``=`` or a key, or with a key that was given before: refused, naming the option and the text."""
    with pytest.raises(InvalidRequest) as caught:
        pairs(given, "--set")
    assert (caught.value.code, caught.value.found) == ("bad_option", given[-1])
    assert "--set" in caught.value.message


@pytest.mark.parametrize(
    ("text", "parts"),
    [(None, ()), ("", ()), ("a", ("a",)), (" a , b,c ", ("a", "b", "c")), ("a,,b,", ("a", "b"))],
)
def test_lists_are_split_at_commas(text: str | None, parts: tuple[str, ...]) -> None:
    """Blanks around parts do not count, and empty parts are none."""
    assert comma_list(text) == parts


def _read(path: str | None) -> list[tuple[int, Any]]:
    with lines_of(path) as lines:
        return [(number, json_value(line)) for number, line in lines]


def test_json_lines_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines are passed over but counted; a file, ``-`` and nothing at all give the same."""
    text = '{"key": 1}\n\n  \n[2]\n"drei"'
    expected = [(1, {"key": 1}), (4, [2]), (5, "drei")]
    file = tmp_path / "lines.json"
    file.write_text(text, encoding="utf-8")
    assert _read(str(file)) == expected
    for path in ("-", None):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert _read(path) == expected


@pytest.mark.parametrize(("line", "where"), [('{"key": }', "column 9"), (b'"\xff"', "0xff")])
def test_a_line_that_is_no_json_says_where(line: str | bytes, where: str) -> None:
    """The refusal says where the line breaks, also where it is no text."""
    with pytest.raises(InvalidRequest) as caught:
        json_value(line)
    assert (caught.value.code, where in caught.value.found) == ("bad_json", True)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, and a directory, each in its own words."""
    for path, code in ((tmp_path / "none.json", "no_input"), (tmp_path, "bad_input")):
        with pytest.raises(InvalidRequest) as caught:
            _read(str(path))
        assert (caught.value.code, caught.value.found) == (code, str(path))


def test_a_schema_is_text_or_a_file(tmp_path: Path) -> None:
    """``@file`` is the file's text, anything else is taken as it is; a missing file is named."""
    file = tmp_path / "key.avsc"
    file.write_text('{"type": "string"}', encoding="utf-8")
    assert schema_text(f"@{file}") == '{"type": "string"}'
    assert schema_text("string") == "string"
    assert schema_text('{"type": "long"}') == '{"type": "long"}'
    with pytest.raises(NotFound) as caught:
        schema_text(f"@{tmp_path / 'none.avsc'}")
    assert (caught.value.code, caught.value.found) == ("no_schema_file", str(tmp_path / "none.avsc"))


def test_a_schema_file_without_its_sign_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a file of that name it says how it is read; primitives and JSON stay what they are."""
    monkeypatch.chdir(tmp_path)
    for name in ("user.avsc", "string", "{}"):
        (tmp_path / name).touch()
    with pytest.raises(InvalidRequest) as caught:
        schema_text("user.avsc")
    assert (caught.value.code, caught.value.hint) == ("bad_schema", "to read the file: @user.avsc")
    for text in ("string", "{}", "other.avsc", "x" * 5_000):
        assert schema_text(text) == text


def test_a_file_that_is_no_plan_says_where() -> None:
    """The first few places in the words of the fields, and how many there are besides; broken JSON as well."""
    for text, first, count in (("{}", "kind: Field required", 6), ("{", "the file: Invalid JSON", 1)):
        with pytest.raises(ValidationError) as caught:
            Plan.model_validate_json(text)
        told = misfits(caught.value)
        assert (told[0].startswith(first), len(told)) == (True, count), told


def test_a_misfit_says_whether_it_was_the_key_or_the_value() -> None:
    """The codec's message is kept, with what was read in front of it."""
    schema = parse_schema("int")
    assert datum(schema, 7, "key") == 7
    with pytest.raises(InvalidRequest) as caught:
        datum(schema, "seven", "key")
    assert (caught.value.code, caught.value.message.startswith("key: ")) == ("value_misfit", True)
