"""The language of ``repush_when``: what it accepts, what it says of a mistake, and what it shows of the facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anew.core.condition import MAX_CHARACTERS, MAX_DEPTH, Facts, parse_condition
from anew.core.errors import InvalidRequest
from anew.core.moment import UNITS_MS, duration_text, utc_text
from anew.testing.clock import NOON_MS

_HOUR_MS = UNITS_MS["h"]
_FACTS = Facts(
    stale=False, unsorted_share=0.12, tombstone_share=0.0, age_ms=76 * _HOUR_MS, rows=1_000, feed_records=137
)


def _holds(text: str, facts: Facts = _FACTS) -> bool:
    return parse_condition(text).judge(facts).holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("stale", False),
        ("not stale", True),
        ("not not stale", False),
        ("unsorted_share < 0.12", False),
        ("unsorted_share <= 0.12", True),
        ("unsorted_share>0.11", True),
        ("unsorted_share >= 12%", True),
        ("unsorted_share > 12%", False),
        ("unsorted_share < 12.5%", True),
        ("tombstone_share == 0", True),
        ("rows == 1_000 and rows != 999", True),
        ("feed_records >= 138", False),
        ("age > 3d", True),
        ("age > 4d", False),
        ("age == 76h", True),
        ("age == 4560m", True),
        ("age == 273600s", True),
        ("age < 1w", True),
    ],
)
def test_a_comparison_holds_for_what_it_says(text: str, *, holds: bool) -> None:
    """Each operator compares the fact with the literal in the literal's unit."""
    assert _holds(text) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("rows > 0 or stale and stale", True),
        ("(rows > 0 or stale) and stale", False),
        ("not stale and rows > 0", True),
        ("not (stale or rows > 0)", False),
        ("stale or stale or rows > 0", True),
        ("rows > 0 and rows > 1 and stale", False),
    ],
)
def test_and_binds_closer_than_or_and_not_the_closest(text: str, *, holds: bool) -> None:
    """Words join in the usual order, and parentheses change it."""
    assert _holds(text) is holds


def test_a_judgement_shows_every_present_value() -> None:
    """Each comparison appears once with its present value, also those that no longer decide."""
    condition = parse_condition(
        "stale or unsorted_share > 0.3 or age > 7d or tombstone_share > 5% or rows > 500 or stale"
    )
    judgement = condition.judge(_FACTS)
    assert judgement.holds
    assert judgement.reasons == (
        "not stale",
        "unsorted_share is 0.12, not > 0.3",
        "age is 3d 4h, not > 7d",
        "tombstone_share is 0%, not > 5%",
        "rows is 1000, > 500",
    )
    assert condition.judge(replace(_FACTS, stale=True)).reasons[0] == "stale"


@pytest.mark.parametrize(
    ("text", "position", "found", "expected"),
    [
        ("", 1, "the end", "not, ("),
        ("  ", 3, "the end", "not, ("),
        ("stale or", 9, "the end", "not, ("),
        ("stale rows > 3", 7, "rows", "and, or, or the end"),
        ("(stale", 7, "the end", "and, or, or )"),
        ("stale)", 6, ")", "and, or, or the end"),
        ("stale > 3", 7, ">", "and, or, or the end"),
        ("unsorted_share", 15, "the end", "one of < <= > >= == != after unsorted_share"),
        ("unsorted_share = 0.3", 16, "=", "one of < <="),
        ("unsorted_share > 30", 18, "30", "a share from 0 to 1"),
        ("unsorted_share > 101%", 18, "101%", "a share from 0 to 1"),
        ("unsorted_share > 7d", 18, "7d", "a share from 0 to 1"),
        ("unsorted_share > .3", 18, ".", "a share from 0 to 1"),
        ("age > 7", 7, "7", "a duration in whole s, m, h, d or w"),
        ("age > 1.5d", 7, "1.5d", "a duration"),
        ("age > rows", 7, "rows", "a duration"),
        ("rows > 30%", 8, "30%", "a whole number"),
        ("rows > -1", 8, "-", "a whole number"),
        ("rows > 1e6", 8, "1e6", "a whole number"),
        ("0.3 < unsorted_share", 1, "0.3", "not, ("),
        ("stale && stale", 7, "&", "and, or, or the end"),
        ("rows > \u0663", 8, "\u0663", "a whole number"),
    ],
)
def test_a_mistake_is_named_with_its_position(text: str, position: int, found: str, expected: str) -> None:
    """The refusal says where the text stops making sense, what stands there and what was expected."""
    with pytest.raises(InvalidRequest, match=f"at position {position}$|at position {position};") as caught:
        parse_condition(text)
    assert caught.value.code == "bad_condition"
    assert caught.value.found == found
    assert str(caught.value.expected).startswith(expected)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("unsorted > 0.3", "did you mean unsorted_share?"),
        ("ages > 7d", "did you mean age?"),
        ("Stale", "did you mean stale?"),
        ("stale orr stale", "did you mean or?"),
        ("stale AND stale", "did you mean and?"),
        ("zzzzzz > 1", None),
    ],
)
def test_a_name_that_is_nearly_right_gets_a_hint(text: str, hint: str | None) -> None:
    """Names and words that are near a known one are met with it."""
    with pytest.raises(InvalidRequest) as caught:
        parse_condition(text)
    assert caught.value.hint == hint


def test_a_condition_has_bounds() -> None:
    """Depth and length are limited: beyond them is a refusal, never an overflow of the stack."""
    deep = "(" * MAX_DEPTH + "stale" + ")" * MAX_DEPTH
    assert parse_condition(deep).judge(_FACTS).reasons == ("not stale",)
    for text in (f"({deep})", "not " * (MAX_DEPTH + 1) + "stale", "(" * MAX_CHARACTERS):
        with pytest.raises(InvalidRequest, match="position") as caught:
            parse_condition(text)
        assert str(MAX_DEPTH) in str(caught.value.expected)
    with pytest.raises(InvalidRequest, match="too long"):
        parse_condition(" " * MAX_CHARACTERS + "stale")


def test_times_and_durations_are_readable() -> None:
    """Times are UTC to the second; durations have two units, rounded down; what no calendar has stays a number."""
    assert utc_text(NOON_MS + 999) == "2025-06-15T15:06:40Z"
    assert utc_text(10**15) == "1000000000000000 ms"
    spans = (0, 999, 61_000, _HOUR_MS, 25 * _HOUR_MS, 24 * _HOUR_MS + 1_000, 30 * 24 * _HOUR_MS, -5)
    assert [duration_text(span) for span in spans] == ["0s", "0s", "1m 1s", "1h", "1d 1h", "1d", "30d", "0s"]
