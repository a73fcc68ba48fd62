"""Scheduled repushes over random courses of events: blocks, conditions, failures and absences in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.condition import Facts, parse_condition
from anew.core.errors import InvalidRequest
from anew.core.moment import UNITS_MS
from anew.core.schedule import (
    BACKOFF_FIRST_MS,
    BACKOFF_MOST_MS,
    Circumstances,
    ScheduleState,
    decide,
    failed,
    parse_schedule,
    request_id_of,
    started,
    succeeded,
)
from tests.property.core.histories import MODEST

_Parsed = TypeVar("_Parsed")
_MINUTE_MS = UNITS_MS["m"]
_MIDNIGHT_MS = 1_750_032_000_000
_FACTS = Facts(stale=True, unsorted_share=0.5, tombstone_share=0.0, age_ms=0, rows=1, feed_records=0)
_FREE = Circumstances(paused=None, busy=None, has_version=True, running_scheduled=0, limit=2, writes=True)
_periods = st.sampled_from([1, 5, 15, 30])
"""Minutes; the schedule's times are then the multiples of the period."""

_circumstances = st.one_of(
    st.just(_FREE),
    st.builds(
        Circumstances,
        paused=st.sampled_from([None, None, None, "paused"]),
        busy=st.sampled_from([None, None, None, "busy"]),
        has_version=st.sampled_from([True, True, True, False]),
        running_scheduled=st.integers(0, 2),
        limit=st.integers(1, 2),
        writes=st.sampled_from([True, True, True, False]),
    ),
)
_looks = st.tuples(
    st.sampled_from([0, 1, _MINUTE_MS - 1, _MINUTE_MS, 20 * _MINUTE_MS, 90 * _MINUTE_MS]),
    _circumstances,
    st.sampled_from([True, True, False]),
    st.sampled_from(["succeeds", "succeeds", "fails", "goes on"]),
)
_Look = tuple[int, Circumstances, bool, str]


def _free(circumstances: Circumstances) -> bool:
    unhindered = replace(circumstances, running_scheduled=0, limit=2) == _FREE
    return unhindered and circumstances.running_scheduled < circumstances.limit


@pytest.mark.case("stores:H9", "stores:H10")
@MODEST
@given(_periods, st.lists(_looks, min_size=20, max_size=40))
def test_each_due_time_starts_at_most_one_repush(minutes: int, looks: list[_Look]) -> None:
    """No due time and no request id starts twice, nothing starts while it is blocked, under way or not asked for, and
    what is due, free and asked for starts at this very look."""
    now_ms, period_ms = _MIDNIGHT_MS + 1, minutes * _MINUTE_MS
    state, due_times, ids, failures = ScheduleState(considered_ms=now_ms), set[int](), set[str](), 0
    for wait_ms, circumstances, stale, outcome in looks:
        now_ms += wait_ms
        facts, was = replace(_FACTS, stale=stale), state
        decision = decide(f"*/{minutes} * * * *", "stale", facts, state, circumstances, now_ms)
        assert decision == decide(f"*/{minutes} * * * *", "stale", facts, state, circumstances, now_ms)
        time_came = now_ms // period_ms > was.considered_ms // period_ms
        retry_came = was.considered_ms < was.retry_at_ms <= now_ms
        backs_off = now_ms < was.retry_at_ms
        free = _free(circumstances) and was.request_id is None and not backs_off
        assert decision.start == (free and stale and (time_came or retry_came))
        assert decision.next_ms is not None
        assert decision.next_ms > now_ms
        state = decision.state
        if decision.start:
            assert decision.due_ms is not None
            request_id = request_id_of("uid", decision.due_ms, state.failures)
            assert decision.due_ms not in due_times
            assert request_id not in ids
            assert was.considered_ms < decision.due_ms <= now_ms
            due_times.add(decision.due_ms)
            ids.add(request_id)
            state = started(state, request_id, now_ms)
        else:
            settled = (time_came or retry_came) and not stale and circumstances.has_version and not backs_off
            moved = settled and was.request_id is None
            assert state.considered_ms == (now_ms if moved else was.considered_ms)
            assert (state.failures, state.retry_at_ms) == (was.failures, was.retry_at_ms)
        if state.request_id is not None and outcome != "goes on":
            failures += outcome == "fails"
            state = succeeded(state) if outcome == "succeeds" else failed(state, now_ms)
    assert len(due_times) <= (now_ms - _MIDNIGHT_MS) // period_ms + failures


