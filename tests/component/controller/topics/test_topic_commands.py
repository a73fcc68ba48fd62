"""``anew topic …``: what people type, what they are told, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anew.client.topicwriter import partition_of
from anew.core.errors import Unreachable
from anew.log.embedded import EmbeddedLog
from anew.testing.builders import VALUE_SCHEMA
from anew.testing.raw_contract import raw_pairs
from tests.component.controller.harness import Cluster
from tests.component.controller.topics.conftest import Ran


def _values(cluster: Cluster, name: str = "clicks") -> list[tuple[bytes | None, bytes | None]]:
    return raw_pairs(cluster.log, partition_of(cluster.client.topic(name), 0))


def test_a_topic_s_life_from_the_command_line(cluster: Cluster, ran: Ran, tmp_path: Path) -> None:
    """Made, listed, written from files and standard input, read, shown and deleted; each answer is one document."""
    made = ran(
        "create", "clicks", "--columns", "user STRING, n INT", "--retention-seconds", "3600", "--partitions", "2"
    )
    assert (made["name"], made["format"], made["retention_seconds"], made["ready"]) == ("clicks", "json", 3600.0, True)
    assert [topic["name"] for topic in ran("list")] == ["clicks"]
    for number in (1, 2):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"user": "u{number}", "n": {number}}}\n\n')
    files = [part for number in (1, 2) for part in ("--file", str(tmp_path / f"{number}.jsonl"))]
    assert ran("write", "clicks", *files, "--key-field", "user")["accepted"] == 2
    wrote = ran("write", "clicks", stdin='{"n": 3}\n{"n": 4}\n')
    assert (wrote["accepted"], sum(wrote["position"]["dc-0/clicks#1"].values())) == (2, 4)
    found = ran("read", "clicks")
    assert sorted((row["key"], row["value"]["n"]) for row in found if row["key"] is not None) == [("u1", 1), ("u2", 2)]
    assert sorted(row["value"]["n"] for row in found) == [1, 2, 3, 4]
    assert len(ran("read", "clicks", "--from", "newest", "--limit", "1")) == 1
    # What no job wrote is given as it is.
    committed = ran("read", "clicks", "--committed", "--limit", "3")
    assert (committed["records"], committed["waiting"]) == (found[:3], [])
    assert sum(committed["next"].values()) <= 4
    facts = ran("show", "clicks")["facts"]
    assert sum(partition["end"] for partition in facts["partitions"]) == 4
    assert ran("delete", "clicks", "--yes") == {"deleted": "clicks"}
    assert ran("list") == []


def test_what_people_are_told(ran: Ran) -> None:
    """Without ``--json``: a line, or a table."""
    assert "next: anew topic write clicks" in ran("create", "clicks", "--retention-bytes", "1000", as_json=False)
    assert "1000 bytes per partition" in ran("list", as_json=False)
    assert ran("write", "clicks", stdin='{"a": "x\\ty"}\n', as_json=False) == "1 records written\n"
    assert '{"a": "x\\\\ty"}' in ran("read", "clicks", as_json=False)
    shown = ran("show", "clicks", as_json=False)
    assert "compacted: no" in shown
    assert "oldest" in shown
    assert ran("delete", "clicks", "--yes", as_json=False) == "deleted clicks\n"


def test_avro_lines_are_those_of_stores(cluster: Cluster, ran: Ran) -> None:
    """Key and value by the schemas, in plain JSON; a value of null is a delete."""
    ran("create", "clicks", "--key-schema", "string", "--value-schema", VALUE_SCHEMA)
    ran("write", "clicks", stdin='{"key": "a", "value": {"text": "x"}}\n{"key": "b", "value": null}\n')
    found = [(row["key"], row["value"], row["flaw"]) for row in ran("read", "clicks")]
    assert found == [("a", {"text": "x"}, None), ("b", None, None)]


def test_lines_of_bytes_are_base64(cluster: Cluster, ran: Ran) -> None:
    """What is read of a topic of bytes can be written to another one."""
    ran("create", "clicks", "--format", "bytes")
    ran("write", "clicks", stdin='{"key": null, "value": "/w=="}\n{"key": "aw==", "value": null}\n')
    assert _values(cluster) == [(None, b"\xff"), (b"k", None)]
    assert [(row["key"], row["value"]) for row in ran("read", "clicks")] == [(None, "/w=="), ("aw==", None)]


def test_json_lines_are_kept_to_the_byte(cluster: Cluster, ran: Ran, tmp_path: Path) -> None:
    """Spaces, the order of members and the spelling of numbers are the writer's."""
    ran("create", "clicks")
    lines = [b'{"b" : 1.50,  "a": "\xc3\xbc"}', b"[1, 2]", b'"text"', b"null"]
    (tmp_path / "lines").write_bytes(b"\n".join(lines) + b"\r\n")
    assert ran("write", "clicks", "--file", str(tmp_path / "lines"))["accepted"] == 4
    assert [value for _, value in _values(cluster)] == lines


