"""When a repush can leave the base where it is: source and target place keys so that files map onto files.

Under ``pmod(hash, n)`` a key of target partition p is in a source partition p' with p ≡ p' modulo the smaller count
when one count divides the other; the same holds for sub-partitions under their own hash. So the files fall into
*groups* that exchange no key: one task merges the sorted files of a group with that group's feed records and writes the
group's target files. Only the feed records are shuffled, and nothing of the base is sorted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anew.core.feed import Feed
from anew.core.partitioners import XXHASH64, is_custom
from anew.core.partitioning import partitioner_identity
from anew.core.stores.plan import LogSplit
from anew.core.stores.store import Frozen

MOST_FILES_OF_A_TASK = 16
"""A task buffers a row group per file that it writes and a batch per file that it reads."""


@dataclass(frozen=True, slots=True)
class Groups:
    """How sub-partitions fall into groups.

    Attributes:
        partitions: The smaller of both partition counts.
        sub_partitions: The smaller of both amplification factors.
    """

    partitions: int
    sub_partitions: int

    @property
    def count(self) -> int:
        """How many groups there are; they are numbered from 0."""
        return self.partitions * self.sub_partitions

    def of(self, partition: int, sub_partition: int) -> int:
        """The group of a sub-partition, of source and target alike."""
        return (partition % self.partitions) * self.sub_partitions + sub_partition % self.sub_partitions


def groups_of(source: Frozen, target: Frozen) -> Groups:
    """The groups of a pair of configurations that `why_not_copartitioned` has nothing against."""
    return Groups(
        min(source.partitions, target.partitions), min(source.amplification_factor, target.amplification_factor)
    )


def why_not_copartitioned(source: Frozen, target: Frozen) -> str | None:
    """Why the base must be shuffled, or None when its files can stay as they lie."""
    if partitioner_identity(source) != partitioner_identity(target):
        return "the partitioner changes"
    if source.partitions != target.partitions and is_custom(target.partitioner):
        return f"nothing is known of how {target.partitioner} places keys among another number of partitions"
    if not _divide(source.partitions, target.partitions):
        return f"neither of {source.partitions} and {target.partitions} partitions divides the other"
    if not _divide(source.amplification_factor, target.amplification_factor):
        return (
            f"neither of the amplification factors {source.amplification_factor} and {target.amplification_factor} "
            "divides the other"
        )
    fan = _fan(source.partitions, target.partitions) * _fan(source.amplification_factor, target.amplification_factor)
    if fan > MOST_FILES_OF_A_TASK:
        return f"one task would hold {fan} files open, more than {MOST_FILES_OF_A_TASK}"
    return None


def feed_splits(
    groups: Groups, target: Frozen, feeds: Iterable[Feed], ranges: Sequence[LogSplit], max_records: int
) -> tuple[tuple[LogSplit, ...], ...] | None:
    """The log ranges that each group's task reads by itself, so that nothing is shuffled; None where that cannot be.

    It can be where version and feed place keys alike and every feed partition holds keys of one group alone: its hash's
    remainder modulo the feed's partition count decides the one modulo the number of groups. No task may read more than
    ``max_records`` (case B7).
    """
    alike = target.partitioner == XXHASH64 and groups.sub_partitions == 1
    if not alike or any(f.partitioner != XXHASH64 or f.partitions % groups.partitions for f in feeds):
        return None
    found: list[list[LogSplit]] = [[] for _ in range(groups.count)]
    for split in ranges:
        found[split.partition % groups.partitions].append(split)
    most = max((sum(split.end - split.begin for split in splits) for splits in found), default=0)
    return tuple(tuple(splits) for splits in found) if most <= max_records else None


def _fan(one: int, other: int) -> int:
    return max(one, other) // min(one, other)


def _divide(one: int, other: int) -> bool:
    return max(one, other) % min(one, other) == 0
