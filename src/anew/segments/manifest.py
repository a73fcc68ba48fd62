"""The manifest of a version: what its base is, and all that is needed to serve them without the catalog.

It lies beside the files, so that the catalog can be rebuilt from the deep store; also where the rows
themselves went through the log. The format has room for several sorted runs per sub-partition, newest first, and for
files of older versions (paths are relative to the deep store's root, not to the version); today one run is written.
"""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anew.core.errors import Failed
from anew.core.feed import NOWHERE, Feed, Position
from anew.core.ledger import MODULUS, Ledger
from anew.core.stores.store import Frozen, ManifestRef, RebuildKind
from anew.log.interface import TopicPartition
from anew.segments.proof import FileProof

FORMAT_VERSION = 2
"""Format 1 has no proofs of files and no checksum of the dictionary; it is read, and no longer written."""


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
        proof: The hashes of its pieces; None in format 1, where the checksum is all there is.
    """

    path: str
    rows: int
    tombstones: int
    bytes: int
    checksum: str
    smallest_key: str
    largest_key: str
    fingerprint: int
    proof: FileProof | None = None


class BaseRange(_Value):
    """Sorted rows in a version topic, where one task attempt appended them; what lies between is not of it (rule R23).

    Attributes:
        topic: The version topic; ``topic_uid`` identifies it (rule R3).
        topic_partition: Which of its partitions.
        key_schema_id: What the wire headers of its keys say.
        attempt: Who appended: every record says so too.
        pieces: The exact offsets: [begin, end) each, in order; the first begins with SOP, the last ends with EOP.
        rows: As in `BaseFile`, and so are the others; ``bytes`` is what keys, values and stamps amount to.
    """

    topic: str
    topic_uid: str
    topic_partition: int
    key_schema_id: int
    attempt: str
    pieces: tuple[tuple[int, int], ...]
    rows: int
    tombstones: int
    bytes: int
    smallest_key: str
    largest_key: str
    fingerprint: int

    @property
    def path(self) -> str:
        """What people call it."""
        return f"{self.topic}/{self.topic_partition}@{self.pieces[0][0]}-{self.pieces[-1][1]}"

    @property
    def at(self) -> TopicPartition:
        """Where in the log it is."""
        return TopicPartition(self.topic, self.topic_uid, self.topic_partition, self.key_schema_id)


BasePart = BaseFile | BaseRange
"""Rows in key order, as one task made them."""


class SubPartition(_Value):
    """The rows of one sub-partition: sorted runs, newest first; each a list of parts in key order. No run: no row."""

    partition: int
    sub_partition: int
    runs: tuple[tuple[BasePart, ...], ...] = ()

    @property
    def parts(self) -> tuple[BasePart, ...]:
        """All parts of all runs."""
        return tuple(part for run in self.runs for part in run)

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """Those that are files."""
        return tuple(part for part in self.parts if isinstance(part, BaseFile))


class Manifest(_Value):
    """Everything about a sealed version that is not in its rows.

    Attributes:
        dictionary: The path of the compression dictionary, and ``dictionary_checksum`` the SHA-256 of its bytes, hex;
            format 1 has the path alone.
    """

    format: int = Field(default=FORMAT_VERSION, ge=1, le=FORMAT_VERSION)
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
    dictionary_checksum: str | None = None
    feeds: tuple[Feed, ...] = ()
    start: Position = NOWHERE
    stop: Position | None = None
    ttl_floor_ms: int = 0
    tombstone_floor_ms: int = 0
    created_at_ms: int
    ledger: Ledger
    sub_partitions: tuple[SubPartition, ...]

    @property
    def parts(self) -> tuple[BasePart, ...]:
        """The whole base."""
        return tuple(part for sub in self.sub_partitions for part in sub.parts)

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """The parts of the base that are files."""
        return tuple(file for sub in self.sub_partitions for file in sub.files)

    @property
    def ranges(self) -> tuple[BaseRange, ...]:
        """The parts of the base that are in a version topic."""
        return tuple(part for part in self.parts if isinstance(part, BaseRange))

    @property
    def owned(self) -> set[str]:
        """The paths of everything that the version needs beside its manifest."""
        return {file.path for file in self.files} | (set() if self.dictionary is None else {self.dictionary})

    def files_of(self, partition: int) -> tuple[SubPartition, ...]:
        """The sub-partitions of one partition."""
        return tuple(sub for sub in self.sub_partitions if sub.partition == partition)

    def to_bytes(self) -> bytes:
        """The manifest file's content."""
        return self.model_dump_json(indent=1).encode()

    def ref(self, path: str) -> ManifestRef:
        """What the catalog keeps of it."""
        parts = self.parts
        return ManifestRef(
            path=path,
            checksum=hashlib.sha256(self.to_bytes()).hexdigest(),
            files=len(parts),
            rows=sum(part.rows for part in parts),
            tombstones=sum(part.tombstones for part in parts),
            bytes=sum(part.bytes for part in parts),
            fingerprint=sum(part.fingerprint for part in parts) % MODULUS,
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
            "bad_manifest",
            f"the manifest {ref.path} cannot be read",
            found=str(error),
            expected=f"format 1 to {FORMAT_VERSION}",
        ) from error
