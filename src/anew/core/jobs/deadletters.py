"""Records on which a job's function fails: how they are found in a batch, and when there are too many of them.

A generation declares what such a record does (`OnBadRecord`). With ``skip`` it becomes a dead letter: the batch runs
again without it, and the record of the batch names it. The search (`find_at_fault`) halves the batch's ranges, and
evaluates the function on each half, until the ranges that fail hold one offset each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from anew.core.errors import Failed
from anew.core.jobs.inputs import Offsets, Span, next_offset
from anew.core.plan import Value

OnBadRecord = Literal["stop", "skip"]
STOP: OnBadRecord = "stop"
SKIP: OnBadRecord = "skip"
DEFAULT_LIMIT, MOST_LETTERS = 100, 1_000
"""How many dead letters a generation may have, unless it says otherwise, and at most: a batch's record names them."""
_REASON_CHARACTERS = 300
_SHOWN_LETTERS = 3

LetterPlace = tuple[int, str, int, int]
"""Generation, input, partition and offset: by these dead letters of a job are known, and ordered."""


class DeadLetter(Value):
    """A record of an input that a generation has left out.

    Attributes:
        reason: Why, in one line of at most 300 characters.
    """

    input: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.input}:{self.partition}={self.offset}: {self.reason}"


class KeptLetter(Value):
    """A dead letter as the catalog keeps it.

    Attributes:
        batch: The batch that left it out.
        at_ms: When that was recorded.
        replayed_at_ms: When its record was last given to its topic again; None: never.
    """

    generation: int
    batch: int
    letter: DeadLetter
    at_ms: int
    replayed_at_ms: int | None = None

    @property
    def place(self) -> LetterPlace:
        """By which it is known."""
        return self.generation, self.letter.input, self.letter.partition, self.letter.offset


Evaluate = Callable[[Sequence[Span]], str | None]
"""Why a function fails on parts of its inputs, in words; None: it does not.

It raises where the failure cannot lie in a record, and the search ends with that. It may be called again with the same
parts, and appends nothing.
"""


def spans_between(start: Mapping[str, Offsets], end: Mapping[str, Offsets]) -> list[Span]:
    """What lies between two positions, by input and partition; partitions without records are left out."""
    found = (
        Span(input=name, partition=partition, begin=next_offset(start.get(name, {}), partition), end=offset)
        for name, of in sorted(end.items())
        for partition, offset in sorted(of.items())
    )
    return [span for span in found if span.count > 0]


def without(spans: Sequence[Span], letters: Iterable[DeadLetter]) -> list[Span]:
    """The spans without the offsets of dead letters, in the same order."""
    left_out: dict[tuple[str, int], list[int]] = {}
    for letter in letters:
        left_out.setdefault((letter.input, letter.partition), []).append(letter.offset)
    kept = []
    for span in spans:
        begin = span.begin
        for offset in sorted(left_out.get((span.input, span.partition), ())):
            if begin <= offset < span.end:
                kept.append(_cut(span, begin, offset))
                begin = offset + 1
        kept.append(_cut(span, begin, span.end))
    return [span for span in kept if span.count > 0]


def find_at_fault(spans: Sequence[Span], evaluate: Evaluate, most: int) -> list[DeadLetter] | None:
    """The offsets of spans on which a function fails, in their order; one more than ``most`` where there are more.

    Of n offsets it takes at most 2 + 2 · (most + 1) · ⌈log2 n⌉ evaluations.

    Args:
        spans: Parts of inputs on which the function failed.
        evaluate: See `Evaluate`.
        most: How many may be found.

    Returns:
        None: the failure is not a record's. The function fails without any record too, or not again on all of them, or
        it fails on a range of which each half passes, as one that runs out of memory does.
    """
    if evaluate(()) is not None:
        return None
    why = evaluate(spans)
    found: list[DeadLetter] = []
    return found if why is not None and _search(spans, why, evaluate, most, found) else None


def samples(spans: Sequence[Span], besides: Iterable[DeadLetter]) -> list[Span]:
    """Up to four single offsets of spans: the first, the last and two between, without those of dead letters."""
    rest = without(spans, besides)
    total = sum(span.count for span in rest)
    places = sorted({0, total // 3, 2 * total // 3, total - 1}) if total else []
    found = []
    for place in places:
        left = place
        for span in rest:
            if left < span.count:
                found.append(_cut(span, span.begin + left, span.begin + left + 1))
                break
            left -= span.count
    return found


def _search(spans: Sequence[Span], why: str, evaluate: Evaluate, most: int, found: list[DeadLetter]) -> bool:
    """Add what is at fault in spans that fail; False: their halves do not."""
    if sum(span.count for span in spans) == 1:
        (span,) = spans
        found.append(DeadLetter(input=span.input, partition=span.partition, offset=span.begin, reason=one_line(why)))
        return True
    is_smaller = False
    for half in _halves(spans):
        if len(found) > most:
            break
        said = evaluate(half)
        if said is not None:
            is_smaller = True
            if not _search(half, said, evaluate, most, found):
                return False
    return is_smaller


def _halves(spans: Sequence[Span]) -> tuple[list[Span], list[Span]]:
    """Two parts with about as many offsets each, in the same order."""
    left = sum(span.count for span in spans) // 2
    first: list[Span] = []
    second: list[Span] = []
    for span in spans:
        middle = span.begin + min(span.count, left)
        left -= middle - span.begin
        first.append(_cut(span, span.begin, middle))
        second.append(_cut(span, middle, span.end))
    return [span for span in first if span.count], [span for span in second if span.count]


def _cut(span: Span, begin: int, end: int) -> Span:
    return span.model_copy(update={"begin": begin, "end": end})


def one_line(text: str) -> str:
    """The first line of a reason, at most 300 characters: what follows may be a traceback with the user's data."""
    first = text.strip().partition("\n")[0].strip()
    return first if len(first) <= _REASON_CHARACTERS else f"{first[: _REASON_CHARACTERS - 1]}…"


def check_dead_letters(name: str, letters: Sequence[DeadLetter], before: int, limit: int) -> None:
    """Raise where a generation would have more dead letters than it may have.

    Args:
        name: What people call the generation, ``delay_class@1``.
        letters: The new ones; of more than the limit allows, the first ones.
        before: How many it has.
        limit: How many it may have; 0 where it stops at the first one.

    Raises:
        Failed: ``too_many_dead_letters``; ``record_failed``, where it stops at the first one.
    """
    if before + len(letters) <= limit:
        return
    shown = "; ".join(str(letter) for letter in letters[:_SHOWN_LETTERS])
    if limit == 0:
        raise Failed(
            "record_failed",
            f"{name} stops at a record on which it fails",
            found=shown,
            expected="records that the function can process",
            hint=(
                f"mend the function, and go on where {name} ended: anew job deploy {name.partition('@')[0]} FUNCTION; "
                "if such records may be left out: with --on-bad-record skip"
            ),
        )
    raise Failed(
        "too_many_dead_letters",
        f"{name} would leave out more records than it may",
        found=f"{before} left out before, and at least {len(letters)} more: {shown}",
        expected=f"at most {limit} in one generation",
        hint=(
            f"mend the function, and go on where {name} ended: anew job deploy {name.partition('@')[0]} FUNCTION; "
            "if the records may be left out: with a higher --dead-letter-limit"
        ),
    )
