"""What the loader process does for a verification: fingerprints of checkpoints, and the keys behind a difference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.codec.compression import Compressor, compressor
from anew.core.arrow import bytes_list, take
from anew.core.feed import Feed, FeedKind, FeedPartition, PositionMap
from anew.core.fingerprint import Fingerprint, FingerprintSum, in_buckets
from anew.deepstore.open import open_deep_store
from anew.segments.basefile import BaseFileWriter
from anew.segments.manifest import BaseFile
from anew.storage.checkpoint import CheckpointView, open_checkpoint


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a checkpoint holds, and its position."""

    position: PositionMap
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class FingerprintJob:
    """Scan a checkpoint.

    Attributes:
        directory: The checkpoint's.
        compression: The codec of the version's values.
    """

    directory: str
    compression: str

    @property
    def name(self) -> str:
        """The checkpoint's directory."""
        return self.directory

    def run(self) -> Scanned:
        """Read every cell once.

        Raises:
            Failed: ``storage_broken``.
        """
        with open_checkpoint(Path(self.directory)) as opened:
            found = FingerprintSum()
            for rows in opened.rows(_codec(opened, self.compression)):
                found.add(rows)
            return Scanned(opened.position, found.result())


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys and row hashes in key order; ``next_after`` is what to pass as ``after`` next, None at the end."""

    keys: tuple[bytes, ...]
    hashes: tuple[int, ...]
    next_after: bytes | None


@dataclass(frozen=True, slots=True)
class EntriesJob:
    """List keys and row hashes of some buckets of a checkpoint: at most ``limit``, in key order, behind a key."""

    directory: str
    compression: str
    buckets: frozenset[int]
    after: bytes | None
    limit: int

    @property
    def name(self) -> str:
        """The checkpoint's directory."""
        return self.directory

    def run(self) -> Entries:
        """Read on until there are enough.

        Raises:
            Failed: ``storage_broken``.
        """
        keys: list[bytes] = []
        hashes: list[int] = []
        with open_checkpoint(Path(self.directory)) as opened:
            for rows in opened.rows(_codec(opened, self.compression), self.after):
                chosen = take(rows, in_buckets(rows.column("key"), self.buckets))
                keys += bytes_list(chosen.column("key"))
                hashes += chosen.column("hash").to_numpy().view(np.uint64).tolist()
                if len(keys) > self.limit:
                    return Entries(tuple(keys[: self.limit]), tuple(hashes[: self.limit]), keys[self.limit - 1])
        return Entries(tuple(keys), tuple(hashes), None)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and the checkpoint's position and compression dictionary."""

    file: BaseFile | None
    position: PositionMap
    dictionary: bytes | None


@dataclass(frozen=True, slots=True)
class Fed:
    """What a version applied of one feed partition after its start, as far as stamps tell.

    Attributes:
        incarnation: The feed's.
        partition: Of which partition; None: of all.
        start: From which offset on; None: nothing, as far as can be told.
    """

    incarnation: int
    partition: int | None
    start: int | None

    @classmethod
    def of(cls, feed: Feed, partition: int, start: PositionMap) -> Fed:
        """What a version that starts there applied of a feed partition.

        A job's stamps have no offsets (rule R20). Where the version applies its feed from the first record on, all rows
        of its are the feed's. Otherwise they count as the base's: those that are not make another file than the base's.
        """
        if feed.kind is FeedKind.RT:
            return cls(feed.incarnation, partition, start.get(FeedPartition(feed.id, partition), 0))
        is_folded = any(start.get(at, 0) for at in feed.feed_partitions())
        return cls(feed.incarnation, None, None if is_folded else 0)

    def among(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows it is, shape (n,)."""
        if self.start is None:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        own: npt.NDArray[np.bool_] = rows.column("incarnation").to_numpy() == self.incarnation
        own = own & (rows.column("offset").to_numpy() >= self.start)
        return own if self.partition is None else own & (rows.column("feed_partition").to_numpy() == self.partition)


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Write a checkpoint as a base file.

    Attributes:
        directory: The checkpoint's.
        compression: The codec of the version's values.
        deep_store: The root to write to.
        path: Where the file goes.
        left_out: What the version's feeds brought.
    """

    directory: str
    compression: str
    deep_store: str
    path: str
    left_out: tuple[Fed, ...] = ()

    @property
    def name(self) -> str:
        """The checkpoint's directory."""
        return self.directory

    def run(self) -> Exported:
        """Read every cell once; a file that is there already is taken as written, if it is the same.

        Raises:
            Failed: ``storage_broken``, ``corrupt_value``; what `BaseFileWriter.close` raises.
            Refused: ``path_taken``.
            Unreachable: The deep store does not answer.
        """
        with open_checkpoint(Path(self.directory)) as opened:
            codec = _codec(opened, self.compression)
            writer = BaseFileWriter.open(open_deep_store(self.deep_store), self.path, codec)
            try:
                for rows in opened.stored_rows(codec):
                    writer.write(take(rows, self._of_base(rows)))
                file = writer.close()
            except BaseException:
                writer.abort()
                raise
            return Exported(file, opened.position, opened.base.dictionary)

    def _of_base(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Which rows no feed brought after the version's start, shape (n,)."""
        fed = np.zeros(rows.num_rows, dtype=np.bool_)
        for one in self.left_out:
            fed |= one.among(rows)
        return (~fed).nonzero()[0]


def _codec(opened: CheckpointView, compression: str) -> Compressor:
    return compressor(compression, opened.base.dictionary)
