"""The one way to change the catalog: load, decide, compare and swap; again when somebody else was faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, Self, TypeVar

from anew.catalog.change import Change, Operation, Put
from anew.controller.engine.context import Context
from anew.core.errors import NotFound, Refused
from anew.core.suggest import did_you_mean

_ATTEMPTS = 20


class Document(Protocol):
    """What the catalog keeps with a revision."""

    @property
    def revision(self) -> int:
        """Grows with each change."""

    def model_copy(self, *, update: dict[str, object]) -> Self:
        """The same with some other values."""


_T = TypeVar("_T")
_D = TypeVar("_D", bound=Document)


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


def change_document(
    context: Context,
    operation: Operation,
    load: Callable[[], _D],
    put: Callable[[_D, int], Put],
    change: Callable[[_D], tuple[_D, tuple[Put, ...]]],
) -> _D:
    """Load, change by a pure function, commit by compare-and-swap; again when somebody else was faster.

    Args:
        context: The controller's collaborators.
        operation: The line of history.
        load: Reads the newest one.
        put: What replaces one of a revision.
        change: Returns the next one and what is to be committed with it; the very same one and nothing else commits
            nothing.

    Raises:
        Refused, NotFound: What ``load`` and ``change`` raise; ``revision_conflict`` after many losses.
    """

    def changed() -> _D:
        present = load()
        after, puts = change(present)
        if after == present and not puts:
            return present
        commit(context, operation, put(after, present.revision), *puts)
        return after.model_copy(update={"revision": present.revision + 1})

    return again_on_conflict(changed)


def found_by_name(kind: str, name: str, found: _T | None, known: Callable[[], Iterable[str]]) -> _T:
    """What was found under a name.

    Raises:
        NotFound: ``unknown_KIND``, with the nearest of the names that are known.
    """
    if found is None:
        names = list(known())
        raise NotFound(
            f"unknown_{kind}",
            f"there is no {kind} {name}",
            found=name,
            expected=", ".join(names) if names else "none is there yet",
            hint=did_you_mean(name, names),
        )
    return found
