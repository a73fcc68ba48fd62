"""What passes between a node and its loader process, and the load itself: a whole instance, which the node only opens.

Opening, ingesting and writing the marker wait for the disk many times, and RocksDB's binding keeps the interpreter
meanwhile: in the node every read would wait with them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from anew.core.feed import PositionMap
from anew.core.store import ManifestRef
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.segments.basefile import read_rows
from anew.segments.dictionary import read_dictionary
from anew.segments.manifest import BaseFile, SubPartition, parse_manifest
from anew.storage.memory import MIB, NodeMemory
from anew.storage.replica import Base, Replica
from anew.storage.sst import Promised, SstFile, build_sst

_CACHE_BYTES, _WRITE_BUFFER_BYTES = 8 * MIB, 8 * MIB


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One replica's base to be fetched.

    Attributes:
        deep_store: The root to open.
        manifest: The version's manifest.
        partition: Which partition; all its sub-partitions are one.
        sub_partition: Which sub-partition.
        start: From where the version applies its feeds.
        folder: Where temporary files go; made anew, and emptied first.
        directory: Where the instance is made; emptied first. Without its marker it is nothing yet (rule R4).
    """

    deep_store: str
    manifest: ManifestRef
    partition: int
    sub_partition: int
    start: PositionMap
    folder: str
    directory: str

    @property
    def name(self) -> str:
        """The manifest's path."""
        return self.manifest.path

    def run(self) -> Loaded:
        """See `run_load`."""
        folder = Path(self.folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        folder.mkdir(parents=True)
        return run_load(open_deep_store(self.deep_store), self)


@dataclass(frozen=True, slots=True)
class Loaded:
    """How much an instance holds that was just made."""

    rows: int
    tombstones: int


def run_load(store: DeepStore, job: LoadJob) -> Loaded:
    """Download the base files, verify them, write sorted files, and make an instance of them (cases G1, C9, E5).

    Raises:
        Failed: ``checksum_mismatch``, ``bad_manifest``, ``missing_dictionary``, ``unsorted_base_file``,
            ``fingerprint_mismatch``, ``file_missing``, ``storage_broken``.
        Unreachable: The deep store does not answer.
    """
    manifest = parse_manifest(store.get(job.manifest.path), job.manifest)
    dictionary = read_dictionary(store, manifest)
    wanted = [s for s in manifest.files_of(job.partition) if s.sub_partition == job.sub_partition]
    runs = [_build_run(store, Path(job.folder), run) for sub in wanted for run in _numbered(sub)]
    files = [file for run in runs for file in run]
    loaded = Loaded(sum(file.rows for file in files), sum(file.tombstones for file in files))
    base = Base(job.manifest.checksum, loaded.rows, loaded.tombstones, job.start, dictionary)
    paths = [[file.path for file in run] for run in runs]
    Replica.create(Path(job.directory), _memory(), paths, base).close()
    shutil.rmtree(job.folder, ignore_errors=True)
    return loaded


@cache
def _memory() -> NodeMemory:
    """The budget of a process that opens one instance at a time, and reads nothing of it."""
    return NodeMemory(_CACHE_BYTES, _WRITE_BUFFER_BYTES)


def _numbered(sub: SubPartition) -> list[tuple[str, tuple[BaseFile, ...]]]:
    return [(f"r{number}", run) for number, run in enumerate(sub.runs)]


def _build_run(store: DeepStore, folder: Path, run: tuple[str, tuple[BaseFile, ...]]) -> list[SstFile]:
    name, files = run
    built: list[SstFile] = []
    for number, file in enumerate(files):
        copy = folder / f"{name}-{number}.parquet"
        store.download(file.path, copy, file.checksum)
        promised = Promised(file.path, file.rows, file.tombstones, file.fingerprint)
        after = built[-1].last_key if built else None
        sst = build_sst(folder / f"{name}-{number}.sst", _rows(copy), promised, after)
        copy.unlink()
        if sst is not None:
            built.append(sst)
    return built


def _rows(path: Path) -> Iterator[pa.RecordBatch]:
    yield from read_rows(str(path))
