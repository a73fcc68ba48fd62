"""How ``anew write`` ends before its end: by what is on disk, not by what was tried, and at which line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anew.cli.main import run_command
from anew.cli.stores import reads
from anew.cli.writing import stopped
from anew.client.writer import Writer
from anew.codec.avro import parse_schema
from anew.core.errors import AnewError, OutcomeUnknown, PartlyDone, Refused, Unreachable
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicSpec
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA, a_feed
from anew.testing.clock import ManualClock
from tests.unit.client.fleet import a_fleet

_FEED = a_feed(partitions=1)
_ERRORS = (Unreachable("log_full", "full"), Refused("topic_closed", "closed"), OutcomeUnknown("append_unknown", "lost"))

_BROKEN = [
    ('{"key": }', "this is not JSON", "Expecting value at column 9"),
    ('{"key": "b", "value": 5}', "value: value does not fit the schema", "int 5"),
]


def _writer(directory: Path, records: int) -> Writer:
    log = EmbeddedLog(directory, clock=ManualClock(), durable=False)
    log.create_topic(TopicSpec(_FEED.topic, _FEED.topic_uid, 1))
    writer = Writer(a_fleet(feed=_FEED).routing, log)
    for number in range(records):
        writer.put(f"key-{number}", {"text": ""})
    return writer


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.code)
@pytest.mark.parametrize("buffered", [0, 7])
def test_what_is_on_disk_is_counted(tmp_path: Path, error: AnewError, buffered: int) -> None:
    """Some is on disk: exit 6, or 5 where an outcome is unknown, with how many of how many."""
    writer = _writer(tmp_path, 4_000 + buffered)
    ended = stopped(writer, 12_000, error, as_json=True)
    assert ended.message == f"4,000 of 12,000 records are on disk: {error.message}"
    assert (ended.code, ended.exit_code) == (error.code, 5 if isinstance(error, OutcomeUnknown) else 6)
    assert ended.found["on_disk"] == 4_000


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.code)
def test_where_nothing_is_on_disk_the_error_says_it(tmp_path: Path, error: AnewError) -> None:
    """Its own exit code, because nothing was changed, or nobody knows."""
    assert stopped(_writer(tmp_path, 9), 9, error, as_json=True) is error


def test_rejected_records_are_not_counted(tmp_path: Path) -> None:
    """Records that readers reject leave a write that is done in part, also when nothing else was written."""
    error = PartlyDone("written_at_out_of_range", "readers reject 1 of 1 records")
    ended = stopped(_writer(tmp_path, 0), 1, error, as_json=True)
    assert (ended.exit_code, ended.message.startswith("0 of 1 records")) == (6, True)


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write into a log of this test's own."""
    store = SimpleNamespace(
        key_schema=parse_schema(KEY_SCHEMA),
        value_schema=parse_schema(VALUE_SCHEMA),
        writer=lambda: _writer(tmp_path / "log", 0),
    )

    @contextmanager
    def cluster() -> Iterator[Any]:
        yield SimpleNamespace(store=lambda _name: store)

    monkeypatch.setattr(reads, "cluster", cluster)


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(("line", "message", "found"), _BROKEN)
def test_a_bad_line_is_named_once(
    line: str, message: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own number, with what was found in it, and how many before it were written; for programs as one object."""
    file = tmp_path / "rows.json"
    file.write_text('{"key": "a", "value": {"text": ""}}\n\n' + line + "\n", encoding="utf-8")
    assert run_command(["write", "flights", str(file)]) == 1
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith(f"error: line 3: {message}; records before it that were written: 1 (")
    assert shown[1] == f"  found: {found}"
    assert run_command(["write", "flights", str(file), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)["error"]["found"]
    assert (answer["accepted"], answer["line"], answer["found"]) == (1, 3, found)


@pytest.mark.usefixtures("connected")
def test_a_file_that_cannot_be_read_is_a_wrong_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2: one that does not exist, and a directory, are told apart."""
    for path, message in ((tmp_path / "none", "the file does not exist"), (tmp_path, "this is a directory")):
        assert run_command(["write", "flights", str(path), "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["message"], error["found"]) == (message, str(path))