@pytest.mark.parametrize(
    ("made", "line", "code"),
    [
        ([], "{", "bad_json"),
        (["--format", "bytes"], '{"value": "aa=="}', "bad_line"),
        (["--format", "bytes"], '{"key": 1, "value": "aw=="}', "value_misfit"),
        (["--format", "bytes"], '{"key": null, "value": "a"}', "value_misfit"),
        (["--key-schema", "string", "--value-schema", "long"], '{"key": "a"}', "bad_line"),
        (["--key-schema", "string", "--value-schema", "long"], '{"key": "a", "value": "b"}', "value_misfit"),
        (["--key-schema", "string", "--value-schema", "long"], '{"key": null, "value": 1}', "value_misfit"),
    ],
)
def test_the_first_bad_line_ends_a_write(cluster: Cluster, ran: Ran, made: list[str], line: str, code: str) -> None:
    """Exit 1, with the line and how many were accepted; what came before it is written."""
    ran("create", "clicks", *made)
    good = '{"key": "aaaa", "value": 1}' if "--key-schema" in made else '{"key": "aaaa", "value": "aaaa"}'
    error = ran("write", "clicks", stdin=f"{good}\n{line}\n{good}\n", code=1)["error"]
    assert (error["code"], error["found"]["line"], error["found"]["accepted"]) == (code, 2, 1)
    assert len(_values(cluster)) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["create", "clicks_rt"], "bad_topic_name", 2),
        (["create", "other", "--retention-seconds", "0"], "bad_option", 2),
        (["create", "other", "--format", "xml"], "usage", 2),
        (["create", "other", "--columns", "a"], "bad_columns", 2),
        (["create", "clicks"], "topic_exists", 3),
        (["show", "click"], "unknown_topic", 2),
        (["write", "click"], "unknown_topic", 2),
        (["write", "clicks", "--file", "/nowhere"], "no_input", 2),
        (["write", "clicks", "--key-field", "a"], "bad_topic_format", 2),
        (["read", "clicks", "--from", "yesterday"], "bad_offset", 2),
        (["read", "clicks", "--from", "7"], "offset_out_of_range", 1),
        (["read", "clicks", "--partition", "3"], "unknown_partition", 2),
        (["read", "clicks", "--limit", "0"], "bad_limit", 2),
        (["delete", "clicks"], "not_confirmed", 2),
    ],
)
def test_wrong_commands_say_what_was_expected(
    cluster: Cluster, ran: Ran, arguments: list[str], code: str, exit_code: int
) -> None:
    """Found and expected stand in the answer, the exit code is that of the face, and nothing is changed."""
    ran("create", "clicks", "--format", "bytes")
    revision = cluster.context.catalog.revision()
    error = ran(*arguments, code=exit_code)["error"]
    assert error["code"] == code
    assert error["message"]
    assert cluster.context.catalog.revision() == revision


def test_a_member_that_is_missing_ends_a_write(cluster: Cluster, ran: Ran) -> None:
    """A JSON value without the member that is to be its key is a bad line."""
    ran("create", "clicks")
    error = ran("write", "clicks", "--key-field", "user", stdin='{"user": "a"}\n{"name": "b"}\n', code=1)["error"]
    assert (error["code"], error["found"]["accepted"], _values(cluster)) == ("no_key", 1, [(b"a", b'{"user": "a"}')])


def test_a_log_that_ends_a_write_is_told_with_what_is_on_disk(
    cluster: Cluster, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where some batches landed it is exit 6 and says how many records; where none did it is exit 4."""
    ran("create", "clicks", "--partitions", "2")
    append = EmbeddedLog.append_raw

    def one_only(self: EmbeddedLog, at: Any, records: Any) -> Any:
        if at.partition == 1:
            raise Unreachable("log_unreachable", "the log does not answer")
        return append(self, at, records)

    monkeypatch.setattr(EmbeddedLog, "append_raw", one_only)
    error = ran("write", "clicks", stdin="1\n2\n3\n", code=6)["error"]
    assert (error["code"], error["found"]["on_disk"], error["found"]["records"]) == ("log_unreachable", 2, 3)
