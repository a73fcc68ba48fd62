"""Which partition a key belongs to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from anew.core.hashing import SEED, hash_binary, key_hash, key_hashes

_SUB_SEED = xxhash.xxh64_intdigest((1).to_bytes(4, "little"), SEED)
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
        return self.of_hashes(key_hashes(keys))

    def of_hashes(self, hashes: npt.NDArray[np.uint64]) -> Partitions:
        """The partition of keys whose hashes are known, shape (n,)."""
        return np.asarray(np.mod(hashes.view(np.int64), self.count), dtype=np.int32)


def sub_partitions_of(keys: pa.BinaryArray, factor: int) -> Partitions:
    """The sub-partition of each key, int32 of shape (n,): ``pmod(xxhash64(1, key), factor)``.

    Another hash than the partition's, so that no sub-partition stays empty where the two counts share a factor.
    Equal to XXH64 seeded with Spark's hash of the integer 1.
    """
    if factor == 1:
        return np.zeros(len(keys), dtype=np.int32)
    hashes = hash_binary(keys, np.full(len(keys), _SUB_SEED, dtype=np.uint64))
    return np.asarray(np.mod(hashes.view(np.int64), factor), dtype=np.int32)


def units_of(partitions: Partitions, keys: pa.BinaryArray, factor: int) -> Partitions:
    """Partition and sub-partition of each key as one number, ``partition × factor + sub-partition``, shape (n,)."""
    return partitions if factor == 1 else partitions * factor + sub_partitions_of(keys, factor)


def sub_partition_of(key: bytes, factor: int) -> int:
    """The sub-partition of one key; `sub_partitions_of` is the same for many."""
    return 0 if factor == 1 else _signed(xxhash.xxh64_intdigest(key, _SUB_SEED)) % factor


def feed_partitions_of(partition: int, partition_count: int, feed_partition_count: int) -> range:
    """The feed partitions that can hold keys of one version partition, when both sides hash keys alike.

    A hash h is in version partition ``h mod n`` and in feed partition ``h mod m``; both leave the same remainder
    modulo ``gcd(n, m)`` (docs/architecture.md, *Partitions, sub-partitions, groups*). So
    traffic per node shrinks as nodes are added.
    """
    step = math.gcd(partition_count, feed_partition_count)
    return range(partition % step, feed_partition_count, step)


def feed_partitions_read(
    partition: int, partition_count: int, feed_partition_count: int, *, alike: bool
) -> Iterable[int]:
    """The feed partitions that a version partition's replica reads: those that can hold its keys.

    All of them where ``alike`` is False, because version and feed place keys in different ways.
    """
    if alike:
        return feed_partitions_of(partition, partition_count, feed_partition_count)
    return range(feed_partition_count)


def _signed(unsigned: int) -> int:
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned
