"""Every refusal says what was found, what was expected and what to do, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.commands import PERSON, Anew

_SCHEMAS = ("--key-schema", "string", "--value-schema", json.dumps(PERSON))


@pytest.fixture(scope="module")
def store(anew: Anew) -> str:
    """A hybrid store without a version."""
    anew.create("refusing", "hybrid=true", "rt_partitions=2")
    return "refusing"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("store", "show", "refusin"), 2, "unknown_store"),
        (("store", "create", "refusing", *_SCHEMAS), 3, "store_exists"),
        (("store", "create", "Bad-Name", *_SCHEMAS), 2, "bad_store_name"),
        (("store", "create", "other", "--key-schema", "strin", "--value-schema", "int"), 2, "bad_schema"),
        (("store", "create", "other", "--key-schema", "double", "--value-schema", "int"), 2, "bad_key_schema"),
        (("store", "create", "other", "--key-schema", "@no.avsc", "--value-schema", "int"), 2, "no_schema_file"),
        (("store", "update", "refusing", "--set", "partitons=2"), 2, "unknown_setting"),
        (("store", "update", "refusing", "--set", "partitions=many"), 2, "bad_setting"),
        (("store", "update", "refusing", "--set", "active_fabric=dc-0"), 2, "not_supported_yet"),
        (("store", "update", "refusing", "--set", "amplification_factor=0"), 2, "bad_setting"),
        (("store", "update", "refusing", "--set", "amplification_factor=65"), 2, "bad_setting"),
        (("store", "update", "refusing", "--set", "partitioner=no.such.module:Placing"), 2, "bad_partitioner"),
        (("store", "update", "refusing", "--set", "partitioner=tests.cluster.placing:Nothing"), 2, "bad_partitioner"),
        (("store", "update", "refusing", "--set", "repush_schedule=at noon"), 2, "bad_schedule"),
        (("store", "update", "refusing", "--set", "repush_when=age > x"), 2, "bad_condition"),
        (("store", "update", "refusing", "--set", "repush_when=stale"), 2, "contradiction"),
        (("store", "update", "refusing", "--set", "rt_partitions=9"), 2, "fixed_setting"),
        (("store", "update", "refusing"), 2, "nothing_to_change"),
        (("push", "refusing", "/no/such/file.csv", "--key", "id"), 2, "no_input"),
        (("push", "refusing", "--key", "id"), 2, "no_input"),
        (("repush", "refusing"), 3, "nothing_to_repush"),
        (("repush", "refusing", "-D", "kafka.input.fabrik=x"), 2, "unknown_property"),
        (("repush", "refusing", "-D", "kafka.input.max.records.per.mapper=1M"), 2, "bad_setting"),
        (("repush", "refusing", "-D", "repush.ttl.seconds=5"), 2, "ttl_not_enabled"),
        (("repush", "refusing", "-D", "kafka.input.topic=refusing_v1"), 3, "not_sealed"),
        (("repush", "refusing", "-D", "kafka.input.topic=other_v1"), 2, "bad_version"),
        (("push", "refusing", "--empty", "-D", "repush.ttl.enable=true"), 3, "ttl_impossible"),
        (("push", "refusing", __file__, "--empty"), 2, "contradiction"),
        (("push", "refusing", "--empty", "--as-of", "yesterday"), 2, "bad_option"),
        (("push", "refusing", "--empty", "--target-fabrics", "dc-9"), 2, "unknown_fabric"),
        (("rebuild", "resume", "nope"), 2, "unknown_rebuild"),
        (("node", "drain", "node-9"), 2, "unknown_node"),
        (("gc", "--store", "refusin"), 2, "unknown_store"),
        (("pause", "--store", "refusin"), 2, "unknown_store"),
        (("get", "refusing", "p1"), 3, "no_current_version"),
        (("swap", "refusing", "9"), 2, "unknown_version"),
        (("rollback", "refusing"), 3, "no_backup"),
        (("rebuild", "show", "nope"), 2, "unknown_rebuild"),
        (("store", "list", "--no-such-option"), 2, "usage"),
        (("store", "delete", "refusing"), 2, "not_confirmed"),
    ],
)
def test_bad_requests_are_refused_with_their_code(
    anew: Anew, store: str, arguments: tuple[str, ...], code: int, error: str
) -> None:
    """The exit code and the error's code are those of the face, and nothing was changed."""
    before = anew.here("store", "show", store)
    answer = anew.run_here(*arguments)
    assert (answer.code, answer.error["code"]) == (code, error), answer.out
    assert answer.error["message"]
    assert answer.error["found"] is not None or answer.error["expected"] is not None
    assert anew.here("store", "show", store) == before


