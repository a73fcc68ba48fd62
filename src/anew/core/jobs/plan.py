"""The plan of a generation: what it reads from where, with which code, into what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from anew.core.jobs.code import JobCode
from anew.core.jobs.deadletters import DEFAULT_LIMIT, STOP, OnBadRecord
from anew.core.jobs.inputs import JobInput, Offsets
from anew.core.moment import instant_ms, instant_text
from anew.core.plan import Estimate, PlanValue, Value

REWIND: Literal["rewind"] = "rewind"
Mode = Literal["parallel", "simple", "deploy"]
BeginningState = Literal["empty", "none"]
PARALLEL: Mode = "parallel"
SIMPLE: Mode = "simple"
DEPLOY: Mode = "deploy"

MOST_RECORDS = 10_000_000
"""Of one batch."""


class JobFence(Value):
    """What must still be so when the plan is run; otherwise it is refused (exit 3)."""

    job_uid: str
    live: int | None
    batch: int | None = None
    """The last batch of the live generation, where a deployment goes on behind it."""


class JobPlan(PlanValue):
    """The plan of a generation of a job.

    Attributes:
        mode: ``parallel``: beside the live generation, with an output of its own. ``simple``: in its place and into
            the same output, from an earlier start (case D1). ``deploy``: likewise, from where it ended (case F1).
        generation: The number that it gets.
        start: Input → partition → the first offset that it reads, of every partition.
        start_times: Input → partition → when the record there was appended; None: none is there, or nobody can say.
        begins: How the start was asked for, in words; None: it was not.
        state: What the function remembers to begin with: ``empty``; ``none``: it may keep no state, because it goes on
            in what another one wrote.
        base: What the output holds to begin with: ``empty`` is right from the first record ever alone; ``present``:
            what the live generation wrote.
        output: ``KIND:NAME``.
        is_whole: Whether its output has come of every record that its inputs ever had.
        replaces: The generation whose place it takes; None for the first.
        on_bad_record: What a record does on which the function fails: ``stop`` ends the generation, ``skip`` leaves the
            record out as a dead letter.
        dead_letter_limit: How many records may be left out.
        hold_retention: Whether the topics of its inputs forget nothing until it has caught up (case E4).
        unreachable: What history is gone that the start asks for, a line each.
        downstream: Which jobs read what it writes, and what that means for them, a line each (case N5).
        why: Why it is as it is, a line each.
    """

    kind: Literal["rewind"] = REWIND
    mode: Mode = PARALLEL
    job: str
    generation: int
    code: JobCode
    inputs: tuple[JobInput, ...]
    start: dict[str, Offsets]
    start_times: dict[str, dict[int, int | None]] = Field(default_factory=dict)
    begins: str | None = None
    state: BeginningState = "empty"
    base: Literal["empty", "present"] = "empty"
    output: str
    is_whole: bool = True
    replaces: int | None = None
    master: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    max_records: int = 100_000
    on_bad_record: OnBadRecord = STOP
    dead_letter_limit: int = DEFAULT_LIMIT
    hold_retention: bool = Field(default=False, exclude_if=lambda is_held: not is_held)
    unreachable: tuple[str, ...] = ()
    downstream: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    estimate: Estimate
    fence: JobFence

    @property
    def subject_name(self) -> str:
        """The job's."""
        return self.job

    @property
    def in_place(self) -> bool:
        """Whether it takes the live generation's place, which is at rest, and goes on in what that one wrote."""
        return self.mode != PARALLEL

    @property
    def defers(self) -> bool:
        """A generation serves when somebody cuts over to it, but for the first, and one that is deployed."""
        return self.replaces is not None and not self.in_place

    @model_validator(mode="before")
    @classmethod
    def _as_shown(cls, given: Any) -> Any:
        """A plan that was printed is read again: there each partition has its offset and its time together."""
        start = given.get("start") if isinstance(given, Mapping) else None
        if not isinstance(start, Mapping) or not any(_is_shown(of) for of in start.values()):
            return given
        if not all(_is_shown(of) for of in start.values()):
            raise ValueError("start: of each partition of each input an offset and a time")
        offsets = {name: {p: place.get("offset") for p, place in of.items()} for name, of in start.items()}
        times = {name: {p: _time_ms(place.get("time")) for p, place in of.items()} for name, of in start.items()}
        return {**given, "start": offsets, "start_times": times}

    def shown(self) -> dict[str, Any]:
        """See `PlanValue.shown`; of each partition of the start the offset, and the time of the record there."""
        plain = super().shown()
        times = plain.pop("start_times")
        plain["start"] = {
            name: {p: {"offset": at, "time": _time_text(times.get(name, {}).get(p))} for p, at in of.items()}
            for name, of in plain["start"].items()
        }
        return plain

    def summary(self) -> tuple[str, ...]:
        """What is begun from where, then why."""
        given = [*(f"{k}={v}" for k, v in self.code.params.items()), *(f"file {name}" for name in self.code.files)]
        code = f"{self.code.entry} ({self.code.hash[:12]})" + (f" with {', '.join(given)}" if given else "")
        begins = "" if self.begins is None else f", from {self.begins}"
        into = f"generation {self.generation} of {self.job}, into {self.output}{begins}"
        return (into, f"code {code}", *self.why, *self.unreachable, *self.downstream)


def _is_shown(of: Any) -> bool:
    return isinstance(of, Mapping) and bool(of) and all(isinstance(place, Mapping) for place in of.values())


def _time_text(at_ms: int | None) -> str | None:
    return None if at_ms is None else instant_text(at_ms)


def _time_ms(text: Any) -> int | None:
    return instant_ms(text) if isinstance(text, str) else None