@MODEST
@given(_periods, st.integers(0, 10**6), st.integers(0, 10**11))
def test_missed_times_collapse_into_one(minutes: int, seen_ms: int, absence_ms: int) -> None:
    """After any absence one start deals with all that was missed: nothing is due until the schedule's next time."""
    schedule, period_ms = f"*/{minutes} * * * *", minutes * _MINUTE_MS
    state, now_ms = ScheduleState(considered_ms=_MIDNIGHT_MS + seen_ms), _MIDNIGHT_MS + seen_ms + absence_ms
    decision = decide(schedule, None, _FACTS, state, _FREE, now_ms)
    assert decision.start == (now_ms // period_ms > state.considered_ms // period_ms)
    if decision.start:
        done = succeeded(started(decision.state, "request", now_ms))
        next_ms = (now_ms // period_ms + 1) * period_ms
        assert not decide(schedule, None, _FACTS, done, _FREE, next_ms - 1).start
        assert decide(schedule, None, _FACTS, done, _FREE, next_ms).start


@MODEST
@given(st.integers(0, 60), st.integers(0, 10**13))
def test_the_backoff_grows_and_is_bounded(failures: int, now_ms: int) -> None:
    """Each failure waits at least as long as the one before, the first a minute, none more than six hours."""
    state, waits = ScheduleState(considered_ms=now_ms), []
    for _ in range(failures + 1):
        state = failed(state, now_ms)
        waits.append(state.retry_at_ms - now_ms)
    assert waits == sorted(waits)
    assert (waits[0], max(waits) <= BACKOFF_MOST_MS) == (BACKOFF_FIRST_MS, True)


def _or_refusal(parse: Callable[[str], _Parsed], text: str) -> _Parsed | InvalidRequest:
    try:
        return parse(text)
    except InvalidRequest as error:
        return error


_fields = st.text("0123456789*/-,LW#SUNMO ", max_size=12)


@MODEST
@given(st.one_of(st.text(max_size=40), st.lists(_fields, min_size=5, max_size=5).map(" ".join)))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    """Whatever is given as a schedule either has a next time or is refused; nothing else escapes."""
    schedule = _or_refusal(parse_schedule, text)
    if isinstance(schedule, InvalidRequest):
        assert schedule.code == "bad_schedule"
    else:
        next_ms = schedule.next_ms(_MIDNIGHT_MS)
        assert next_ms is None or next_ms > _MIDNIGHT_MS


_comparisons = st.sampled_from(
    ["stale", "unsorted_share > 0.3", "tombstone_share <= 5%", "age > 7d", "rows != 3", "feed_records == 0"]
)
_conditions = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda part: f"not ({part})"),
    ),
    max_leaves=8,
)
_facts = st.builds(
    Facts,
    stale=st.booleans(),
    unsorted_share=st.sampled_from([0.0, 0.3, 0.31]),
    tombstone_share=st.sampled_from([0.0, 0.05, 0.06]),
    age_ms=st.sampled_from([0, 7 * UNITS_MS["d"], 7 * UNITS_MS["d"] + 1]),
    rows=st.integers(2, 4),
    feed_records=st.integers(0, 1),
)


@MODEST
@given(_conditions, _facts)
def test_a_condition_means_what_the_same_words_mean_in_python(text: str, facts: Facts) -> None:
    """Any nesting of comparisons, and, or, not holds exactly when the same expression over the facts does."""
    literals = text.replace("5%", "0.05").replace("7d", str(7 * UNITS_MS["d"])).replace("age", "age_ms")
    names = {name: getattr(facts, name) for name in Facts.__slots__}
    expected = eval(literals, {"__builtins__": {}}, names)
    judgement = parse_condition(text).judge(facts)
    assert judgement.holds is bool(expected)
    assert len(judgement.reasons) == len(set(judgement.reasons)) >= 1


@MODEST
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(["stale", "and", "or", "not", "(", ")", "age", "rows", ">", "==", "7d", "3", "30%", "%"]),
            max_size=80,
        ).map(" ".join),
    )
)
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    """Whatever is given as a condition can be judged or is refused at a position within it; nothing else escapes."""
    condition = _or_refusal(parse_condition, text)
    if isinstance(condition, InvalidRequest):
        assert condition.code == "bad_condition"
        assert condition.message.startswith("the condition cannot be understood at position ")
        assert 1 <= int(condition.message.rsplit(" ", 1)[1]) <= len(text) + 1
    else:
        assert condition.judge(_FACTS).reasons
