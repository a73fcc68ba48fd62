"""Scheduled repushes, case by case: what is due, what blocks it, what settles it, and what follows a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anew.core.condition import Facts
from anew.core.errors import InvalidRequest
from anew.core.moment import UNITS_MS, utc_text
from anew.core.schedule import (
    BACKOFF_MOST_MS,
    Circumstances,
    Decision,
    ScheduleState,
    decide,
    failed,
    parse_schedule,
    request_id_of,
    started,
    succeeded,
)

_MINUTE_MS, _HOUR_MS, _DAY_MS = UNITS_MS["m"], UNITS_MS["h"], UNITS_MS["d"]
_MIDNIGHT_MS = 1_750_032_000_000
_THREE_MS = _MIDNIGHT_MS + 3 * _HOUR_MS
_DAILY = "0 3 * * *"
_FACTS = Facts(stale=False, unsorted_share=0.12, tombstone_share=0.0, age_ms=_DAY_MS, rows=10, feed_records=1)
_FREE = Circumstances(paused=None, busy=None, has_version=True, running_scheduled=0, limit=1, writes=True)
_SEEN = ScheduleState(considered_ms=_MIDNIGHT_MS)


def _decide(now_ms: int, state: ScheduleState | None = _SEEN, condition: str | None = None, **blocks: Any) -> Decision:
    return decide(_DAILY, condition, _FACTS, state, replace(_FREE, **blocks), now_ms)


def test_nothing_is_due_before_its_time() -> None:
    """Up to the last ms before the schedule's time nothing starts, and the state stays as it was; then it starts."""
    early = _decide(_THREE_MS - 1)
    assert (early.start, early.state, early.due_ms, early.next_ms) == (False, _SEEN, None, _THREE_MS)
    assert early.reasons == (f"nothing is due before {utc_text(_THREE_MS)}",)
    due = _decide(_THREE_MS)
    assert (due.start, due.due_ms, due.next_ms) == (True, _THREE_MS, _THREE_MS + _DAY_MS)
    assert due.reasons == due.state.reasons == ("due since 2025-06-16T03:00:00Z",)


def test_the_first_look_makes_nothing_due() -> None:
    """A store that gets a schedule waits for the schedule's next time, even when one comes at this very ms."""
    for now_ms in (_THREE_MS, _THREE_MS + 5):
        first = _decide(now_ms, None)
        assert (first.start, first.state) == (False, ScheduleState(considered_ms=now_ms))
        assert first.next_ms == _THREE_MS + _DAY_MS


def test_missed_times_count_once() -> None:
    """After days of absence one repush starts, for the first of the times, and then the next time is waited for."""
    late_ms = _THREE_MS + 5 * _DAY_MS + 7
    decision = _decide(late_ms)
    assert (decision.start, decision.due_ms) == (True, _THREE_MS)
    done = succeeded(started(decision.state, "request", late_ms))
    after = _decide(late_ms + 1, done)
    assert (after.start, after.due_ms, after.next_ms) == (False, None, _THREE_MS + 6 * _DAY_MS)


def test_a_condition_that_does_not_hold_settles_the_time() -> None:
    """Nothing starts before the schedule's next time, even when the condition comes to hold meanwhile."""
    decision = _decide(_THREE_MS, condition="unsorted_share > 0.3")
    assert (decision.start, decision.due_ms) == (False, _THREE_MS)
    assert decision.state == ScheduleState(considered_ms=_THREE_MS, reasons=("unsorted_share is 0.12, not > 0.3",))
    later = _decide(_THREE_MS + _HOUR_MS, decision.state, condition="unsorted_share > 0.1")
    assert (later.start, later.due_ms) == (False, None)
    next_day = _decide(_THREE_MS + _DAY_MS, decision.state, condition="unsorted_share > 0.1")
    assert next_day.start
    assert next_day.reasons == ("due since 2025-06-17T03:00:00Z", "unsorted_share is 0.12, > 0.1")


@pytest.mark.case("stores:H9", "stores:H10")
@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ({"paused": "rolled back from 9 to 7"}, "paused: rolled back from 9 to 7"),
        ({"busy": "version 9 is deferred"}, "version 9 is deferred"),
        ({"busy": "a full push makes version 9"}, "a full push makes version 9"),
        ({"running_scheduled": 1}, "1 scheduled repush(es) are under way, 1 may be"),
        ({"writes": False}, "writes = false"),
        ({"has_version": False}, "there is no version to repush"),
    ],
)
def test_what_is_blocked_stays_due(blocks: dict[str, Any], reason: str) -> None:
    """A pause, a push, a deferred version, the limit or a missing version hold a start until they go."""
    held = _decide(_THREE_MS, condition="rows > 1", **blocks)
    assert (held.start, held.due_ms, held.state) == (False, _THREE_MS, _SEEN.model_copy(update={"reasons": (reason,)}))
    assert held.reasons[0] == reason
    assert _decide(_THREE_MS + 1, held.state, condition="rows > 1").start


def test_every_block_is_shown() -> None:
    """Several blocks are all named, with the values that the condition found."""
    held = _decide(_THREE_MS, condition="rows > 1", paused="upkeep", busy="version 9 is building")
    assert held.reasons == ("paused: upkeep", "version 9 is building", "rows is 10, > 1")


def test_a_version_is_asked_for_before_the_condition() -> None:
    """Without a version the condition is not judged: its facts would be about nothing, and would settle the time."""
    assert _decide(_THREE_MS, condition="rows > 100", has_version=False).state.considered_ms == _MIDNIGHT_MS


