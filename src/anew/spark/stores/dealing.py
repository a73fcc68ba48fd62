"""Dealing what is to be read to tasks, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Part = TypeVar("_Part")


def share_of(records: int, tasks: int) -> int:
    """How many records each of about so many tasks takes.

    A little more than an equal share, so that what does not divide evenly makes no group of its own.
    """
    return -(-records * 9 // (8 * max(tasks, 1)))


def dealt(parts: Iterable[tuple[_Part, int]], limit: int) -> list[list[_Part]]:
    """Parts with their sizes in order, in groups of at most ``limit``; a part that is larger has a group of its own."""
    groups: list[list[_Part]] = []
    room = 0
    for part, size in parts:
        if size > room:
            groups.append([])
            room = limit
        groups[-1].append(part)
        room -= size
    return groups
