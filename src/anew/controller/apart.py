"""The steps of a round, kept apart: what one of them meets is no reason for the others to wait."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog

from anew.core.errors import AnewError

_LOG = structlog.get_logger("anew.controller")


@dataclass(slots=True)
class Apart:
    """What went wrong in the steps of one round.

    Attributes:
        progressed: Called before each step: a round of many steps is not one that hangs.
        unforeseen: What nobody foresaw; each says in which step.
    """

    progressed: Callable[[], None] = lambda: None
    unforeseen: list[Exception] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, of: str) -> Iterator[None]:
        """One step, of a store or of something else; an error ends it, is logged, and nothing else."""
        self.progressed()
        try:
            yield
        except AnewError as error:
            if error.code != "revision_conflict":
                _LOG.warning("step_failed", of=of, **error.to_json())
        except Exception as error:  # noqa: BLE001 - raised when all others had their step
            error.add_note(f"in the step of {of}")
            self.unforeseen.append(error)

    def end(self) -> None:
        """Raise what nobody foresaw, once all had their step.

        Raises:
            ExceptionGroup: There was any.
        """
        if self.unforeseen:
            raise ExceptionGroup("steps crashed", self.unforeseen)