def test_one_start_at_a_time() -> None:
    """While a start is under way nothing starts, however many times come; afterwards what came meanwhile is due."""
    running = started(_decide(_THREE_MS).state, "request-1", _THREE_MS)
    assert (running.request_id, running.started_ms, running.considered_ms) == ("request-1", _THREE_MS, _THREE_MS)
    held = _decide(_THREE_MS + 3 * _DAY_MS, running)
    assert (held.start, held.state) == (False, running)
    assert held.reasons == ("request-1 is under way since 2025-06-16T03:00:00Z",)
    assert _decide(_THREE_MS + 1, succeeded(running)).start is False
    assert _decide(_THREE_MS + 3 * _DAY_MS, succeeded(running)).start is True


def test_a_failure_is_tried_again_after_a_while() -> None:
    """The retry waits for no time of the schedule, but for the end of its backoff, with another request id."""
    running = started(_decide(_THREE_MS).state, "request-1", _THREE_MS)
    ended_ms = _THREE_MS + 10 * _MINUTE_MS
    state = failed(running, ended_ms)
    assert (state.failures, state.retry_at_ms, state.request_id) == (1, ended_ms + _MINUTE_MS, None)
    held = _decide(state.retry_at_ms - 1, state)
    assert (held.start, held.due_ms, held.next_ms) == (False, state.retry_at_ms, state.retry_at_ms)
    assert held.reasons == held.state.reasons == ("failed 1 time(s); tried again at 2025-06-16T03:11:00Z",)
    retry = _decide(state.retry_at_ms, state)
    assert (retry.start, retry.due_ms) == (True, state.retry_at_ms)
    again = failed(started(retry.state, "request-2", state.retry_at_ms), state.retry_at_ms)
    assert (again.failures, again.retry_at_ms) == (2, state.retry_at_ms + 2 * _MINUTE_MS)
    done = succeeded(started(again, "request-3", again.retry_at_ms))
    assert (done.failures, done.retry_at_ms, done.request_id) == (0, 0, None)


def test_a_time_of_the_schedule_does_not_shorten_the_backoff() -> None:
    """A time that comes during a backoff waits for its end."""
    state = ScheduleState(considered_ms=_MIDNIGHT_MS, failures=9, retry_at_ms=_THREE_MS + _HOUR_MS)
    assert not _decide(_THREE_MS + 1, state).start
    assert _decide(_THREE_MS + _HOUR_MS, state).start


def test_a_retry_asks_the_condition_too() -> None:
    """A retry that the condition no longer asks for is settled; the failures stay counted until one succeeds."""
    state = failed(started(_SEEN, "request-1", _THREE_MS), _THREE_MS)
    settled = _decide(state.retry_at_ms, state, condition="stale")
    assert (settled.start, settled.state.failures, settled.state.reasons) == (False, 1, ("not stale",))
    assert settled.next_ms == _THREE_MS + _DAY_MS
    assert _decide(state.retry_at_ms + _HOUR_MS, settled.state).due_ms is None
    assert _decide(_THREE_MS + _DAY_MS, settled.state).start


def test_a_failure_is_due_again_when_the_clock_went_back() -> None:
    """A clock that was ahead at the start does not swallow the retry."""
    state = failed(started(_SEEN, "request-1", _THREE_MS + _DAY_MS), _THREE_MS)
    assert _decide(_THREE_MS + _MINUTE_MS, state).start


def test_request_ids_name_store_time_and_try() -> None:
    """The same start has the same id; another store, time or try has another; it can be a file's name."""
    ids = {request_id_of(*parts) for parts in [("u", 1, 0), ("u", 1, 0), ("v", 1, 0), ("u", 2, 0), ("u", 1, 1)]}
    assert len(ids) == 4
    assert all(each.replace("-", "").isalnum() and len(each) < 100 for each in ids)


def test_however_often_it_fails_the_wait_is_bounded() -> None:
    """The wait grows to six hours and no further."""
    assert failed(ScheduleState(considered_ms=0, failures=10**6), 0).retry_at_ms == BACKOFF_MOST_MS


@pytest.mark.parametrize(
    ("text", "next_text"),
    [
        ("0 3 * * *", "2025-06-16T03:00:00Z"),
        ("*/30 * * * *", "2025-06-16T00:30:00Z"),
        ("0  4\t* * SUN", "2025-06-22T04:00:00Z"),
        ("15 2 1 jan *", "2026-01-01T02:15:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 0 L * *", "2025-06-30T00:00:00Z"),
    ],
)
def test_a_schedule_is_cron_in_utc(text: str, next_text: str) -> None:
    """Five fields with the usual forms give the times that they say."""
    next_ms = parse_schedule(text).next_ms(_MIDNIGHT_MS)
    assert next_ms is not None
    assert utc_text(next_ms) == next_text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 field"),
        ("0 3 * *", "4 field"),
        ("0 0 3 * * *", "6 field"),
        ("@daily", "1 field"),
        ("60 3 * * *", "Bad minute"),
        ("0 24 * * *", "Bad hour"),
        ("0 3 0 * *", "Bad day-of-month"),
        ("0 3 * 13 *", "Bad month"),
        ("0 3 * * MOO", "Bad day-of-week"),
        ("0 3 30 2 *", "Bad day-of-month"),
        ("*/0 * * * *", "Bad minute"),
        (f"{'9' * 5000} * * * *", "digits"),
        ("0 0 */8 2 MON#5", "none of its times ever comes"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, why: str) -> None:
    """The refusal says why, what was found, and what a schedule looks like."""
    with pytest.raises(InvalidRequest, match=why) as caught:
        parse_schedule(text)
    assert (caught.value.code, caught.value.found) == ("bad_schedule", text)
    assert "five cron fields in UTC" in str(caught.value.expected)
