"""The steps of a round, kept apart: what one of them meets is no reason for the others to wait."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import structlog

from anew.core.errors import AnewError, Unreachable

_LOG = structlog.get_logger("anew.controller")
_FORGOTTEN_MS = 600_000
_MOST_UNANSWERED = 3
"""After so many steps that the catalog did not answer it is away, and not one step's commit too much for it."""


@dataclass(frozen=True, slots=True)
class Failing:
    """A step that fails round after round (ms since the epoch)."""

    error: str
    since_ms: int
    last_ms: int


@dataclass(slots=True)
class Apart:
    """What went wrong in the steps of one round.

    Attributes:
        progressed: Called before each step: a round of many steps is not one that hangs.
        failed: Step → why it could not be taken, None where it was.
        unforeseen: What nobody foresaw; each says in which step.
        unanswered: How many steps the catalog did not answer.
        away: What did not answer a step: others that need it would wait for it as long, and are not tried.
    """

    progressed: Callable[[], None] = lambda: None
    failed: dict[str, str | None] = field(default_factory=dict)
    unforeseen: list[Exception] = field(default_factory=list)
    unanswered: int = 0
    away: set[Hashable] = field(default_factory=set)

    @contextlib.contextmanager
    def step(self, of: str, needs: Iterable[Hashable] = ()) -> Iterator[None]:
        """One step, of a store or of something else; an error ends it, is logged, and nothing else.

        Args:
            of: What it is called.
            needs: What is `away` for the rest of the round if it does not answer.

        Raises:
            Unreachable: ``catalog_unreachable``, of some steps before too: all that follow would wait for it as long.
        """
        self.progressed()
        self.failed.setdefault(of, None)
        try:
            yield
        except AnewError as error:
            if isinstance(error, Unreachable):
                self.away.update(needs)
            if error.code == "catalog_unreachable":
                self.unanswered += 1
                if self.unanswered >= _MOST_UNANSWERED:
                    raise
            if error.code != "revision_conflict":
                _LOG.warning("step_failed", of=of, **error.to_json())
                self.failed[of] = str(error)
        except Exception as error:  # noqa: BLE001 - raised when all others had their step
            error.add_note(f"in the step of {of}:")
            _LOG.error("step_crashed", of=of, exc_info=error)
            self.unforeseen.append(error)

    def note(self, failing: dict[str, Failing], now_ms: int) -> None:
        """Keep which steps fail, and since when, over rounds; what no round has any more is forgotten after a while."""
        for of, error in self.failed.items():
            if error is None:
                failing.pop(of, None)
            else:
                before = failing.get(of)
                failing[of] = Failing(error, now_ms if before is None else before.since_ms, now_ms)
        for of in [of for of, known in failing.copy().items() if now_ms - known.last_ms > _FORGOTTEN_MS]:
            failing.pop(of, None)

    def end(self) -> None:
        """Raise what nobody foresaw, once all had their step.

        Raises:
            ExceptionGroup: There was any.
        """
        if self.unforeseen:
            raise ExceptionGroup("steps crashed", self.unforeseen)
