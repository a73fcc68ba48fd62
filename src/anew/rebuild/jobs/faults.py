"""Which records of a batch its function fails on: found by evaluating it on parts of the batch, appending nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from anew.core.errors import AnewError, Failed
from anew.core.jobs.deadletters import DeadLetter, check_dead_letters, find_at_fault, samples
from anew.core.jobs.inputs import Span
from anew.spark.failures import is_of_machines
from anew.spark.jobs.sink import SinkTask, evaluate_frame

_LOG = structlog.get_logger("anew.jobs")
_OF_SPARK = "build_failed"
_MISFIT = "output_misfit"
_OF_A_RECORD = frozenset({_OF_SPARK, _MISFIT, "input_unreadable", "written_at_out_of_range"})
"""Failures of a batch that may lie in a record: the function raised, or what it was given or gave fits no schema."""

_COMES_AGAIN = frozenset({_OF_SPARK, _MISFIT})
"""Of these: what another driver finds too. A time may only be ahead of this machine's clock."""


@dataclass(frozen=True, slots=True)
class Skipping:
    """What leaving out records takes.

    Attributes:
        limit: How many records the generation may leave out; 0 where it stops at the first one, which is looked for
            so that people know it.
        part: What the function makes of parts of its inputs, as a frame of fixed rows; without any part of rows that
            are not there. It may be evaluated any number of times.
    """

    limit: int
    part: Callable[[Sequence[Span]], Any]


@dataclass(frozen=True, slots=True)
class Search:
    """A search in one batch.

    Attributes:
        sink: Where the batch's output goes.
        spans: What the batch reads.
        before: How many records the generation has left out before.
        begin: Is called before each evaluation, which may take as long as the batch does; what it raises ends the
            search.
    """

    skipping: Skipping
    sink: SinkTask
    spans: Sequence[Span]
    before: int
    begin: Callable[[], None]

    def at_fault(self, error: AnewError) -> list[DeadLetter]:
        """The records that a batch failed on.

        Args:
            error: With which it failed.

        Raises:
            Failed: ``too_many_dead_letters``, ``record_failed``; ``each_record_fails``, where it stops at a record.
            AnewError: ``error`` itself where it is no record's; what evaluations raise that is none's either.
        """
        if not self._may_lie_in_a_record(error):
            raise error
        limit = self.skipping.limit
        any_passed = False

        def evaluate(spans: Sequence[Span]) -> str | None:
            nonlocal any_passed
            said = self._evaluate(spans)
            any_passed = any_passed or (said is None and bool(spans))
            return said

        found = find_at_fault(self.spans, evaluate, max(0, limit - self.before))
        if found is None:
            raise error
        name = f"{self.sink.origin.name}@{self.sink.origin.generation}"
        if (
            limit == 0
            and not any_passed
            and all(self._evaluate([one]) is not None for one in samples(self.spans, found))
        ):
            raise _of_all_alike(name, found[0])
        check_dead_letters(name, found, self.before, limit)
        for letter in found:
            _LOG.warning("record_left_out", **letter.model_dump())
        return found

    def _evaluate(self, spans: Sequence[Span]) -> str | None:
        self.begin()
        try:
            evaluate_frame(self.skipping.part(spans), self.sink)
        except AnewError as error:
            if not self._may_lie_in_a_record(error):
                raise
            return str(error.found) if error.code == _OF_SPARK else f"{error.message}: {error.found}"
        return None

    def _may_lie_in_a_record(self, error: AnewError) -> bool:
        """Of a generation that stops: also whether it would come again, and does not name its record itself."""
        return lies_in_a_record(error) and (self.skipping.limit > 0 or error.code in _COMES_AGAIN)


def _of_all_alike(name: str, letter: DeadLetter) -> Failed:
    """Another driver may not find it: so fails all that needs something which is away for a while."""
    return Failed(
        "each_record_fails",
        f"{name} fails on each record that was tried, and without any it does not",
        found=str(letter),
        expected="records that the function can process",
        hint="it is tried again; if the function needs something that is away, bring that back; if it fails by itself, "
        f"mend it, and go on where {name} ended: anew job deploy {name.partition('@')[0]} FUNCTION",
    )


def lies_in_a_record(error: AnewError) -> bool:
    """Whether a batch may have failed by a record; logs that are away and machines that lack something are none."""
    return error.code in _OF_A_RECORD and not (error.code == _OF_SPARK and is_of_machines(error))
