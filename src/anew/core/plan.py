"""What plans of all kinds are: immutable values, made by pure functions; the dry run prints them, the run executes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from anew.core.confighash import value_hash

_START_SECONDS, _MOST_TIMES = 60.0, 2.0
"""What took less may have been start alone: it says nothing of more than so many times its records."""
_PACE_OF = 5
"""From how many of the last rebuilds that were measured the expected pace is taken."""
PACE_LOOKS_AT = 50
"""Among how many of the last rebuilds, of which some have failed and were not measured."""


class Value(BaseModel):
    """Immutable; what it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanValue(Value):
    """What plans of all kinds are: an immutable value; ``id`` is the hash of everything else that is done.

    Attributes:
        asked: The hash of what was asked for, which has another plan at another moment; None: this very plan.
        kind: What kind of rebuild it is of; a subclass names its own.
    """

    id: str = ""
    asked: str | None = None
    kind: str

    @property
    def subject_name(self) -> str:
        """The name of what is rebuilt."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it is of")

    @property
    def defers(self) -> bool:
        """Whether what is made waits until somebody puts it into service."""
        return False

    def summary(self) -> tuple[str, ...]:
        """What people are told before it runs: what is made of what, then why, a line each."""
        return (f"{self.kind} of {self.subject_name}",)

    def shown(self) -> dict[str, Any]:
        """The plan as it is printed, and read again."""
        return self.model_dump(mode="json")

    def sealed(self) -> Self:
        """This plan with the id that its value has."""
        return self.model_copy(update={"id": self.value_id()})

    def value_id(self) -> str:
        """The hash of the plan's value, without the id itself, and without what it was made for."""
        return f"plan-{value_hash(self.model_dump(mode='json', exclude={'id', 'asked'}))[:16]}"

    @property
    def request_hash(self) -> str:
        """By which the same request is known again, whose plan may have been made at another moment (rule R22)."""
        return self.id if self.asked is None else self.asked


class Change(Value):
    """One setting that the new version changes."""

    setting: str
    now: Any
    wanted: Any


class Estimate(Value):
    """What the rebuild is expected to cost; seconds is None while nothing of its size has been measured yet."""

    records: int
    bytes: int
    seconds: float | None = None


class Pace(Value):
    """How an earlier rebuild got on: how many records it read, and how many in a second, its start included."""

    records: int
    per_second: float

    def seconds_for(self, records: int) -> float | None:
        """How long so many records are expected to take; None: what was measured says nothing of them.

        Up to `_START_SECONDS` may have been Spark's start, whatever was read: fewer records take as long, and more than
        a multiple of them any time.
        """
        if records <= 0 or self.records <= 0 or self.per_second <= 0:
            return None
        took_seconds, times = self.records / self.per_second, records / self.records
        if took_seconds < _START_SECONDS:
            if times > _MOST_TIMES:
                return None
            times = max(times, 1.0)
        return round(took_seconds * times, 1)


def pace_of(past: Iterable[tuple[int, float | None]]) -> Pace | None:
    """The pace to expect: that of the largest of the last rebuilds; None where none was measured.

    Args:
        past: How many records each read, and how many in a second if that was measured, newest first.
    """
    measured = (Pace(records=records, per_second=speed) for records, speed in past if speed and records)
    return max(islice(measured, _PACE_OF), key=lambda pace: pace.records, default=None)
