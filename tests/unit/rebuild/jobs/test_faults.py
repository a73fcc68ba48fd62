"""What a generation makes of a batch that fails, where it stops at the first bad record."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from anew.core.errors import AnewError, Failed
from anew.core.jobs.inputs import Span
from anew.core.stamp import Origin, OriginKind
from anew.rebuild.jobs import faults
from anew.rebuild.jobs.driving import is_for_good
from anew.rebuild.jobs.faults import Search, Skipping

_FAILED = Failed("build_failed", "Spark failed", found="ValueError: no")


def _search(monkeypatch: pytest.MonkeyPatch, spans: Sequence[Span], bad: set[int] | None) -> AnewError:
    """What a search ends in, where these offsets fail; None: all do."""

    def evaluate(read: Sequence[Span], _sink: Any) -> None:
        offsets = {offset for span in read for offset in range(span.begin, span.end)}
        if offsets if bad is None else offsets & bad:
            raise _FAILED

    monkeypatch.setattr(faults, "evaluate_frame", evaluate)
    sink: Any = SimpleNamespace(origin=Origin(OriginKind.JOB, "clicks", 3))
    search = Search(Skipping(0, lambda read: read), sink, spans, 0, lambda: None)
    with pytest.raises(AnewError) as caught:
        search.at_fault(_FAILED)
    return caught.value


@pytest.mark.parametrize("bad", [0, 7, 99])
def test_a_record_that_fails_beside_others_that_pass_ends_it_for_good(
    monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    """Another driver would find it too."""
    error = _search(monkeypatch, [Span(input="a", partition=0, begin=0, end=100)], {bad})
    assert (error.code, error.found, is_for_good(error)) == ("record_failed", f"a:0={bad}: ValueError: no", True)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_where_every_record_fails_it_is_tried_again(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A service that the function asks may be away: the record is named, and is not to blame alone."""
    error = _search(monkeypatch, [Span(input="a", partition=0, begin=5, end=5 + count)], None)
    assert (error.code, error.found, is_for_good(error)) == ("each_record_fails", "a:0=5: ValueError: no", False)


def test_a_time_ahead_of_the_clock_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the machine may be behind: nothing is looked for."""
    ahead = Failed("written_at_out_of_range", "too far ahead")
    sink: Any = SimpleNamespace(origin=Origin(OriginKind.JOB, "clicks", 3))
    monkeypatch.setattr(faults, "evaluate_frame", lambda *_: pytest.fail("nothing is evaluated"))
    with pytest.raises(Failed) as caught:
        Search(Skipping(0, lambda read: read), sink, [], 0, lambda: None).at_fault(ahead)
    assert caught.value is ahead
