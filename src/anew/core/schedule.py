"""When a scheduled repush starts: a pure function of the schedule, the condition, what was done and what is.

A start becomes *due* when a time of the schedule comes, or when a failed one may be tried again. What is due and
blocked stays due and starts as soon as the block goes; what the condition does not ask for has been considered, and
nothing starts before the schedule's next time. Missed times count once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError
from pydantic import BaseModel, ConfigDict

from anew.core.condition import Facts, parse_condition
from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest
from anew.core.moment import utc_text

CRON_FIELDS = 5
BACKOFF_FIRST_MS = 60_000
BACKOFF_MOST_MS = 6 * 3_600_000

_DOUBLINGS = BACKOFF_MOST_MS.bit_length()
"""More doublings than these change nothing; the power is kept small however often a repush failed."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times at which something is due: a cron expression of five fields, in UTC, to the minute."""

    text: str

    def next_ms(self, after_ms: int) -> int | None:
        """The first time after that one, in ms since the epoch; None when none comes within 50 years."""
        found = next(CronSim(self.text, datetime.fromtimestamp(after_ms // 1000, tz=UTC)), None)
        return None if found is None else int(found.timestamp()) * 1000


class ScheduleState(BaseModel):
    """How far a store's scheduled repush has come.

    Attributes:
        considered_ms: Times of the schedule up to here have been dealt with.
        failures: How many scheduled repushes failed since the last that succeeded.
        retry_at_ms: When the one that failed is due again; 0: none failed.
        request_id: The start that is under way, None when none is.
        started_ms: When the last one was started; 0: none was.
        reasons: Why the last decision was as it was.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    considered_ms: int
    failures: int = 0
    retry_at_ms: int = 0
    request_id: str | None = None
    started_ms: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What may stand in the way of a start.

    Attributes:
        paused: Why no scheduled rebuild starts, None when they may.
        busy: What version is in the making or deferred, None when none is.
        has_version: Whether there is a current version to repush.
        running_scheduled: How many scheduled repushes are under way, over all stores.
        limit: How many may be.
        writes: Whether the store accepts writes.
    """

    paused: str | None
    busy: str | None
    has_version: bool
    running_scheduled: int
    limit: int
    writes: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    Attributes:
        start: Whether to start a repush now, under `request_id_of`; `started` is then the next state.
        state: The next state; the same as before when nothing came to be considered.
        due_ms: For which time a start is due, None when none is.
        next_ms: The next time at which one becomes due, None when there is none.
        reasons: Why: what blocks, each comparison of the condition, or what is waited for.
    """

    start: bool
    state: ScheduleState
    due_ms: int | None
    next_ms: int | None
    reasons: tuple[str, ...]


def parse_schedule(text: str) -> Schedule:
    """The schedule that a cron expression says: minute, hour, day of month, month, day of week.

    Raises:
        InvalidRequest: ``bad_schedule``: it is not one, or none of its times ever comes.
    """
    count = len(text.split())
    if count != CRON_FIELDS:
        raise _bad_schedule(text, f"it has {count} field(s)")
    try:
        first_ms = Schedule(text).next_ms(0)
    except (CronSimError, ValueError) as error:
        raise _bad_schedule(text, str(error)) from error
    if first_ms is None:
        raise _bad_schedule(text, "none of its times ever comes")
    return Schedule(text)


def decide(
    schedule: str,
    condition: str | None,
    facts: Facts,
    state: ScheduleState | None,
    circumstances: Circumstances,
    now_ms: int,
) -> Decision:
    """Whether a scheduled repush starts now. Without a state yet nothing is due: the times to come count.

    A block leaves a start due; a condition that does not hold settles it. What is judged on the current version, or
    before a failed one may be tried again, would say nothing: these blocks come before the condition.

    Raises:
        InvalidRequest: ``bad_schedule``, ``bad_condition``.
    """
    times, judged = parse_schedule(schedule), None if condition is None else parse_condition(condition)
    state = ScheduleState(considered_ms=now_ms) if state is None else state
    due_ms, next_ms = _due_ms(times, state, now_ms), _next_ms(times, state, now_ms)
    if state.request_id is not None:
        under_way = f"{state.request_id} is under way since {utc_text(state.started_ms)}"
        return Decision(False, state, due_ms, next_ms, (under_way,))
    if due_ms is None:
        wait = "nothing comes to be due" if next_ms is None else f"nothing is due before {utc_text(next_ms)}"
        return Decision(False, state, None, next_ms, (wait,))
    too_early = _too_early(state, circumstances, now_ms)
    if too_early is not None:
        return Decision(False, _because(state, (too_early,)), due_ms, next_ms, (too_early,))
    judgement = None if judged is None else judged.judge(facts)
    whys = () if judgement is None else judgement.reasons
    if judgement is not None and not judgement.holds:
        considered = state.model_copy(update={"considered_ms": now_ms})
        return Decision(False, _because(considered, whys), due_ms, _next_ms(times, considered, now_ms), whys)
    blocks = _blocks(circumstances)
    if blocks:
        # Not the comparisons: their values change all the time, and the state with them would.
        return Decision(False, _because(state, blocks), due_ms, next_ms, (*blocks, *whys))
    reasons = (f"due since {utc_text(due_ms)}", *whys)
    return Decision(True, _because(state, reasons), due_ms, next_ms, reasons)


def request_id_of(store_uid: str, due_ms: int, failures: int) -> str:
    """The request id of a start: the same for the same due time and try, so that starting it twice starts it once."""
    return f"scheduled-{value_hash([store_uid, due_ms, failures])}"


def started(state: ScheduleState, request_id: str, now_ms: int) -> ScheduleState:
    """A start is under way: all times up to now are dealt with."""
    return state.model_copy(
        update={"considered_ms": max(state.considered_ms, now_ms), "request_id": request_id, "started_ms": now_ms}
    )


def succeeded(state: ScheduleState) -> ScheduleState:
    """The start that was under way made its version: no failure is remembered."""
    return state.model_copy(update={"failures": 0, "retry_at_ms": 0, "request_id": None})


def failed(state: ScheduleState, now_ms: int) -> ScheduleState:
    """The start that was under way failed: it is due again after 1 min, 2 min, 4 min, … at most 6 h."""
    failures = state.failures + 1
    return state.model_copy(
        update={
            "considered_ms": min(state.considered_ms, now_ms),
            "failures": failures,
            "retry_at_ms": now_ms + min(BACKOFF_MOST_MS, BACKOFF_FIRST_MS << min(failures - 1, _DOUBLINGS)),
            "request_id": None,
        }
    )


def _bad_schedule(text: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        "bad_schedule",
        f"the schedule cannot be understood: {why}",
        found=text,
        expected="five cron fields in UTC: minute hour day-of-month month day-of-week",
        hint="0 3 * * * is each day at 03:00, */30 * * * * each half hour, 0 4 * * SUN each Sunday at 04:00",
    )


def _retry_ms(state: ScheduleState) -> int | None:
    """When the one that failed is due again, None when it was dealt with."""
    return state.retry_at_ms if state.retry_at_ms > state.considered_ms else None


def _due_ms(times: Schedule, state: ScheduleState, now_ms: int) -> int | None:
    at_ms, retry_ms = times.next_ms(state.considered_ms), _retry_ms(state)
    due = [retry_ms] if retry_ms is not None else []
    return min([*due, at_ms] if at_ms is not None and at_ms <= now_ms else due, default=None)


def _next_ms(times: Schedule, state: ScheduleState, now_ms: int) -> int | None:
    retry_ms = _retry_ms(state)
    if retry_ms is not None and retry_ms > now_ms:
        return retry_ms
    return times.next_ms(max(state.considered_ms, now_ms))


def _too_early(state: ScheduleState, circumstances: Circumstances, now_ms: int) -> str | None:
    if not circumstances.has_version:
        return "there is no version to repush"
    if now_ms < state.retry_at_ms:
        return f"failed {state.failures} time(s); tried again at {utc_text(state.retry_at_ms)}"
    return None


def _blocks(circumstances: Circumstances) -> tuple[str, ...]:
    running, limit = circumstances.running_scheduled, circumstances.limit
    blocks = (
        None if circumstances.paused is None else f"paused: {circumstances.paused}",
        None if circumstances.writes else "writes = false",
        circumstances.busy,
        f"{running} scheduled repush(es) are under way, {limit} may be" if running >= limit else None,
    )
    return tuple(block for block in blocks if block is not None)


def _because(state: ScheduleState, reasons: tuple[str, ...]) -> ScheduleState:
    return state.model_copy(update={"reasons": reasons})
