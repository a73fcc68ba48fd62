"""The search for records at fault finds exactly these, within its bound, however the ranges lie."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from anew.core.jobs.deadletters import DeadLetter, find_at_fault, without
from anew.core.jobs.inputs import Span

_Place = tuple[str, int, int]


def _places(spans: Sequence[Span]) -> list[_Place]:
    return [(span.input, span.partition, offset) for span in spans for offset in range(span.begin, span.end)]


@st.composite
def _spans(draw: st.DrawFn) -> list[Span]:
    """Ranges of some partitions of two inputs, one of each."""
    parts = draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=6, unique=True))
    found = []
    for name, partition in sorted(parts):
        begin, count = draw(st.integers(0, 1_000)), draw(st.integers(1, 60))
        found.append(Span(input=name, partition=partition, begin=begin, end=begin + count))
    return found


class _Function:
    """A function that fails where it is given one of some records; it counts its evaluations."""

    def __init__(self, bad: set[_Place]) -> None:
        """It fails on these."""
        self.bad, self.evaluations = bad, 0

    def __call__(self, spans: Sequence[Span]) -> str | None:
        """See `Evaluate`."""
        self.evaluations += 1
        found = [place for place in _places(spans) if place in self.bad]
        return f"{found[0]} is bad\nTraceback" if found else None


def _found(letters: Sequence[DeadLetter]) -> list[_Place]:
    return [(letter.input, letter.partition, letter.offset) for letter in letters]


@given(spans=_spans(), data=st.data(), most=st.integers(1, 12))
def test_exactly_the_records_at_fault_are_found(spans: list[Span], data: st.DataObject, most: int) -> None:
    """In their order, each with its own reason; of too many one more than may be; never with more evaluations."""
    places = _places(spans)
    bad = data.draw(st.sets(st.sampled_from(places), min_size=1, max_size=15))
    function = _Function(bad)
    letters = find_at_fault(spans, function, most)
    assert letters is not None
    assert _found(letters) == [place for place in places if place in bad][: most + 1]
    assert [letter.reason for letter in letters] == [f"{place} is bad" for place in _found(letters)]
    deep = ceil(log2(len(places))) if len(places) > 1 else 0
    assert function.evaluations <= 2 + 2 * min(len(bad), most + 1) * deep
    rest = without(spans, letters)
    assert _places(rest) == [place for place in places if place not in _found(letters)]
    if len(bad) <= most:
        assert function(rest) is None


@given(spans=_spans(), data=st.data())
def test_a_failure_that_does_not_get_smaller_is_no_records(spans: list[Span], data: st.DataObject) -> None:
    """Code that always fails, one that fails on so many records at once, and one that fails once: nothing is named."""
    count = len(_places(spans))
    assert find_at_fault(spans, lambda _: "always", 5) is None
    assert find_at_fault(spans, lambda _: None, 5) is None
    if count > 1:
        most = data.draw(st.integers(1, count - 1))
        # Of a range that fails both halves pass at last, but for ranges of one record.
        fails = max(most, 1)
        assert find_at_fault(spans, lambda part: "memory" if len(_places(part)) > fails else None, 5) is None
