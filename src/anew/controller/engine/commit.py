"""The one way to change the catalog: load, decide, compare and swap; again when somebody else was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anew.catalog.change import Change, Operation, Put
from anew.controller.engine.context import Context
from anew.core.errors import Refused

_ATTEMPTS = 20
_T = TypeVar("_T")


def commit(context: Context, operation: Operation, *puts: Put) -> None:
    """Commit a change once, and wake those who wait for the catalog to move.

    Raises:
        Refused: ``revision_conflict``: somebody else was faster; and as `Catalog.commit`.
    """
    context.catalog.commit(Change(operation, puts))
    context.watch.notify()


def again_on_conflict(act: Callable[[], _T]) -> _T:
    """Load, decide and commit; again when somebody else was faster.

    Raises:
        Refused: What ``act`` refuses; ``revision_conflict`` after many losses.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return act()
        except Refused as error:
            if error.code != "revision_conflict" or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt raises or returns")
