"""Rows are dealt to segments: each row to exactly one, of its own bucket and partition, never too many."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.core.errors import InvalidRequest
from anew.core.tables.dealing import Deal, Group, check_prefix, deal, group_of, groups_of
from anew.core.tables.segment import check_segment_name
from anew.testing.table_builders import a_schema, a_segment_config

_MODEST = settings(derandomize=True, max_examples=150, deadline=None)
_FORMATS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
_TIMES = st.none() | st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2030, 1, 1))  # noqa: DTZ001 - UTC without saying so
_CONFIG = a_segment_config(time_column="left_at")


def _rows(times: list[Any], held: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"left_at": pa.array(times, pa.timestamp("us") if held is None else held)})


def _buckets(times: list[Any], bucket: str | None, held: pa.DataType | None = None) -> list[str]:
    numbers, groups = groups_of(_rows(times, held), _CONFIG, bucket, None)
    return [groups[number].bucket for number in numbers]


@pytest.mark.case("tables:F1")
@pytest.mark.parametrize(
    ("bucket", "names"),
    [
        ("hour", ["2013-01-31T23", "1969-12-31T23", "none"]),
        ("day", ["2013-01-31", "1969-12-31", "none"]),
        ("month", ["2013-01", "1969-12", "none"]),
        ("year", ["2013", "1969", "none"]),
        (None, ["all", "all", "all"]),
    ],
)
def test_a_bucket_is_a_span_of_the_time_column(bucket: str | None, names: list[str]) -> None:
    """Rows go to the span that their time lies in, to the microsecond, before 1970 too; those without time go apart."""
    times = [dt.datetime(2013, 1, 31, 23, 59, 59, 999_999), dt.datetime(1969, 12, 31, 23, 59, 59, 500_000), None]  # noqa: DTZ001
    assert _buckets(times, bucket) == names


@pytest.mark.case("tables:F1")
def test_dates_and_milliseconds_are_times() -> None:
    """A time column may be a date, or a bigint of ms since the epoch."""
    assert _buckets([dt.date(2013, 1, 31), None], "month", pa.date32()) == ["2013-01", "none"]
    assert _buckets([1_359_676_799_999, -1, None], "day", pa.int64()) == ["2013-01-31", "1969-12-31", "none"]


@pytest.mark.case("tables:F1")
def test_years_of_five_digits_are_years_of_their_own() -> None:
    """A time far away shares a bucket only with its own span."""
    far = [np.datetime64(f"{year}-05-06T00:00:00", "us") for year in (12332, 12333, 1233)]
    assert _buckets(far, "year") == ["12332", "12333", "1233"]


@pytest.mark.case("tables:F1")
def test_a_partition_parts_a_bucket() -> None:
    """Rows of one bucket and two partitions are two groups; a group is known again by its key."""
    placed = np.array([3, 0, 3, 0], np.int64)
    same = dt.datetime(2013, 1, 1)  # noqa: DTZ001
    numbers, groups = groups_of(_rows([same, same, same, None]), _CONFIG, "year", placed)
    found = [groups[number] for number in numbers]
    assert found == [Group("2013", 3), Group("2013", 0), Group("2013", 3), Group("none", 0)]
    assert [group_of(group.key) for group in found] == found
    assert group_of(Group("all", -1).key) == Group("all", -1)


def test_no_rows_are_in_no_group() -> None:
    """An empty batch has no groups, and a load of nothing no segments."""
    numbers, groups = groups_of(_rows([]), _CONFIG, "day", None)
    assert (len(numbers), groups) == (0, [])
    assert deal({0: {}, 1: {}}, 10, "x") == Deal({}, {}, (), (), 10)


@pytest.mark.case("tables:F1")
def test_segments_are_named_by_prefix_bucket_partition_and_number() -> None:
    """Groups come in order, each with as many segments as it needs; where in its group a task begins is known."""
    dealt = deal({1: {"2013-02/1": 3}, 0: {"2013-02/1": 8, "2013-01/0": 10}}, 10, "trips")
    assert dealt.names == ("trips_2013-01_p0_0", "trips_2013-02_p1_0", "trips_2013-02_p1_1")
    assert dealt.rows == (10, 10, 1)
    assert dealt.base == {"2013-01/0": 0, "2013-02/1": 1}
    assert dealt.first == {(0, "2013-02/1"): 0, (1, "2013-02/1"): 8, (0, "2013-01/0"): 0}
    assert deal({0: {"all/-1": 2}}, 1, "load").names == ("load_0", "load_1")


@st.composite
def _loads(draw: st.DrawFn) -> tuple[list[tuple[list[Any], npt.NDArray[np.int64] | None]], str | None, int]:
    """Tasks with their rows' times and partitions, a bucket, and how many rows a segment holds at most."""
    partitioned, bucket = draw(st.booleans()), draw(st.sampled_from([None, *_FORMATS]))
    tasks = []
    for _ in range(draw(st.integers(1, 4))):
        times = draw(st.lists(_TIMES, max_size=25))
        placed = draw(st.lists(st.integers(0, 3), min_size=len(times), max_size=len(times)))
        tasks.append((times, np.array(placed, np.int64) if partitioned else None))
    return tasks, bucket, draw(st.integers(1, 7))


