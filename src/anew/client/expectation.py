"""What replicas must hold at a position: base ⊕ feeds, computed from the deep store and the log without any node.

The merge is `anew.core.sortedruns`, the floors are the node's: a winner that meets no base row and is older than the
tombstone floor is not there (rule R12), an expired one is a tombstone with its own stamp (rule R11), and nothing else
goes. Base rows bring the hashes that they were written with. Here each is computed again from the row's content: a
proof that believes a number which was carried along proves nothing (rule R19).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.codec.compression import Compressor
from anew.core.admission import admit, with_hashes
from anew.core.arrow import concat, replaced, take
from anew.core.dropping import DropFloors, buried, drop, expired_among
from anew.core.errors import Failed
from anew.core.feed import Feed, FeedPartition, Feeds, PositionMap
from anew.core.fingerprint import Fingerprint, FingerprintSum, in_buckets
from anew.core.hashing import row_hashes
from anew.core.partition import XxHash64Partitioner, sub_partitions_of
from anew.core.partitioning import partitioner_of
from anew.core.reduce import HELD, ReduceCounts, sort_rows
from anew.core.rows import ROWS
from anew.core.sortedruns import RunMerger
from anew.core.stores.feedreads import feed_partitions_applied, start_of
from anew.core.stores.store import Version
from anew.deepstore.interface import DeepStore
from anew.log.interface import Log, topic_partition
from anew.segments.base import REPAIR, BaseReader
from anew.segments.dictionary import codec_of
from anew.segments.manifest import BasePart, Manifest, parse_manifest

Place = tuple[int, int]
"""A (partition, sub-partition)."""

_READ_RECORDS = 10_000
_DAMAGE = frozenset({"checksum_mismatch", "file_missing", "rows_altered", "corrupt_value", "foreign_records"})
_PACKED = "packed"
_FLAGS: list[Any] = [pa.field(HELD, pa.bool_(), nullable=False), pa.field(_PACKED, pa.bool_(), nullable=False)]
_MERGED = pa.schema([*ROWS, *_FLAGS])
"""`ROWS`, whether there is a base row of the key, and whether the row's own value is compressed."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What each (partition, sub-partition) of one version must hold at a position; made by `expectation_of`.

    Attributes:
        version: The version, sealed.
        start: From where it applies its feeds.
        feeds: The store's feeds, with what is known of them.
        position: Up to where the feeds count.
    """

    version: Version
    start: PositionMap
    feeds: Feeds
    position: PositionMap
    _manifest: Manifest
    _codec: Compressor
    _deep_store: DeepStore
    _log: Log

    def fingerprints(self) -> Iterator[tuple[Place, Fingerprint]]:
        """The fingerprint of each place, in order. Held in memory: the feed records of one partition.

        Raises:
            Failed: ``fingerprint_mismatch``: a base file is not what its manifest says; ``offset_out_of_range``,
                ``topic_lost``, ``log_ended_early``: the log no longer holds what a replica applied.
            Unreachable: Log or deep store does not answer.
        """
        factor = self.version.config.amplification_factor
        for partition in range(self.version.config.partitions):
            fed = self._fed(partition)
            for sub in range(factor):
                found = FingerprintSum()
                for rows in self._merged((partition, sub), fed[sub]):
                    found.add(rows)
                yield (partition, sub), found.result()

    def rows(self, place: Place, buckets: frozenset[int]) -> Iterator[pa.RecordBatch]:
        """The rows of some buckets of one place in key order, columns ``ROWS``.

        Raises:
            As `fingerprints`.
        """
        for rows in self._merged(place, self._fed(place[0])[place[1]]):
            yield take(rows, in_buckets(rows.column("key"), buckets))

    def position_of(self, partition: int) -> PositionMap:
        """The part of the position that a replica of a partition is at."""
        applied = feed_partitions_applied(self.version, self.feeds.feeds, partition)
        return PositionMap({at: self.position[at] for _, at in applied})

    def _merged(self, place: Place, fed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        subs = [sub for sub in self._manifest.files_of(place[0]) if sub.sub_partition == place[1]]
        runs = [run for sub in subs for run in sub.runs]
        if len(runs) > 1:
            raise AssertionError("one run is written; several may share keys, which the merge of runs does not expect")
        merger = RunMerger(self._rehash, ReduceCounts())
        base = [_marked(self._base_rows(run), is_base=True) for run in runs]
        for winners in merger.merge(base, _marked(iter([fed]), is_base=False), _MERGED):
            yield self._as_held(winners)

    def _as_held(self, winners: pa.RecordBatch) -> pa.RecordBatch:
        """What a replica holds of the winners: none that R12 turns away, tombstones where R11 says so."""
        version = self.version
        rows = drop(winners, DropFloors(rejected_below_ms=version.tombstone_floor_ms)).rows
        alive = rows.column("value").is_valid().to_numpy(zero_copy_only=False)
        expired = expired_among(rows, version.ttl_floor_ms) & alive
        if not expired.any():
            return rows
        rows = buried(rows, expired)
        hashes = rows.column("hash").to_numpy().copy()
        hashes[expired] = row_hashes(take(rows, expired.nonzero()[0])).view(np.int64)
        return replaced(rows, "hash", pa.array(hashes))

    def _rehash(self, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        packed: list[Any] = rows.column(_PACKED).to_pylist()
        values: list[bytes | None] = [
            self._codec.decompress(value) if compressed and value is not None else value
            for value, compressed in zip(rows.column("value").to_pylist(), packed, strict=True)
        ]
        return row_hashes(replaced(rows, "value", pa.array(values, pa.binary())))

    def _base_rows(self, run: Iterable[BasePart]) -> Iterator[pa.RecordBatch]:
        base = BaseReader(self._deep_store, lambda: self._log)
        for part in run:
            with _told_as_mismatch(part):
                yield from base.proved_rows(part, self._codec)

    def _fed(self, partition: int) -> list[pa.RecordBatch]:
        """The feed rows of each sub-partition of a partition, in the order that the merge wants."""
        factor = self.version.config.amplification_factor
        empty = pa.RecordBatch.from_pylist([], schema=ROWS)
        found = [[empty] for _ in range(factor)]
        for feed, at in feed_partitions_applied(self.version, self.feeds.feeds, partition):
            for rows in self._applied(feed, at, partition):
                keys: Any = rows.column("key")
                subs = sub_partitions_of(keys, factor)
                for sub in range(factor):
                    found[sub].append(take(rows, (subs == sub).nonzero()[0]) if factor > 1 else rows)
        return [sort_rows(concat(parts)) for parts in found]

    def _applied(self, feed: Feed, at: FeedPartition, partition: int) -> Iterator[pa.RecordBatch]:
        """The records of a feed partition from start to position whose keys belong to a partition, with hashes."""
        partitioner = partitioner_of(self.version.config)
        start, end = start_of(self.start, feed, at), self.position[at]
        offset = start
        while offset < end:
            topic = topic_partition(feed, at.partition)
            read = self._log.read(topic, offset, min(_READ_RECORDS, end - offset), end)
            if read.next_offset == offset:
                raise Failed(
                    "log_ended_early",
                    f"{at} ends before the position that was read from it",
                    found=offset,
                    expected=end,
                    hint="anew doctor",
                )
            offset = read.next_offset
            admitted = admit(feed, at.partition, start, read.records, self.feeds.schemas)
            keys: Any = admitted.rows.column("key")
            placed = (
                partitioner.of_hashes(admitted.key_hashes)
                if isinstance(partitioner, XxHash64Partitioner)
                else partitioner.of_all(keys)
            )
            yield with_hashes(take(admitted.rows, (placed == partition).nonzero()[0]))


def expectation_of(
    version: Version, fabric: str, feeds: Feeds, position: PositionMap, deep_store: DeepStore, log: Log
) -> Expectation:
    """Read the manifest of a version that is sealed in the fabric, whose deep store and log these are.

    Raises:
        Failed: ``checksum_mismatch``, ``bad_manifest``, ``missing_dictionary``, ``file_missing``.
        Unreachable: The deep store does not answer.
    """
    there = version.fabrics[fabric]
    if there.manifest is None:
        raise AssertionError("a version that is served is sealed")
    manifest = parse_manifest(deep_store.get(there.manifest.path), there.manifest)
    codec = codec_of(deep_store, manifest)
    return Expectation(version, there.start, feeds, position, manifest, codec, deep_store, log)


@contextmanager
def _told_as_mismatch(part: BasePart) -> Iterator[None]:
    """What is wrong with a part of a base, as what it means: it is not what its manifest says."""
    try:
        yield
    except Failed as error:
        if error.code not in _DAMAGE:
            raise
        raise Failed(
            "fingerprint_mismatch",
            f"{part.path} does not hold what its manifest says: {error.message}",
            found=error.found,
            expected=error.expected,
            hint=REPAIR,
        ) from error


def _marked(batches: Iterator[pa.RecordBatch], *, is_base: bool) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        flags: Any = pa.array(np.full(rows.num_rows, is_base))
        yield pa.RecordBatch.from_arrays([*rows.select(ROWS.names).columns, flags, flags], schema=_MERGED)
