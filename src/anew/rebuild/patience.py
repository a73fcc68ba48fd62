"""Asking again while what is asked is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anew.api.waiting import wait_seconds
from anew.core.errors import OutcomeUnknown, Unreachable

_PAUSE_SECONDS = 0.1
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Waiting:
    """How a driver waits.

    Attributes:
        clock_seconds: A monotonic clock.
        pause: Waits for so many seconds.
    """

    clock_seconds: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = wait_seconds


def patiently(
    ask: Callable[[], _Answer],
    patience_seconds: float,
    clock_seconds: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = wait_seconds,
) -> _Answer:
    """What the controller, or the deep store, answers to something that may be asked again.

    Raises:
        Unreachable, OutcomeUnknown: There was no answer for so long.
    """
    deadline = clock_seconds() + patience_seconds
    while True:
        try:
            return ask()
        except (OutcomeUnknown, Unreachable):
            if clock_seconds() > deadline:
                raise
            pause(_PAUSE_SECONDS)
