"""A replica of one (sub-)partition of one version: one RocksDB instance that holds cells and positions.

Cells lie in the default column family under their key's own bytes. Positions and the base's marker lie in a family of
their own, ``meta``: a key is any Avro body, also an empty one, so that no prefix could be reserved without putting one
on every key. One write batch covers both families, the log is on, and both are flushed together (rule R5).

One thread at a time may change a replica (rule R18); any thread may read it while it is open.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from anew.codec.compression import Compressor
from anew.core.arrow import bytes_list
from anew.core.cell import HEADER_BYTES, TOMBSTONE, decode_cell
from anew.core.errors import Failed
from anew.core.feed import NOWHERE, FeedPartition, PositionMap
from anew.core.merge import Cell
from anew.storage.applying import Floors, Outcome, outcome_of
from anew.storage.memory import NodeMemory
from anew.storage.portions import Portion, batches
from anew.storage.rocks import META, Database, DatabaseClosed, RocksError, as_failed, behind

SCAN_EXAMINED = 20_000
_FRESH = "fresh"
"""A file in the directory of a replica that has not been yet at the ends of what it reads."""
_MARKER = b"base"
_POSITION = b"position/"
_OFFSET = struct.Struct(">q")
_HEAD = struct.Struct("<BBBBIq")
_GOING = "-going"
_KEPT = "it is kept until another one is loaded"


@dataclass(frozen=True, slots=True)
class Base:
    """What a replica starts from.

    Attributes:
        manifest: The manifest's checksum: the identity of the base.
        rows: Live rows; ``tombstones`` come on top.
        start: From where feeds are applied; the position right after the load.
        dictionary: The compression dictionary of the version, kept so that the node can restart alone.
    """

    manifest: str
    rows: int
    tombstones: int
    start: PositionMap
    dictionary: bytes | None = None


class Live(NamedTuple):
    """A value that a key holds: which schema wrote it, when (ms, 0: with the base), and its uncompressed body."""

    schema_id: int
    time_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a scan, in key order; ``next_after`` goes on from here, None at the end."""

    items: list[tuple[bytes, Live]]
    next_after: bytes | None


