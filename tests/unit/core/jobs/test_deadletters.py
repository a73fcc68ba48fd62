"""Which parts of a batch are evaluated, what a dead letter says, and when there are too many of them."""

from __future__ import annotations

import pytest

from anew.core.errors import Failed
from anew.core.jobs.deadletters import (
    DeadLetter,
    check_dead_letters,
    find_at_fault,
    one_line,
    samples,
    spans_between,
    without,
)
from anew.core.jobs.inputs import Span


def _letter(offset: int, partition: int = 0) -> DeadLetter:
    return DeadLetter(input="events", partition=partition, offset=offset, reason="ValueError: no delay")


def test_a_batch_is_what_lies_between_two_positions() -> None:
    """By input and partition; a partition without records is left out, and one that is new begins at 0."""
    found = spans_between({"b": {0: 3, 1: 5}}, {"b": {1: 5, 0: 7}, "a": {0: 2}})
    assert [(span.input, span.partition, span.begin, span.end) for span in found] == [("a", 0, 0, 2), ("b", 0, 3, 7)]


def test_what_is_left_of_a_span_keeps_its_order() -> None:
    """Dead letters at its edges, side by side, and of another partition."""
    span = Span(input="events", partition=0, begin=10, end=20)
    left = without([span], [_letter(19), _letter(14), _letter(13), _letter(10), _letter(12, partition=1), _letter(30)])
    assert [(each.begin, each.end) for each in left] == [(11, 13), (15, 19)]
    assert without([span], [_letter(offset) for offset in range(10, 20)]) == []


def test_the_search_ends_with_what_is_not_a_records() -> None:
    """A log that is away in the middle of it: the error goes through."""

    def evaluate(spans: object) -> str | None:
        if spans:
            raise Failed("log_stalled", "the log is away")
        return None

    with pytest.raises(Failed, match="the log is away"):
        find_at_fault([Span(input="events", partition=0, begin=0, end=9)], evaluate, 5)


def test_samples_are_single_offsets_all_over_a_batch() -> None:
    """Of what is left without dead letters; of few, each once."""
    spans = [Span(input="a", partition=0, begin=10, end=12), Span(input="b", partition=1, begin=0, end=10)]
    found = [(span.input, span.begin, span.count) for span in samples(spans, [])]
    assert found == [("a", 10, 1), ("b", 2, 1), ("b", 6, 1), ("b", 9, 1)]
    letter = DeadLetter(input="a", partition=0, offset=10, reason="no")
    assert [(span.input, span.begin) for span in samples(spans[:1], [letter])] == [("a", 11)]
    assert samples([], []) == []


def test_a_reason_is_one_line() -> None:
    """What follows may be a traceback with lines of data; it is cut where it is long."""
    assert one_line("\n ValueError: no delay\n  File 'x.py'\n") == "ValueError: no delay"
    assert (len(one_line("x" * 999)), one_line("x" * 999)[-1]) == (300, "…")


@pytest.mark.parametrize(("before", "new", "limit"), [(3, 2, 4), (0, 3, 2)])
def test_more_than_the_limit_is_refused_with_the_first_places(before: int, new: int, limit: int) -> None:
    """The error has the limit, the first positions, and what to do; up to the limit nothing is said."""
    letters = [_letter(offset) for offset in range(new)]
    with pytest.raises(Failed) as caught:
        check_dead_letters("classify@2", letters, before, limit)
    assert caught.value.code == "too_many_dead_letters"
    assert "events:0=0: ValueError: no delay" in str(caught.value.found)
    assert f"at most {limit} in" in str(caught.value.expected)
    assert "anew job deploy classify FUNCTION" in str(caught.value.hint)
    check_dead_letters("classify@2", letters, before, before + new)


def test_who_leaves_nothing_out_stops_at_the_first_record() -> None:
    """The error says which it is, and why."""
    with pytest.raises(Failed) as caught:
        check_dead_letters("classify@2", [_letter(7)], 0, 0)
    assert (caught.value.code, caught.value.found) == ("record_failed", "events:0=7: ValueError: no delay")
    assert "--on-bad-record skip" in str(caught.value.hint)
