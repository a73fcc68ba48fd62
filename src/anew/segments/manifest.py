"""The manifest of a version: which files are its base, and all that is needed to serve them without the catalog.

It lies beside the files, so that the catalog can be rebuilt from the deep store (design 7.8). The format has room for
several sorted runs per sub-partition, newest first, and for files of older versions (paths are relative to the deep
store's root, not to the version); today one run of own files is written.
"""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict, ValidationError

from anew.core.errors import Failed
from anew.core.feed import NOWHERE, Feed, Position
from anew.core.ledger import MODULUS, Ledger
from anew.core.store import Frozen, ManifestRef, RebuildKind

FORMAT_VERSION = 1


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BaseFile(_Value):
    """One sorted Parquet file.

    Attributes:
        path: Below the deep store's root.
        rows: Live rows; ``tombstones`` come on top.
        checksum: SHA-256 of the bytes, hex.
        smallest_key: Hex, as ``largest_key``.
        fingerprint: Sum of the row hashes modulo 2**64.
    """

    path: str
    rows: int
    tombstones: int
    bytes: int
    checksum: str
    smallest_key: str
    largest_key: str
    fingerprint: int


class SubPartition(_Value):
    """The files of one sub-partition: sorted runs, newest first; each a list of files in key order. No run: no row."""

    partition: int
    sub_partition: int
    runs: tuple[tuple[BaseFile, ...], ...] = ()

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """All files of all runs."""
        return tuple(file for run in self.runs for file in run)


class Manifest(_Value):
    """Everything about a sealed version that is not in its rows."""

    format: int = FORMAT_VERSION
    store: str
    store_uid: str
    version: int
    kind: RebuildKind
    rebuild: str
    epoch: int
    source_version: int | None = None
    key_schema: str
    schemas: dict[int, str]
    config: Frozen
    config_hash: str
    dictionary: str | None = None
    feeds: tuple[Feed, ...] = ()
    start: Position = NOWHERE
    stop: Position | None = None
    ttl_floor_ms: int = 0
    tombstone_floor_ms: int = 0
    created_at_ms: int
    ledger: Ledger
    sub_partitions: tuple[SubPartition, ...]

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """All base files."""
        return tuple(file for part in self.sub_partitions for file in part.files)

    @property
    def owned(self) -> set[str]:
        """The paths of everything that the version needs beside its manifest."""
        return {file.path for file in self.files} | (set() if self.dictionary is None else {self.dictionary})

    def files_of(self, partition: int) -> tuple[SubPartition, ...]:
        """The sub-partitions of one partition."""
        return tuple(part for part in self.sub_partitions if part.partition == partition)

    def to_bytes(self) -> bytes:
        """The manifest file's content."""
        return self.model_dump_json(indent=1).encode()

    def ref(self, path: str) -> ManifestRef:
        """What the catalog keeps of it."""
        files = self.files
        return ManifestRef(
            path=path,
            checksum=hashlib.sha256(self.to_bytes()).hexdigest(),
            files=len(files),
            rows=sum(file.rows for file in files),
            tombstones=sum(file.tombstones for file in files),
            bytes=sum(file.bytes for file in files),
            fingerprint=sum(file.fingerprint for file in files) % MODULUS,
        )


def parse_manifest(content: bytes, ref: ManifestRef) -> Manifest:
    """The manifest of a file's content, checked against what the catalog says of it.

    Raises:
        Failed: ``checksum_mismatch``, ``bad_manifest``.
    """
    checksum = hashlib.sha256(content).hexdigest()
    if checksum != ref.checksum:
        raise Failed("checksum_mismatch", f"the manifest {ref.path} was changed", found=checksum, expected=ref.checksum)
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise Failed(
            "bad_manifest", f"the manifest {ref.path} cannot be read", found=str(error), expected="format 1"
        ) from error
