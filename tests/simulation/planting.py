"""How a bug is planted: what one is, and the list of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

from tests.simulation.history import History

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug.

    Attributes:
        name: The rule, and what is wrong.
        plant: Takes the rule out.
        found_by: Which invariants may notice.
        seed: Of a search that comes to it early, so that the tests are fast; any other finds it, later.
        among: Which histories are searched; None: all. Some bugs show in one of a thousand of these.
    """

    name: str
    plant: Plant
    found_by: frozenset[str]
    seed: int
    among: SearchStrategy[History] | None


BUGS: list[Bug] = []


def bug(
    name: str, *found_by: str, seed: int = 1, among: SearchStrategy[History] | None = None
) -> Callable[[Plant], Plant]:
    """Keep a bug in the list."""

    def keep(plant: Plant) -> Plant:
        BUGS.append(Bug(name, plant, frozenset(found_by), seed, among))
        return plant

    return keep


@contextmanager
def both(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    """Two patches as one."""
    with patches[0], patches[1]:
        yield
