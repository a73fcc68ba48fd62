"""A base in each of its forms, and bits of it that a disk turns over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from anew.codec.compression import Compressor, compressor
from anew.core.ledger import Ledger
from anew.core.stores.store import RebuildKind
from anew.deepstore.interface import DeepStore
from anew.segments.basefile import BaseFileWriter
from anew.segments.dictionary import store_dictionary
from anew.segments.manifest import BaseFile, Manifest, SubPartition
from anew.testing.builders import a_config
from anew.testing.range_contract import some_rows

PLAIN = compressor("none")
ROWS_OF_A_GROUP = 500


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of a file."""

    path: Path
    byte: int
    bit: int

    def apply(self) -> None:
        """Turn it over, as damage does: in place. A second time, it is as it was."""
        with self.path.open("r+b") as file:
            file.seek(self.byte)
            found = file.read(1)[0]
            file.seek(self.byte)
            file.write(bytes([found ^ 1 << self.bit]))


def flips(path: Path, count: int, seed: int, begin: int = 0, end: int | None = None) -> list[Flip]:
    """Some bits of a file, or of bytes ``[begin, end)`` of it; the same seed gives the same ones."""
    random, size = np.random.default_rng(seed), path.stat().st_size
    places = random.integers(begin, size if end is None else end, count)
    return [Flip(path, int(at), int(bit)) for at, bit in zip(places, random.integers(0, 8, count), strict=True)]


def base_rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Rows with true hashes."""
    return some_rows(count, first)


def write_file(store: DeepStore, path: str, rows: pa.RecordBatch, codec: Compressor = PLAIN) -> BaseFile:
    """A base file of some rows."""
    writer = BaseFileWriter.open(store, path, codec)
    writer.write(rows)
    file = writer.close()
    assert file is not None
    return file


def of_format_1(file: BaseFile) -> BaseFile:
    """The same file as format 1 of the manifest names it."""
    return file.model_copy(update={"proof": None})


def write_manifest(store: DeepStore, file: BaseFile, dictionary: bytes) -> Manifest:
    """The manifest of a version that is one base file and a dictionary."""
    config = a_config(compression="zstd_dict").frozen
    stored = store_dictionary(store, "v1", dictionary)
    manifest = Manifest(
        store="flights",
        store_uid="uid-1",
        version=1,
        kind=RebuildKind.FULL_PUSH,
        rebuild="rebuild-1",
        epoch=1,
        key_schema='"bytes"',
        schemas={1: '"bytes"'},
        config=config,
        config_hash=config.hash,
        dictionary=stored.path,
        dictionary_checksum=stored.checksum,
        created_at_ms=1,
        ledger=Ledger(),
        sub_partitions=(SubPartition(partition=0, sub_partition=0, runs=((file,),)),),
    )
    store.put("v1/manifest.json", manifest.to_bytes())
    return manifest
