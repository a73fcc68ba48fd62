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

from anew.api.location import LogLocation
from anew.core.feed import PositionMap
from anew.core.stores.store import Frozen, ManifestRef
from anew.segments.base import BaseReader, open_base
from anew.segments.baserange import read_range, start_of_push
from anew.segments.dictionary import read_dictionary
from anew.segments.manifest import BasePart, BaseRange, parse_manifest
from anew.storage.memory import MIB, NodeMemory
from anew.storage.replica import Base, Replica
from anew.storage.sst import Promised, SstFile, build_sst

_CACHE_BYTES, _WRITE_BUFFER_BYTES = 8 * MIB, 8 * MIB


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One replica's base to be fetched.

    Attributes:
        deep_store: The root to open.
        log: Where the log is that the base may lie in.
        manifest: The version's manifest.
        partition: Which partition; all its sub-partitions are one.
        sub_partition: Which sub-partition.
        start: From where the version applies its feeds.
        folder: Where temporary files go; made anew, and emptied first.
        directory: Where the instance is made; emptied first. Without its marker it is nothing yet (rule R4).
    """

    deep_store: str
    log: LogLocation
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
        try:
            with open_base(self.deep_store, self.log) as base:
                return run_load(base, self)
        except BaseException:
            # On a full disk nothing else would get on until the next try.
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(self.directory, ignore_errors=True)
            raise


@dataclass(frozen=True, slots=True)
class Loaded:
    """How much an instance holds that was just made."""

    rows: int
    tombstones: int


def run_load(base_reader: BaseReader, job: LoadJob) -> Loaded:
    """Fetch the base, verify it, write sorted files, and make an instance of them (cases G1, G6, G7, C9, E5).

    Raises:
        Failed: ``checksum_mismatch``, ``bad_manifest``, ``missing_dictionary``, ``unsorted_base_file``,
            ``fingerprint_mismatch``, ``file_missing``, ``storage_broken``; what `anew.segments.baserange.read_range`
            raises.
        Unreachable: Deep store or log does not answer.
    """
    store = base_reader.deep_store
    manifest = parse_manifest(store.get(job.manifest.path), job.manifest)
    dictionary = read_dictionary(store, manifest)
    fetch = _Fetch(base_reader, Path(job.folder), manifest.config, dictionary)
    wanted = [s for s in manifest.files_of(job.partition) if s.sub_partition == job.sub_partition]
    runs = [fetch.run(number, run) for sub in wanted for number, run in enumerate(sub.runs)]
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


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Makes sorted files in a folder of the parts of a base."""

    base: BaseReader
    folder: Path
    config: Frozen
    dictionary: bytes | None

    def run(self, number: int, parts: tuple[BasePart, ...]) -> list[SstFile]:
        """The sorted files of one run."""
        built: list[SstFile] = []
        for index, part in enumerate(parts):
            promised = Promised(part.path, part.rows, part.tombstones, part.fingerprint)
            after = built[-1].last_key if built else None
            sst = build_sst(self.folder / f"r{number}-{index}.sst", self._rows(part), promised, after)
            if sst is not None:
                built.append(sst)
        return built

    def _rows(self, part: BasePart) -> Iterator[pa.RecordBatch]:
        if isinstance(part, BaseRange):
            yield from read_range(self.base.log, part, start_of_push(self.config, self.dictionary, part.attempt))
            return
        yield from self.base.rows(part)
