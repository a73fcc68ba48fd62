"""What passes between a node and its loader process, and the load itself up to the sorted files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from anew.core.store import ManifestRef
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.segments.basefile import read_rows
from anew.segments.dictionary import read_dictionary
from anew.segments.manifest import BaseFile, SubPartition, parse_manifest
from anew.storage.sst import Promised, SstFile, build_sst


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One replica's base to be fetched.

    Attributes:
        deep_store: The root to open.
        manifest: The version's manifest.
        partition: Which partition; all its sub-partitions are one.
        sub_partition: Which sub-partition.
        folder: Where temporary and finished files go; made anew, and emptied first.
    """

    deep_store: str
    manifest: ManifestRef
    partition: int
    sub_partition: int
    folder: str

    @property
    def name(self) -> str:
        """The manifest's path."""
        return self.manifest.path

    def run(self) -> Loaded:
        """See `run_load`."""
        folder = Path(self.folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return run_load(open_deep_store(self.deep_store), self)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Sorted files ready to be ingested: the files of each run, newest run first."""

    runs: tuple[tuple[str, ...], ...]
    rows: int
    tombstones: int
    dictionary: bytes | None


def run_load(store: DeepStore, job: LoadJob) -> Loaded:
    """Download the base files, verify them, and write sorted files (cases G1, C9, E5).

    Raises:
        Failed: ``checksum_mismatch``, ``bad_manifest``, ``missing_dictionary``, ``unsorted_base_file``,
            ``fingerprint_mismatch``, ``file_missing``.
        Unreachable: The deep store does not answer.
    """
    manifest = parse_manifest(store.get(job.manifest.path), job.manifest)
    dictionary = read_dictionary(store, manifest)
    wanted = [s for s in manifest.files_of(job.partition) if s.sub_partition == job.sub_partition]
    runs = [_build_run(store, Path(job.folder), run) for sub in wanted for run in _numbered(sub)]
    files = [file for run in runs for file in run]
    return Loaded(
        runs=tuple(tuple(file.path for file in run) for run in runs),
        rows=sum(file.rows for file in files),
        tombstones=sum(file.tombstones for file in files),
        dictionary=dictionary,
    )


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
