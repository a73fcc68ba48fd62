"""Which partition a key belongs to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.arrow import bytes_list
from anew.core.hashing import key_hash, key_hashes

Partitions = npt.NDArray[np.int32]


class Partitioner(Protocol):
    """Maps keys to partitions; the same on Spark, on nodes and in clients.

    A pure function of the key's bytes, called once per batch on hot paths; it must not block.
    """

    @property
    def count(self) -> int:
        """How many partitions there are."""

    def of(self, key: bytes) -> int:
        """The partition of one key, in [0, count)."""

    def of_all(self, keys: pa.BinaryArray) -> Partitions:
        """The partition of each key, int32 of shape (n,), each in [0, count)."""


@dataclass(frozen=True, slots=True)
class XxHash64Partitioner:
    """``pmod(xxhash64(key), count)`` with Spark's seed and signed remainder, so that Spark computes it natively."""

    count: int

    def of(self, key: bytes) -> int:
        """The partition of one key."""
        return _signed(key_hash(key)) % self.count

    def of_all(self, keys: pa.BinaryArray) -> Partitions:
        """The partition of each key, shape (n,)."""
        return self.of_hashes(key_hashes(bytes_list(keys)))

    def of_hashes(self, hashes: npt.NDArray[np.uint64]) -> Partitions:
        """The partition of keys whose hashes are known, shape (n,)."""
        return np.asarray(np.mod(hashes.view(np.int64), self.count), dtype=np.int32)


def partitioner_named(name: str, count: int) -> Partitioner:
    """The partitioner of a version's configuration.

    Raises:
        ValueError: The name is not one that this release knows.
    """
    if name != "xxhash64":
        raise ValueError(f"unknown partitioner {name!r}")
    return XxHash64Partitioner(count)


def feed_partitions_of(partition: int, partition_count: int, feed_partition_count: int) -> range:
    """The feed partitions that can hold keys of one version partition, when both sides hash keys alike.

    A hash h is in version partition ``h mod n`` and in feed partition ``h mod m``; both leave the same remainder
    modulo ``gcd(n, m)`` (design 2.2). So traffic per node shrinks as nodes are added.
    """
    step = math.gcd(partition_count, feed_partition_count)
    return range(partition % step, feed_partition_count, step)


def _signed(unsigned: int) -> int:
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned
