"""The merge of one key's records: a last-writer-wins register (rules R6 and R11).

This is the definition, record by record; `anew.core.reduce` is the same over Arrow columns, and a property
test holds the two together. The merge is commutative over feeds, idempotent, and gives the same cell for any
split of a history into a base and the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anew.core.stamp import Stamp


@dataclass(frozen=True, slots=True)
class Cell:
    """What one key holds: a value, or the tombstone of a delete, with the stamp that won.

    Attributes:
        stamp: The winner's stamp; its time may have been raised by R6.
        value: The stored bytes of the value, None for a tombstone.
        schema_id: The value schema that wrote it; 0 for a tombstone.
    """

    stamp: Stamp
    value: bytes | None
    schema_id: int = 0

    @property
    def tombstone(self) -> bool:
        """Whether this is the record of a delete."""
        return self.value is None


def merge(held: Cell | None, incoming: Cell) -> Cell:
    """The cell after ``incoming`` meets ``held`` (R6).

    Among append-timed records of one feed partition the later offset wins and carries the greater of the two
    times, because a broker's clock can step back; everything else compares by ``Stamp.rank``.
    """
    if held is None:
        return incoming
    if not held.stamp.shares_clock_with(incoming.stamp):
        return incoming if incoming.stamp.rank > held.stamp.rank else held
    later = incoming if incoming.stamp.offset > held.stamp.offset else held
    time_ms = max(held.stamp.time_ms, incoming.stamp.time_ms)
    if later.stamp.time_ms == time_ms:
        return later
    return replace(later, stamp=replace(later.stamp, time_ms=time_ms))


def merge_all(cells: Iterable[Cell]) -> Cell | None:
    """The cell after all of ``cells``, each feed partition's records in offset order."""
    held: Cell | None = None
    for cell in cells:
        held = merge(held, cell)
    return held


def expire(cell: Cell, ttl_floor_ms: int) -> Cell:
    """The cell as it reads under a time-to-live floor (R11).

    A cell written after 0 and before the floor is a tombstone with its own stamp, so that it goes on hiding
    what is older. It is judged on the merged time: otherwise the split of a history into base and rest would
    decide what expires.
    """
    if cell.value is not None and 0 < cell.stamp.time_ms < ttl_floor_ms:
        return replace(cell, value=None, schema_id=0)
    return cell
