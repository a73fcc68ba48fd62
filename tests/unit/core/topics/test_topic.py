"""Names of topics, and the columns of their JSON values."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.errors import InvalidRequest, Refused
from anew.core.topics.ddl import MOST_COLUMNS, parse_columns_ddl
from anew.core.topics.topic import (
    MOST_PARTITIONS,
    check_not_deleted,
    check_partitions,
    check_topic_name,
    growing,
    grown,
)
from anew.testing.builders import a_topic
from anew.testing.clock import NOON_MS


@pytest.mark.parametrize("name", ["clicks", "c", "a_1", "x" * 64, "art", "flights_v", "v7", "dead_letters", "a_vx1"])
def test_names_that_topics_may_have(name: str) -> None:
    """Lower-case letters, digits and _, the first a letter."""
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", "Clicks", "1a", "_a", "a-b", "a.b", "x" * 65, "flights_rt", "flights_v12", "flights_dead_letters", "é"]
)
def test_names_that_topics_of_stores_have_are_refused(name: str) -> None:
    """Neither other characters nor a name that a store's topic has, or may get."""
    with pytest.raises(InvalidRequest) as caught:
        check_topic_name(name)
    assert (caught.value.code, caught.value.found) == ("bad_topic_name", name)


def test_partitions_are_bounded() -> None:
    """At least one, and no more than a log can follow."""
    for partitions in (1, MOST_PARTITIONS):
        check_partitions(partitions)
    for partitions in (0, -1, MOST_PARTITIONS + 1):
        with pytest.raises(InvalidRequest) as caught:
            check_partitions(partitions)
        assert caught.value.code == "bad_partitions"


def test_a_deleted_topic_is_refused() -> None:
    """What was deleted takes no change."""
    check_not_deleted(a_topic())
    with pytest.raises(Refused) as caught:
        check_not_deleted(a_topic(deleted_at_ms=NOON_MS))
    assert caught.value.code == "topic_deleted"


def test_a_topic_grows_by_what_is_wanted_last() -> None:
    """It is to get as many as was said last, never fewer, and keeps that in mind until the log has them."""
    topic = a_topic(partitions=2, ready=True)
    assert growing(topic, 2) is topic
    wanted = growing(topic, 4)
    assert (wanted.partitions, wanted.growing_to, growing(wanted, 4)) == (2, 4, wanted)
    more = growing(wanted, 6)
    for of, partitions in ((topic, 1), (wanted, 3), (more, 5)):
        with pytest.raises(Refused) as caught:
            growing(of, partitions)
        assert caught.value.code == "fewer_partitions"
    half = grown(more, 4)
    assert (half.partitions, half.growing_to) == (4, 6)
    assert [(each.partitions, each.growing_to) for each in (grown(half, 6), grown(half, 7))] == [(6, None), (7, None)]
    assert grown(grown(half, 7), 6).partitions == 7


@pytest.mark.parametrize(
    ("fields", "code"), [({"ready": False}, "topic_not_ready"), ({"deleted_at_ms": NOON_MS}, "topic_deleted")]
)
def test_a_topic_that_is_not_there_does_not_grow(fields: dict[str, Any], code: str) -> None:
    """Neither before it is made nor after it was deleted."""
    with pytest.raises(Refused) as caught:
        growing(a_topic(**{"ready": True, **fields}), 9)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("carrier STRING, delay INT", ("carrier", "delay")),
        ("a int", ("a",)),
        (" `odd ``name` Double NOT NULL ,\n b: decimal(10, 2)", ("odd `name", "b")),
        ("a DECIMAL, b DEC(5), c NUMERIC(38,38)", ("a", "b", "c")),
        ("stops ARRAY<STRUCT<airport: STRING, at TIMESTAMP NOT NULL>>, m INT", ("stops", "m")),
        ("array INT, struct STRING", ("array", "struct")),
    ],
)
def test_columns_are_read_as_spark_writes_them(text: str, names: tuple[str, ...]) -> None:
    """Names with types, in any case, also types in types."""
    assert parse_columns_ddl(text) == names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "the end"),
        ("a", "the end"),
        ("a INT,", "the end"),
        ("a INT b INT", "b"),
        ("a VARCHAR", "varchar"),
        ("1a INT", "1"),
        ("a INT, A LONG", "the column A twice"),
        ("a ARRAY<INT", "the end"),
        ("a MAP<STRING, INT>", "map"),
        ("a DECIMAL(39)", "39"),
        ("a DECIMAL(4,5)", "5"),
        ("a INT NOT", "the end"),
        ("a INT; DROP", "'; DROP'"),
        ("a INT)", ")"),
        ("a " + "ARRAY<" * 30 + "INT" + ">" * 30, "types in types, more than 20 deep"),
        (", ".join(f"c{number} INT" for number in range(MOST_COLUMNS + 1)), f"{MOST_COLUMNS + 1} columns"),
    ],
)
def test_other_texts_are_no_columns(text: str, found: str) -> None:
    """What was found is named, and what was expected in its place."""
    with pytest.raises(InvalidRequest) as caught:
        parse_columns_ddl(text)
    assert (caught.value.code, caught.value.found) == ("bad_columns", found)
