"""Starts are values: how they are written, and what a time comes to in one partition."""

from __future__ import annotations

import pytest

from anew.core.errors import InvalidRequest
from anew.core.jobs.starts import (
    Ago,
    AtOffsets,
    AtTime,
    Newest,
    Oldest,
    Reach,
    StartAt,
    WhereOf,
    clamped,
    reach_of,
    start_of,
)


@pytest.mark.case("streams:B3")
@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("oldest", Oldest()),
        ("newest", Newest()),
        ("2013-12-03T12:00Z", AtTime(at_ms=1_386_072_000_000)),
        ("2013-12-03T14:00+02:00", AtTime(at_ms=1_386_072_000_000)),
        ("36h", Ago(span_ms=129_600_000)),
        ("of=delay_class@3", WhereOf(job="delay_class", generation=3)),
        ("flights:0=120,flights:1=98,of:0=1", AtOffsets(offsets={"flights": {0: 120, 1: 98}, "of": {0: 1}})),
    ],
)
def test_a_start_is_written_in_one_word(text: str, start: StartAt) -> None:
    """An end of the log, a time, a duration, a generation, or offsets; a value and a mapping are starts as well."""
    assert start_of(text) == start == start_of(start)
    assert start_of({"flights": {0: 120}}) == AtOffsets(offsets={"flights": {0: 120}})


@pytest.mark.parametrize(
    "text",
    [
        *("", "fail", "36", "99999999999w"),
        *("2013-12-03T12:00", "2013-12-03", "1969-12-31T23:59Z"),
        *("of=delay_class", "of=@1", "of=a@0", "of=a@x"),
        *("a:0", "a:0=", "a:0=-1", "0=1", "a:0=1,a:0=2", "a:0=1,", "a:0=" + "9" * 19),
    ],
)
def test_what_is_no_start_is_refused(text: str) -> None:
    """A time without a zone most of all: it would be another one on another machine."""
    with pytest.raises(InvalidRequest) as caught:
        start_of(text)
    assert caught.value.code == "bad_start"


def test_a_start_says_how_it_was_asked_for() -> None:
    """As histories and plans tell it."""
    said = [str(start_of(text)) for text in ("oldest", "newest", "2013-12-03T14:00+02:00", "36h", "of=j@2", "a:0=1")]
    assert said == ["oldest", "newest", "2013-12-03T12:00:00.000Z", "1d 12h ago", "of=j@2", "offsets"]


@pytest.mark.case("streams:B4", "streams:B5")
@pytest.mark.parametrize(
    ("offset", "held", "oldest_ms", "kept_ms", "reach"),
    [
        (3, (0, 5), 100, None, Reach.FOUND),
        (5, (0, 5), 100, None, Reach.NOTHING),
        (0, (0, 0), None, None, Reach.NOTHING),
        (2, (2, 5), 501, None, Reach.GONE),
        (2, (2, 5), 500, None, Reach.FOUND),
        (0, (0, 5), 501, None, Reach.FOUND),
        (5, (2, 5), 499, None, Reach.NOTHING),
        (5, (5, 5), None, None, Reach.GONE),
        (5, (5, 5), None, 501, Reach.GONE),
        (5, (5, 5), None, 500, Reach.NOTHING),
    ],
)
def test_a_time_reaches_what_a_partition_still_holds(
    offset: int, held: tuple[int, int], oldest_ms: int | None, kept_ms: int | None, reach: Reach
) -> None:
    """Asked for 500: what was taken before a younger oldest record may have been of then; an empty one may be quiet."""
    assert reach_of(500, offset, held, oldest_ms, kept_ms) is reach


@pytest.mark.case("streams:A6")
def test_an_offset_is_moved_to_the_nearest_that_there_is() -> None:
    """Up to the begin, down to the end; one in between stays."""
    assert [clamped(offset, 2, 5) for offset in (0, 2, 4, 5, 9)] == [2, 2, 4, 5, 5]
