"""What a round has read, sorted out by the replicas that it is for, until they apply it.

A batch costs a replica about the same whether it has one record or a hundred, and most feed partitions have few new
records at a time. So a replica applies what was read of all its feed partitions at once, as soon as that is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anew.core.admission import Admitted, first_undecided
from anew.core.arrow import take
from anew.core.partition import Partitioner, Partitions, XxHash64Partitioner, units_of
from anew.log.interface import LogRead
from anew.node.stores.holding import Holding, ReplicaKey
from anew.storage.portions import BATCH_BYTES, BATCH_RECORDS, Offsets, Portion


class Gathered:
    """Portions by replica, in the order in which they were read."""

    def __init__(self) -> None:
        self._portions: dict[ReplicaKey, tuple[Holding, list[Portion]]] = {}
        self._records = 0
        self._bytes = 0

    def note(self, read: LogRead) -> None:
        """Count what was read: it may stay in memory for as long as any portion waits."""
        self._records += read.records.num_rows
        self._bytes += read.records.nbytes

    def add(self, holding: Holding, portion: Portion) -> None:
        """Keep a portion for a replica."""
        self._portions.setdefault(holding.key, (holding, []))[1].append(portion)

    @property
    def is_much(self) -> bool:
        """Whether it is as much as one batch writes: then nothing is won by waiting for more."""
        return self._records >= BATCH_RECORDS or self._bytes >= BATCH_BYTES

    def take(self, replicas: Iterable[ReplicaKey]) -> list[tuple[Holding, list[Portion]]]:
        """What there is for these replicas, once."""
        taken = [self._portions.pop(key) for key in replicas if key in self._portions]
        if not self._portions:
            self._records = self._bytes = 0
        return taken

    def take_all(self) -> list[tuple[Holding, list[Portion]]]:
        """What there is for any replica, once."""
        return self.take(list(self._portions))


class SharedRows:
    """The admitted rows of one read, and whose they are: what several replicas ask is computed once."""

    def __init__(self, admitted: Admitted) -> None:
        self._admitted = admitted
        self._placed: dict[tuple[Partitioner, int], _Placed] = {}
        self._undecided: dict[tuple[int, ...], tuple[int, int] | None] = {}

    def first_undecided(self, holding: Holding) -> tuple[int, int] | None:
        """As `anew.core.admission.first_undecided`, with the schemas that a replica's store has."""
        schemas = tuple(holding.store.schemas)
        if schemas not in self._undecided:
            self._undecided[schemas] = first_undecided(self._admitted, schemas)
        return self._undecided[schemas]

    def of(self, holding: Holding, below: int | None) -> Kept:
        """The rows that a replica keeps, in the log's order; those below a log offset alone where one is given."""
        partitioner, factor = holding.partitioner, holding.version.config.amplification_factor
        if (partitioner, factor) not in self._placed:
            self._placed[partitioner, factor] = _place(self._admitted, partitioner, factor)
        kept = self._placed[partitioner, factor].of(holding.key.partition * factor + holding.key.sub_partition)
        return kept if below is None else kept.slice(0, int(np.searchsorted(kept.offsets, below)))


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows, and where each lies in the log; they are not copied."""

    rows: pa.RecordBatch
    offsets: Offsets

    def slice(self, first: int, after: int) -> Kept:
        """Those from the first on and before another."""
        return Kept(self.rows.slice(first, after - first), self.offsets[first:after])


@dataclass(frozen=True, slots=True)
class _Placed:
    """Rows in the order of the units that keep them, and in the log's order within each; the units, shape (rows,)."""

    kept: Kept
    units: Partitions

    def of(self, unit: int) -> Kept:
        """The rows of one unit."""
        first, after = np.searchsorted(self.units, (unit, unit + 1)).tolist()
        return self.kept.slice(first, after)


def _place(admitted: Admitted, partitioner: Partitioner, factor: int) -> _Placed:
    """Put rows in the order of `anew.core.partition.units_of`."""
    keys: Any = admitted.rows.column("key")
    if isinstance(partitioner, XxHash64Partitioner):
        partitions = partitioner.of_hashes(admitted.key_hashes)
    else:
        partitions = partitioner.of_all(keys)
    units = units_of(partitions, keys, factor)
    if (units == units[:1]).all():
        # Mostly a feed partition is of one replica alone: then nothing needs to be copied.
        return _Placed(Kept(admitted.rows, admitted.offsets), units)
    order = np.argsort(units, kind="stable")
    return _Placed(Kept(take(admitted.rows, order), admitted.offsets[order]), units[order])
