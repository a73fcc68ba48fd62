"""Looking at the input of a push, and which of its columns become key and value."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from anew.api.http import ControllerClient
from anew.core.errors import AnewError, InvalidRequest, NotFound, Unreachable
from anew.core.stores.plan import PushInput
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.rebuild.columns import encode_task
from anew.rebuild.inputs import PushRequest, find_input
from anew.rebuild.stores.planner import make_push_plan, make_repush_plan
from anew.spark.inputcolumns import EncodeTask
from anew.testing.builders import a_store


def _find(*inputs: Path | str, **options: Any) -> PushInput:
    return find_input(PushRequest(inputs=tuple(map(str, inputs)), key=("k",), **options)).push


def _made(directory: Path, *names: str) -> list[Path]:
    paths = [directory / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("k\n1\n")
    return paths


def _refused(code: str, *inputs: Path | str, **options: Any) -> AnewError:
    with pytest.raises(InvalidRequest) as caught:
        _find(*inputs, **options)
    assert caught.value.code == code
    return caught.value


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A missing path is named, even when others exist."""
    (here,) = _made(tmp_path, "a.csv")
    error = _refused("no_input", here, tmp_path / "none.csv")
    assert (type(error), error.found) == (NotFound, str(tmp_path / "none.csv"))


def test_a_directory_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    """A directory without files, or with hidden ones and markers only, is refused with the known endings."""
    empty, hidden = tmp_path / "empty", tmp_path / "hidden"
    empty.mkdir()
    _made(hidden, "_SUCCESS", ".part.csv.crc", "_temporary/0/a.csv")
    for directory in (empty, hidden):
        assert ".parquet" in str(_refused("empty_input", directory).expected)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["a.xls"], "unknown_format"),
        (["a"], "unknown_format"),
        (["a.csv", "b.txt"], "unknown_format"),
        (["a.csv", "b.parquet"], "mixed_formats"),
    ],
)
def test_a_format_that_is_not_clear_is_refused(tmp_path: Path, names: list[str], code: str) -> None:
    """Unknown or mixed endings are refused with what was found, until somebody says the format."""
    _made(tmp_path / "in", *names)
    error = _refused(code, tmp_path / "in")
    assert (error.hint == "say it with --format") is (code == "unknown_format")
    assert _find(tmp_path / "in", input_format="csv").format == "csv"
    assert _refused("unknown_format", tmp_path / "in", input_format="excel").expected == "avro | csv | json | parquet"


def test_files_of_two_formats_are_told_apart(tmp_path: Path) -> None:
    """What is said to do is to take one format; a format's name alone would misread the other files."""
    _made(tmp_path / "in", "a.jsonl", "b.parquet")
    error = _refused("mixed_formats", tmp_path / "in")
    assert (error.found, error.expected) == (".jsonl, .parquet", "files of one format")
    assert str(error.hint).startswith("name the files of one format only, or convert the others first")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.csv", "csv"),
        ("a.CSV", "csv"),
        ("a.csv.gz", "csv"),
        ("2013-01.csv", "csv"),
        ("a.jsonl.bz2", "json"),
        ("a.ndjson", "json"),
        ("a.snappy.parquet", "parquet"),
        ("a.avro", "avro"),
    ],
)
def test_the_format_follows_from_the_name(tmp_path: Path, name: str, found: str) -> None:
    """Endings name the format, in any case and under a compression's."""
    assert _find(*_made(tmp_path, name)).format == found


def test_the_input_is_what_it_was_then(tmp_path: Path) -> None:
    """Directories are listed to their files in order, sizes are summed, and the oldest file gives the as-of time."""
    paths = _made(tmp_path, "d/b.csv", "d/sub/c.csv", "d/a.csv")
    for number, path in enumerate(paths):
        os.utime(path, (1_000 + number, 1_000 + number))
    found = find_input(PushRequest(inputs=(str(tmp_path / "d"),), key=("k",)))
    assert found.push.paths == tuple(str(tmp_path / "d" / name) for name in ("a.csv", "b.csv", "sub/c.csv"))
    assert (found.push.as_of_ms, found.bytes) == (1_000_000, 12)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.avro"])
def test_options_that_no_reader_takes_are_refused(tmp_path: Path, name: str) -> None:
    """An option that would drop rows is refused when the input is looked at, for pushes and loads alike."""
    error = _refused("bad_option", *_made(tmp_path, name), options={"mode": "DROPMALFORMED"})
    assert error.found == "mode=DROPMALFORMED"


def test_duplicate_keys_are_kept_by_time_or_on_request(tmp_path: Path) -> None:
    """Duplicates are refused unless a write time or the order of rows decides."""
    (path,) = _made(tmp_path, "a.csv")
    assert _find(path).on_duplicate_key == "refuse"
    assert _find(path, keep_last=True).on_duplicate_key == "last"
    assert _find(path, written_at="t").on_duplicate_key == "last"


# -- planning --------------------------------------------------------------------------------------------------------


