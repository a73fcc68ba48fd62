"""Looking for a history in which something does not hold, and for the shortest one like it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.strategies import SearchStrategy

from tests.simulation.history import History, histories
from tests.simulation.run import run
from tests.simulation.story import Outcome

Runner = Callable[[History], Outcome]


@dataclass(slots=True)
class Found:
    """What a search found.

    Attributes:
        histories: How many ran, shrinking included.
        history: The shortest one that breaks something; None when none does. ``outcome``: what it came to.
        counts: How often what was done, over all.
    """

    histories: int = 0
    history: History | None = None
    outcome: Outcome | None = None
    counts: Counter[str] = field(default_factory=Counter)


class _Broken(Exception):
    """A history with a breach."""


def search(
    seed_number: int,
    most: int,
    *,
    shrink: bool = True,
    runner: Runner = run,
    among: SearchStrategy[History] | None = None,
) -> Found:
    """Run up to so many histories, until one breaks something; that one is made as short as it can be.

    The seed alone decides which: without the constants that Hypothesis would take out of the modules that happen to be
    imported.
    """
    found = Found()

    @seed(seed_number)
    @settings(
        max_examples=most,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(histories(foul=True) if among is None else among)
    def check(history: History) -> None:
        outcome = runner(history)
        found.histories += 1
        found.counts.update(outcome.counts)
        if outcome.breaches:
            found.history, found.outcome = history, outcome
            raise _Broken(outcome.breaches[0][0])

    with patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None), suppress(_Broken):
        check()
    return found


def report(found: Found) -> str:
    """What was found, for people: how to run it again, what happened, what did not hold."""
    if found.history is None or found.outcome is None:
        return f"{found.histories} histories, nothing broken"
    breaches = [f"BROKEN {name}: {seen}" for name, seen in found.outcome.breaches]
    again = f"python -m tests.simulation --history '{found.history.to_json()}'"
    return "\n".join([*found.outcome.log, *breaches, "run it again:", again])
