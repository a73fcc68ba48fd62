"""The fingerprint of a set of rows, kept by bucket: what replicas, base files and logs are compared by.

A row's hash is `anew.core.hashing.row_hashes`: key, schema, uncompressed value and stamp, and not how the value is
stored. The fingerprint is the sum of the hashes modulo 2**64, so that it knows no order, and equal rows that were made
in different ways have equal fingerprints. A bucket holds the keys whose hash begins with the same byte: two sets that
differ in a few keys differ in a few buckets, and only these need to be looked at key by key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.hashing import Hashes, key_hashes
from anew.core.ledger import MODULUS

BUCKETS = 256
_BUCKET_SHIFT = np.uint64(56)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A set of rows: how many are alive, how many are tombstones, and count and sum of hashes of each bucket."""

    rows: int
    tombstones: int
    counts: tuple[int, ...]
    sums: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum of all row hashes modulo 2**64."""
        return sum(self.sums) % MODULUS

    def differing(self, other: Fingerprint) -> list[int]:
        """The buckets in which the two sets differ."""
        mine, others = zip(self.counts, self.sums, strict=True), zip(other.counts, other.sums, strict=True)
        return [bucket for bucket, (one, two) in enumerate(zip(mine, others, strict=True)) if one != two]


@dataclass(slots=True)
class FingerprintSum:
    """The fingerprint of rows that come batch by batch, in any order."""

    _rows: int = 0
    _tombstones: int = 0
    _counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BUCKETS, dtype=np.int64))
    _sums: Hashes = field(default_factory=lambda: np.zeros(BUCKETS, dtype=np.uint64))

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows (columns ``key``, ``value`` and ``hash`` of `anew.core.rows.ROWS`)."""
        dead = rows.column("value").null_count
        self._rows += rows.num_rows - dead
        self._tombstones += dead
        buckets = buckets_of(rows.column("key"))
        self._counts += np.bincount(buckets, minlength=BUCKETS)
        np.add.at(self._sums, buckets, rows.column("hash").to_numpy().view(np.uint64))

    def result(self) -> Fingerprint:
        """The fingerprint of what was added so far."""
        return Fingerprint(self._rows, self._tombstones, tuple(self._counts.tolist()), tuple(self._sums.tolist()))


def buckets_of(keys: pa.Array[Any]) -> npt.NDArray[np.int64]:
    """The bucket of each key, shape (n,): the first byte of its hash."""
    return np.asarray(key_hashes(keys) >> _BUCKET_SHIFT, dtype=np.int64)


def in_buckets(keys: pa.Array[Any], buckets: frozenset[int]) -> npt.NDArray[np.int64]:
    """The indices of the keys that are in one of the buckets, ascending."""
    return np.isin(buckets_of(keys), sorted(buckets)).nonzero()[0]