def _segment_of(dealt: Deal, task: int, key: str, number: int) -> int:
    """Where a task's row goes that is the so manyth of its group there: what whoever writes segments computes."""
    return dealt.base[key] + (dealt.first[task, key] + number) // dealt.most


@pytest.mark.case("tables:F1")
@_MODEST
@given(_loads())
def test_every_row_has_one_segment(load: Any) -> None:
    """No segment is longer than it may be, spans two buckets or two partitions, or gets other than it was promised."""
    tasks, bucket, most = load
    grouped = [groups_of(_rows(times), _CONFIG, bucket, placed) for times, placed in tasks]
    counts = {
        task: dict(Counter(groups[number].key for number in numbers)) for task, (numbers, groups) in enumerate(grouped)
    }
    dealt = deal(counts, most, "trips-2013_all")
    held: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for task, (numbers, groups) in enumerate(grouped):
        seen: Counter[str] = Counter()
        times, placed = tasks[task]
        for row, number in enumerate(numbers):
            key = groups[number].key
            span = "all" if bucket is None else "none" if times[row] is None else times[row].strftime(_FORMATS[bucket])
            segment = _segment_of(dealt, task, key, seen[key])
            held[segment].append((span, -1 if placed is None else int(placed[row])))
            seen[key] += 1
    assert {segment: len(rows) for segment, rows in held.items()} == dict(enumerate(dealt.rows))
    assert all(0 < rows <= most for rows in dealt.rows)
    assert all(len(set(rows)) == 1 for rows in held.values())
    assert sum(dealt.rows) == sum(len(times) for times, _ in tasks)
    assert len(set(dealt.names)) == len(dealt.names) == len(dealt.rows)
    for name in dealt.names:
        check_segment_name(name)


@pytest.mark.parametrize("prefix", ["trips", "a" * 80, "2013-01_x"])
def test_the_longest_names_are_names(prefix: str) -> None:
    """Whatever a load may be called, what its segments are called is allowed."""
    check_prefix(prefix)
    dealt = deal({0: {"2013-01-31T23/99999": 2}}, 1, prefix)
    for name in dealt.names:
        check_segment_name(name)


@pytest.mark.parametrize("prefix", ["", "_", "-_-", "a/b", "a.b", "a b", "ä", "a" * 81])
def test_a_prefix_that_names_no_file_is_refused(prefix: str) -> None:
    """Nothing that leads out of a directory, is empty, or is too long."""
    with pytest.raises(InvalidRequest) as caught:
        check_prefix(prefix)
    assert (caught.value.code, caught.value.found) == ("bad_name", prefix)


def test_a_table_without_time_has_one_bucket() -> None:
    """Without a time column there is one group per partition, whatever the bucket."""
    config = a_segment_config(a_schema())
    numbers, groups = groups_of(_rows([None, None]), config, "day", None)
    assert (numbers.tolist(), groups) == ([0, 0], [Group("all", -1)])