@pytest.mark.case("stores:I7")
def test_a_value_that_does_not_fit_the_newest_schema_is_refused_at_the_writer(anew: Anew, store: str) -> None:
    """The refusal names line and field, exit 1, and only what came before was written."""
    rows = [
        {"key": "a", "value": {"name": "fits", "age": 1}},
        {"key": "b", "value": {"name": "does not", "age": "old"}},
        {"key": "c", "value": {"name": "never read", "age": 3}},
    ]
    answer = anew.run_here("write", store, "-", stdin="".join(json.dumps(row) + "\n" for row in rows))
    assert answer.code == 1
    assert "line 2" in answer.error["message"]
    assert "age" in answer.error["message"]
    assert answer.error["found"]["accepted"] == 1


def test_what_only_the_data_shows_is_a_failed_version_that_nothing_serves(anew: Anew, tmp_path: Path) -> None:
    """Exit 1, the version is failed, and the store goes on without it."""
    path = tmp_path / "rows.csv"
    path.write_text("id,name,age\na,one,old\n", encoding="utf-8")
    anew.create("bad_rows")
    answer = anew.run_here("push", "bad_rows", str(path), "--key", "id")
    assert (answer.code, answer.error["code"]) == (1, "bad_rows"), answer.out
    assert answer.error["found"] == [f"{path}:2: age: found text 'old', expected int"]
    view = anew.here("store", "show", "bad_rows")["fabrics"]["dc-0"]
    assert view["current"] == 0
    assert view["versions"][0]["status"] in ("failed", "retired", "reclaimed")


def test_a_missing_column_is_refused_with_the_nearest_one(anew: Anew, store: str, people: Path) -> None:
    """The message names the column, and no version was made."""
    answer = anew.run_here("push", store, str(people), "--key", "idd")
    assert (answer.code, answer.error["code"]) == (2, "missing_column")
    assert anew.here("store", "show", store)["fabrics"]["dc-0"]["versions"] == []
    assert answer.error["hint"] == "did you mean id?"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("broken.parquet", b"PAR1 but then not", "unreadable_input"),
        ("broken.avro", b"Obj but then not", "unreadable_input"),
        ("nothing.csv", b"", "empty_input"),
    ],
)
def test_an_input_that_cannot_be_read_is_refused_before_anything_is_made(
    anew: Anew, store: str, tmp_path: Path, name: str, content: bytes, code: str
) -> None:
    """Corrupt and empty files exit with 2, are named, and leave no version."""
    path = tmp_path / name
    path.write_bytes(content)
    answer = anew.run_here("push", store, str(path), "--key", "id")
    assert (answer.code, answer.error["code"]) == (2, code), answer.out
    assert anew.here("store", "show", store)["fabrics"]["dc-0"]["versions"] == []


@pytest.mark.case("stores:H5", "stores:H4")
def test_a_batch_store_takes_no_writes_before_a_hybrid_version_serves(anew: Anew, people: Path) -> None:
    """The change is pending; a write is refused and nothing of it is kept, until the next version takes them."""
    anew.create("becoming", "rt_partitions=2")
    anew.push("becoming", people)
    pending = anew.here("store", "update", "becoming", "--set", "hybrid=true")["pending"]
    assert [change["setting"] for change in pending] == ["hybrid"]
    row = json.dumps({"key": "w", "value": {"name": "w", "age": 1}}) + "\n"
    refused = anew.run_here("write", "becoming", "-", stdin=row)
    assert (refused.code, refused.error["code"]) == (3, "not_hybrid")
    anew.here("repush", "becoming")
    anew.write("becoming", {"key": "w", "value": {"name": "w", "age": 2}})
    assert anew.value("becoming", "w") == {"name": "w", "age": 2}
