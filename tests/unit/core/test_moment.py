"""Times and durations, as people read and write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.moment import LAST_MS, duration_ms, instant_ms, instant_text


@given(st.integers(min_value=0, max_value=LAST_MS))
def test_an_instant_is_read_as_it_was_written(at_ms: int) -> None:
    """To the millisecond, up to the end of the calendar."""
    assert instant_ms(instant_text(at_ms)) == at_ms


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2013-12-03T12:00Z", 1_386_072_000_000),
        ("2013-12-03T13:00:00+01:00", 1_386_072_000_000),
        ("2013-12-03T12:00:00.250Z", 1_386_072_000_250),
        ("2013-12-03T12:00", None),
        ("2013-12-03", None),
        ("noon", None),
        ("", None),
    ],
)
def test_a_time_names_its_zone(text: str, at_ms: int | None) -> None:
    """One without a zone would be another moment on another machine."""
    assert instant_ms(text) == at_ms


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("36h", 129_600_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("7", None),
        ("d", None),
        ("-1d", None),
        ("1.5h", None),
        ("9" * 19 + "d", None),
    ],
)
def test_a_duration_is_a_whole_number_of_one_unit(text: str, span_ms: int | None) -> None:
    """Seconds, minutes, hours, days or weeks; a number without a unit is none, nor one of endless digits."""
    assert duration_ms(text) == span_ms
