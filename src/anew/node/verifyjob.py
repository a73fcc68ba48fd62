"""What the loader process does for a verification: fingerprints of checkpoints, and the keys behind a difference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anew.codec.compression import Compressor, compressor
from anew.core.arrow import bytes_list, take
from anew.core.feed import PositionMap
from anew.core.fingerprint import Fingerprint, FingerprintSum, in_buckets
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


def _codec(opened: CheckpointView, compression: str) -> Compressor:
    return compressor(compression, opened.base.dictionary)