class Replica:
    """An open replica. Make one with `create` or `open_replica`, and `use` it with its codec before anything else."""

    def __init__(self, directory: Path, database: Database, base: Base) -> None:
        self.directory = directory
        self.base = base
        self._database = database
        self._offsets = dict(read_position(database))
        self._unsaved: set[FeedPartition] = set()
        self._codec: Compressor | None = None
        self._floors = Floors()
        self._is_fresh = (directory / _FRESH).exists()
        self._doubt: Callable[[], object] | None = None

    @classmethod
    def create(cls, directory: Path, memory: NodeMemory, runs: Sequence[Sequence[str]], base: Base) -> Replica:
        """Load a fresh instance: ingest, count what RocksDB holds, then write the marker (rule R4, case G2).

        ``runs`` are the sorted files of each run, newest run first; the files are moved. A crash before the marker
        leaves a directory that `open_existing` does not accept.

        Raises:
            Failed: ``directory_taken``: something lies there; it is never ingested into twice.
                ``fingerprint_mismatch``: RocksDB holds another number of rows than the base. ``storage_broken``.
        """
        if directory.exists():
            raise Failed("directory_taken", "a load needs a fresh directory", found=str(directory), expected="nothing")
        directory.mkdir(parents=True)
        database = _open(directory, memory)
        try:
            _ingest(database, runs, base)
        except Failed:
            database.close()
            raise
        _keep_empty(directory / _FRESH)
        database.write([], [], [*_positions(base.start.items()), (_MARKER, _marker(base))], is_durable=True)
        return cls(directory, database, base)

    @classmethod
    def open_existing(cls, directory: Path, memory: NodeMemory, manifest: str) -> Replica | None:
        """The replica that lies there, or None when there is none whose base of that manifest is complete."""
        if not (directory / "CURRENT").exists():
            return None
        with ExitStack() as unless_opened:
            database = _open(directory, memory)
            unless_opened.callback(database.close)
            with as_failed("RocksDB cannot open a replica", directory, _KEPT):
                try:
                    base = read_base(database)
                    if base is None or base.manifest != manifest:
                        return None
                    replica = cls(directory, database, base)
                except (ValueError, KeyError, TypeError, struct.error) as error:
                    found = f"{directory}: {type(error).__name__}: {error}"
                    raise Failed(
                        "storage_broken", "a replica's position cannot be read", found=found, expected="one", hint=_KEPT
                    ) from None
            unless_opened.pop_all()
            return replica

    def use(self, codec: Compressor, floors: Floors) -> None:
        """Say how the version compresses values and where its floors are."""
        self._codec, self._floors = codec, floors

    @property
    def is_fresh(self) -> bool:
        """Whether it was made of a base and has not come up yet to what was written since; it is kept over restarts."""
        return self._is_fresh

    def come_up(self) -> None:
        """It has been at the ends of what it reads: from now on it has what anybody may have seen.

        On a disk that does not take this it is fresh again after a restart, until it is at the ends again.
        """
        if self._is_fresh:
            with suppress(OSError):
                (self.directory / _FRESH).unlink(missing_ok=True)
            self._is_fresh = False

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Live | None:
        """The value of a key; None when there is none or it was deleted.

        Raises:
            Failed: ``replica_closed``, ``storage_broken``.
        """
        try:
            found = self._database.get(key)
        except DatabaseClosed:
            raise self._closed() from None
        except RocksError as error:
            raise self._unread(error, lambda: self._database.get(key)) from None
        return self._live(found)

    def get_many(self, keys: list[bytes]) -> list[Live | None]:
        """The values of keys, in their order.

        Raises:
            Failed: ``replica_closed``, ``storage_broken``.
        """
        return [self._live(cell) for cell in self._read(keys)]

    def cell(self, key: bytes) -> Cell | None:
        """The whole cell of a key, tombstones too; the value uncompressed.

        Raises:
            Failed: ``replica_closed``, ``storage_broken``.
        """
        encoded = self._read([key])[0]
        if encoded is None:
            return None
        cell = decode_cell(encoded)
        value = None if cell.value is None else self._compressor.decompress(cell.value)
        return Cell(cell.stamp, value, cell.schema_id)

    def scan(self, after: bytes | None, limit: int, max_bytes: int) -> Page:
        """Live values in key order, after a key: at most ``limit``, and about ``max_bytes`` (at least one).

        A page may be empty and not the last: where many keys were deleted.

        Raises:
            Failed: ``replica_closed``, ``storage_broken``.
        """
        items: list[tuple[bytes, Live]] = []
        size_bytes = 0
        last: bytes | None = None
        try:
            with self._database.cursor() as cursor:
                cursor.seek(behind(after))
                for examined, (key, cell) in enumerate(cursor):
                    if len(items) >= limit or size_bytes >= max_bytes or examined >= SCAN_EXAMINED:
                        return Page(items, last)
                    live = self._live(cell)
                    if live is not None:
                        items.append((key, live))
                        size_bytes += len(key) + len(live.body)
                    last = key
        except DatabaseClosed:
            raise self._closed() from None
        except RocksError as error:
            raise self._unread(error, lambda: self._pass_over(after)) from None
        return Page(items, None)

    @property
    def is_in_doubt(self) -> bool:
        """Whether RocksDB failed over a read, and nobody has read the same again yet."""
        return self._doubt is not None

    def read_again(self) -> RocksError | None:
        """Read what could not be read, on the applier's thread: what RocksDB says again, None once it can be read."""
        doubt = self._doubt
        if doubt is None:
            return None
        try:
            doubt()
        except RocksError as error:
            return error
        self._doubt = None
        return None

    @property
    def position(self) -> PositionMap:
        """The next offset to read of each feed partition."""
        return PositionMap(self._offsets)

    def offset(self, at: FeedPartition) -> int | None:
        """The next offset to read of one feed partition; None when it was never read and has no start."""
        return self._offsets.get(at)

    # -- changing --------------------------------------------------------------------------------------------------

    def apply(
        self, portions: Iterable[Portion], reject: Callable[[list[tuple[FeedPartition, int]]], None] = lambda _: None
    ) -> None:
        """Merge records into the cells and move the positions on, in bounded write batches.

        The portions are of feed partitions that differ. Several go into one batch where they fit: what a batch costs
        hardly depends on how much is in it, and which records win does not on how they were cut (rule R6).

        Args:
            portions: The records, and how far they reach.
            reject: Told where the records lie, feed partition and offset, that R12 turns away; before the position
                moves past them.
        """
        filled = list[Portion]()
        for portion in portions:
            if portion.rows.num_rows:
                filled.append(portion)
            else:
                self.advance(portion.at, portion.next_offset)
        for batch in batches(filled):
            outcome = self._outcome(batch.rows)
            if outcome.rejected:
                reject([batch.place(row) for row in outcome.rejected])
            self._write(outcome.keys, outcome.cells, batch.moved)

    def advance(self, at: FeedPartition, next_offset: int) -> None:
        """Move a position past records that are not of this replica; it is saved with the next batch."""
        if self._offsets.get(at) != next_offset:
            self._offsets[at] = next_offset
            self._unsaved.add(at)

    def save_positions(self) -> None:
        """Write positions that moved without records."""
        if self._unsaved:
            self._write([], [])

    def checkpoint(self, directory: Path) -> None:
        """Keep data and position of this moment under a fresh directory, by hard links; nothing refers to it here.

        What is still in memory is flushed: measured 75 ms for a full write buffer.

        Raises:
            Failed: ``storage_broken``.
        """
        self.save_positions()
        with as_failed("RocksDB cannot keep a checkpoint", directory, "free some space"):
            self._database.checkpoint(str(directory))

    def close(self) -> None:
        """Save positions and let go of the directory; reads that come later fail with ``replica_closed``."""
        try:
            self.save_positions()
        finally:
            self._database.close()

    def discard(self) -> None:
        """Close without saving, and remove the directory."""
        self._database.close()
        remove_replica(self.directory)

    def _outcome(self, rows: pa.RecordBatch) -> Outcome:
        # In order, so that a block of the base is looked into once.
        keys = sorted(set(bytes_list(rows.column("key"))))
        cells = self._cells(keys, is_sorted=True)
        held = {key: cell for key, cell in zip(keys, cells, strict=True) if cell is not None}
        return outcome_of(rows, held, self._floors, self._compressor)

    def _write(self, keys: list[bytes], cells: list[bytes], moved: Mapping[FeedPartition, int] = NOWHERE) -> None:
        """Write cells with the positions that moved, with them or before them (rule R5).

        Others may read the position at any time: it never says that something was applied that is not there yet.
        """
        offsets = {at: self._offsets[at] for at in self._unsaved} | dict(moved)
        self._database.write(keys, cells, _positions(offsets.items()))
        self._offsets.update(moved)
        self._unsaved = set()

    def _cells(self, keys: list[bytes], *, is_sorted: bool = False) -> list[bytes | None]:
        try:
            return self._database.get_many(keys, is_sorted=is_sorted)
        except DatabaseClosed:
            raise self._closed() from None

    def _read(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            return self._cells(keys)
        except RocksError as error:
            raise self._unread(error, lambda: self._database.get_many(keys)) from None

    def _pass_over(self, after: bytes | None) -> None:
        with self._database.cursor() as cursor:
            cursor.seek(behind(after))
            for _ in zip(range(SCAN_EXAMINED), cursor, strict=False):
                pass

    def _unread(self, error: RocksError, again: Callable[[], object]) -> Failed:
        """For the reader; the applier reads the same again and finds out whether it is damaged."""
        self._doubt = again
        found, hint = f"{self.directory}: {error}", "other replicas answer; the node looks at this one by itself"
        return Failed("storage_broken", "RocksDB cannot read a replica", found=found, hint=hint)

    def _live(self, cell: bytes | None) -> Live | None:
        if cell is None:
            return None
        version, flags, origin_bytes, _, schema_id, time_ms = _HEAD.unpack_from(cell)
        if version != 1:
            decode_cell(cell)
        if flags & TOMBSTONE:
            return None
        return Live(schema_id, time_ms, self._compressor.decompress(cell[HEADER_BYTES + origin_bytes :]))

    @property
    def _compressor(self) -> Compressor:
        if self._codec is None:
            raise AssertionError("use() comes first")
        return self._codec

    def _closed(self) -> Failed:
        return Failed("replica_closed", "the replica was closed", found=str(self.directory), expected="an open one")


def _keep_empty(path: Path) -> None:
    """Make an empty file, durably."""
    path.touch()
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_replica(directory: Path) -> None:
    """Remove a directory, at once or not at all: what a crash leaves of it has another name, and is no replica."""
    going = directory.with_name(f"{directory.name}{_GOING}")
    shutil.rmtree(going, ignore_errors=True)
    with suppress(OSError):
        directory.rename(going)
        shutil.rmtree(going, ignore_errors=True)


def _open(directory: Path, memory: NodeMemory) -> Database:
    with as_failed("RocksDB cannot open a replica", directory, _KEPT):
        return Database(str(directory), memory.options(), memory.small_options())


def _ingest(database: Database, runs: Sequence[Sequence[str]], base: Base) -> None:
    """Take the sorted files in, and count what is there then."""
    for files in reversed(runs):
        if files:
            with as_failed("RocksDB cannot take a sorted file in", files[0], "the node loads the replica again"):
                database.ingest(files)
    held = database.entries()
    # Of several runs that share keys a compaction, which may run already, keeps the newest.
    if held != base.rows + base.tombstones and len(runs) < 2:
        raise Failed(
            "fingerprint_mismatch",
            "RocksDB does not hold what the base does",
            found=f"{held} entries",
            expected=f"{base.rows} rows and {base.tombstones} tombstones",
            hint="the node loads the replica again",
        )


def _positions(offsets: Iterable[tuple[FeedPartition, int]]) -> list[tuple[bytes, bytes]]:
    """Offsets as entries beside the cells."""
    return [(_POSITION + str(at).encode(), _OFFSET.pack(offset)) for at, offset in offsets]


def read_position(database: Database) -> Iterator[tuple[FeedPartition, int]]:
    """The position that is saved in a replica's database."""
    with database.cursor(META) as cursor:
        cursor.seek(_POSITION)
        for key, value in cursor:
            if not key.startswith(_POSITION):
                return
            feed, _, partition = key[len(_POSITION) :].decode().rpartition("/")
            yield FeedPartition(feed, int(partition)), _OFFSET.unpack(value)[0]


def read_base(database: Database) -> Base | None:
    """What a replica's database started from; None while its base is not complete."""
    marker = database.get(_MARKER, META)
    return None if marker is None else _parse_marker(marker)


def _marker(base: Base) -> bytes:
    dictionary = None if base.dictionary is None else base.dictionary.hex()
    return json.dumps(
        {
            "format": 1,
            "manifest": base.manifest,
            "rows": base.rows,
            "tombstones": base.tombstones,
            "start": base.start.to_json(),
            "dictionary": dictionary,
        }
    ).encode()


def _parse_marker(content: bytes) -> Base | None:
    marker = json.loads(content)
    if marker["format"] != 1:
        return None
    dictionary = marker["dictionary"]
    return Base(
        marker["manifest"],
        marker["rows"],
        marker["tombstones"],
        PositionMap.from_json(marker["start"]),
        None if dictionary is None else bytes.fromhex(dictionary),
    )