def _nobody(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody is there", request=request)


@pytest.mark.case("stores:A11")
def test_files_and_the_store_s_own_data_contradict(tmp_path: Path) -> None:
    """A push of a file with source.kafka = true is refused before anybody is asked; the message names both."""
    (path,) = _made(tmp_path, "a.csv")
    controller = ControllerClient("http://controller", transport=httpx.MockTransport(_nobody))
    request = PushRequest(inputs=(str(path),), key=("k",))
    with pytest.raises(InvalidRequest) as caught:
        make_push_plan(controller, "s", request, RepushProperties(source_kafka=True))
    assert caught.value.code == "contradiction"
    assert all(text in str(caught.value.found) for text in ("source.kafka = true", str(path)))


@pytest.mark.case("stores:A10")
def test_without_a_controller_there_is_no_plan(tmp_path: Path) -> None:
    """When the catalog's keeper cannot be reached, planning fails at once, with what to do."""
    (path,) = _made(tmp_path, "a.csv")
    controller = ControllerClient("http://controller", transport=httpx.MockTransport(_nobody))
    push = PushRequest(inputs=(str(path),), key=("k",))
    acts: list[Callable[[], object]] = [
        lambda: make_push_plan(controller, "s", push, RepushProperties()),
        lambda: make_repush_plan(controller, "s", RepushRequest()),
    ]
    for act in acts:
        with pytest.raises(Unreachable) as caught:
            act()
        assert (caught.value.code, caught.value.exit_code) == ("controller_unreachable", 4)


# -- columns ---------------------------------------------------------------------------------------------------------

_KEY = '{"type": "record", "name": "K", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "long"}]}'
_VALUE = (
    '{"type": "record", "name": "V", "fields": [{"name": "delay", "type": "long"},'
    ' {"name": "note", "type": ["null", "string"], "default": null}]}'
)


def _task(header: list[str] | None, key: tuple[str, ...] = ("a", "b"), **changes: Any) -> EncodeTask:
    key_schema, value_schema = changes.pop("key_schema", _KEY), changes.pop("value_schema", _VALUE)
    files = PushInput(paths=("/in.csv",), format="csv", key=key, **changes)
    store = a_store(key_schema=key_schema, schemas={7: value_schema})
    return encode_task(store, files, {}, header)


def _bad_task(code: str, header: list[str] | None, key: tuple[str, ...] = ("a", "b"), **changes: Any) -> AnewError:
    with pytest.raises(InvalidRequest) as caught:
        _task(header, key, **changes)
    assert caught.value.code == code
    return caught.value


def test_columns_are_found_by_the_schemas() -> None:
    """All value fields that the input has are taken; those with a default may be absent; others are left alone."""
    task = _task(["a", "b", "delay", "note", "else"])
    assert (task.key, task.value, task.schema_id) == (("a", "b"), ("delay", "note"), 7)
    assert _task(["a", "b", "delay"]).value == ("delay",)
    assert _task(None).value == ("delay", "note")
    assert _task(["a", "b", "delay", "note"], value=("delay",)).value == ("delay",)


@pytest.mark.parametrize(
    ("header", "changes", "missing", "hint"),
    [
        (["a", "B", "delay"], {}, "b", None),
        (["a", "b", "dealy"], {}, "delay", "did you mean dealy?"),
        (["a", "b", "delay", "writen"], {"written_at": "written"}, "written", "did you mean writen?"),
        (["a", "b", "delay"], {"value": ("delay", "note")}, "note", None),
    ],
)
def test_a_missing_column_is_refused(
    header: list[str], changes: dict[str, Any], missing: str, hint: str | None
) -> None:
    """A key, value or time column that the input does not have is named, with the nearest one that it has."""
    error = _bad_task("missing_column", header, **changes)
    assert (error.expected, error.found, error.hint) == (missing, ", ".join(header), hint)


def test_a_column_that_comes_twice_is_refused() -> None:
    """Of two columns of one name it cannot be known which is meant; for the value it is refused as well."""
    for header in (["a", "b", "b", "delay"], ["a", "b", "delay", "note", "note"]):
        assert _bad_task("duplicate_column", header).code == "duplicate_column"


def test_key_columns_are_the_key_s_fields() -> None:
    """Too few, too many or other key columns are refused; a key that is no record takes exactly one of any name."""
    header = ["a", "b", "c", "delay"]
    for key in (("a",), ("a", "c"), ("a", "b", "c")):
        assert _bad_task("wrong_key_columns", header, key).expected == "a, b"
    assert _bad_task("wrong_key_columns", header, ("a", "b"), key_schema='"string"').expected == "one column"
    assert _task(header, ("c",), key_schema='"string"').key == ("c",)


def test_value_columns_are_the_value_s_fields() -> None:
    """A column that is no field, a field without default or column, or not one column for a plain value is refused."""
    header = ["a", "b", "delay", "note", "delya"]
    unknown = _bad_task("wrong_value_columns", header, value=("delay", "delya"))
    assert (unknown.expected, unknown.hint) == ("delay, note", "did you mean delay?")
    assert "delay" in _bad_task("wrong_value_columns", header, value=("note",)).message
    for value in ((), ("delay", "note")):
        assert _bad_task("wrong_value_columns", header, value=value, value_schema='"long"').expected == "one column"
    assert _task(header, value=("delay",), value_schema='"long"').value == ("delay",)
