"""One partition of the embedded log: an SQLite file in WAL mode.

The meta row holds begin, next offset and last append time and changes in the transaction of the append or truncation
that it tells of (rule R3): an emptied partition goes on counting, and a file that lost its tail says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.core.errors import Failed, OutcomeUnknown
from anew.log.interface import KEEP_FOR_EVER, Appended, Retention
from anew.log.packing import Packed, Row, row_checksum, unpacked
from anew.log.sqlite_errors import from_sqlite, translated

_TABLES = """
CREATE TABLE meta (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1), uid TEXT NOT NULL, partition_number INTEGER NOT NULL,
    begin_offset INTEGER NOT NULL, next_offset INTEGER NOT NULL, last_ms INTEGER NOT NULL,
    is_open INTEGER NOT NULL, open_epoch INTEGER NOT NULL
) STRICT;
CREATE TABLE batches (
    first_offset INTEGER PRIMARY KEY, record_count INTEGER NOT NULL, appended_ms INTEGER NOT NULL,
    written_ms BLOB NOT NULL, origin_lengths BLOB NOT NULL, origins BLOB NOT NULL, key_lengths BLOB NOT NULL,
    keys BLOB NOT NULL, schema_ids BLOB NOT NULL, value_lengths BLOB NOT NULL, value_bytes BLOB NOT NULL
) STRICT;
"""
_CHECKED = (
    "ALTER TABLE meta ADD COLUMN checksum BLOB",
    "ALTER TABLE batches ADD COLUMN checksum BLOB",
    "PRAGMA user_version = 1",
)
"""Format 1: SQLite notices damage to its own structures alone, so that each row carries a checksum of what it holds
(`anew.log.packing.row_checksum`). A file of format 0 becomes one of format 1 with the next append; rows from before
have no checksum, and are believed."""
_IDENTIFIED = (
    """
CREATE TABLE appends (
    number INTEGER PRIMARY KEY, append_id BLOB NOT NULL UNIQUE, first_offset INTEGER NOT NULL,
    next_offset INTEGER NOT NULL, appended_ms INTEGER NOT NULL, checksum BLOB NOT NULL
) STRICT
""",
    "PRAGMA user_version = 2",
)
"""Format 2: the file knows the ids of its last appends (`anew.log.interface.identified`), so that a repeat finds the
append that came before. A file of an older format becomes one of format 2 with the next append."""
_UPGRADES = (_CHECKED, _IDENTIFIED)
APPENDS_KEPT = 65_536
"""Of so many appends the ids are kept: some MB for each partition. A repeat comes within seconds."""
_READ = """
SELECT {checksum}, first_offset, record_count, appended_ms, written_ms, origin_lengths, origins, key_lengths, keys,
schema_ids, value_lengths, value_bytes FROM batches WHERE first_offset < ?2
AND first_offset >= (SELECT max(first_offset) FROM batches WHERE first_offset <= ?1) ORDER BY first_offset
"""
_APPENDED = """
SELECT {checksum}, first_offset, record_count, appended_ms, written_ms, origin_lengths, origins, key_lengths, keys,
schema_ids, value_lengths, value_bytes FROM batches WHERE first_offset <= ? ORDER BY first_offset DESC LIMIT 1
"""
_SINCE = "SELECT first_offset FROM batches WHERE appended_ms >= ? ORDER BY first_offset LIMIT 1"
_SIZES = """
SELECT first_offset, length(written_ms) + length(origins) + length(keys) + length(value_bytes) + 16 * record_count
FROM batches ORDER BY first_offset DESC
"""
_ROWS = "SELECT first_offset FROM batches ORDER BY first_offset LIMIT 1 OFFSET ?"
_INSERT = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_META = "SELECT {checksum}, begin_offset, next_offset, last_ms, is_open, open_epoch FROM meta"
_SET_META = "UPDATE meta SET checksum = ?, begin_offset = ?, next_offset = ?, last_ms = ?, is_open = ?, open_epoch = ?"
_WAL_LIMIT_BYTES = 64 << 20
FORGOTTEN_ROWS = 10_000
_READ_BYTES = 64 << 20
"""A read ends after the row with which it has taken so much."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The meta row.

    Attributes:
        begin: The readable range is [begin, next offset).
        next_offset: Where the next record goes.
        last_ms: The append time of the last record ever, 0 at first.
        is_open: Whether appends are accepted, as said under ``open_epoch``.
        open_epoch: Whose word holds; an older one changes nothing.
    """

    begin: int
    next_offset: int
    last_ms: int
    is_open: bool
    open_epoch: int

    @property
    def columns(self) -> tuple[int, int, int, int, int]:
        """As they lie in the file."""
        return self.begin, self.next_offset, self.last_ms, int(self.is_open), self.open_epoch


@dataclass(frozen=True, slots=True)
class Opening:
    """How a partition's file is opened: whose it must be, how long to wait for locks, whether commits are fsynced."""

    path: Path
    uid: str
    partition: int
    timeout_seconds: float
    durable: bool


def make_partition_file(path: Path, uid: str, partition: int) -> None:
    """Make the file of an empty partition; the caller fsyncs it."""
    with translated(path):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")
            connection.executescript(_TABLES)
            connection.execute("INSERT INTO meta VALUES (1, ?, ?, 0, 0, 0, 1, -1)", (uid, partition))
            for statement in (*_CHECKED, *_IDENTIFIED):
                connection.execute(statement)
        finally:
            connection.close()


class PartitionFile:
    """A connection to a partition's file; used by one thread at a time."""

    def __init__(self, opening: Opening) -> None:
        """Open the file and check whose it is.

        Raises:
            FileNotFoundError: There is none.
            Unreachable: ``log_unreachable``.
            Failed: ``log_corrupt``: also when it belongs to another topic or partition.
        """
        self._path = opening.path
        self._inode = opening.path.stat().st_ino
        self._end_seen = -1, -1
        self._held: Meta | None = None
        self._wanted = KEEP_FOR_EVER, 0
        with translated(self._path):
            self._connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=opening.timeout_seconds,
                isolation_level=None,
                check_same_thread=False,
            )
            # A damaged row may say that a blob is text, which need not be UTF-8.
            self._connection.text_factory = lambda text: text.decode(errors="replace")
            self._connection.execute(f"PRAGMA synchronous={'FULL' if opening.durable else 'NORMAL'}")
            self._connection.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT_BYTES}")
            found = self._connection.execute("SELECT uid, partition_number FROM meta").fetchone()
            self._note_format(self._read_format())
        if found != (opening.uid, opening.partition):
            self.close()
            raise Failed(
                "log_corrupt",
                "a file of the embedded log belongs to another partition",
                found=f"{self._path}: {found}",
                expected=(opening.uid, opening.partition),
            )

    def is_current(self) -> bool:
        """Whether the path still names the file that is open here.

        The inode cannot be given to another file while this connection holds it.
        """
        try:
            return self._path.stat().st_ino == self._inode
        except (FileNotFoundError, NotADirectoryError):
            return False

    def note_end(self, offset: int) -> None:
        """Remember the end for `still_ends_at`; inside `reading`, whose snapshot it is of."""
        self._end_seen = offset, self._changes()

    def still_ends_at(self, offset: int) -> bool:
        """Whether the end was noted there and no other connection has committed since: two thirds of a read.

        Its own commits do not count, and need not: the connections that read never move an end.
        """
        if offset != self._end_seen[0]:
            return False
        with translated(self._path):
            return self._changes() == self._end_seen[1]

    @contextmanager
    def reading(self) -> Iterator[Meta]:
        """One snapshot: everything read inside the block is of the moment of its meta row."""
        with translated(self._path), self._transaction("BEGIN"):
            if self._format < len(_UPGRADES):
                self._note_format(self._read_format())  # another connection may have brought it up
            yield self._meta()

    @contextmanager
    def writing(self) -> Iterator[Meta]:
        """One transaction that writes; it takes the write lock at once and commits when the block ends without error.

        Raises:
            OutcomeUnknown: ``append_unknown``: the commit itself failed, and not for want of room.
        """
        before = self._format
        try:
            with translated(self._path), self._transaction("BEGIN IMMEDIATE"):
                if before < len(_UPGRADES):
                    for statement in (s for upgrade in _UPGRADES[self._read_format() :] for s in upgrade):
                        self._connection.execute(statement)
                self._note_format(len(_UPGRADES))
                self._held = self._meta()
                yield self._held
        except BaseException:
            self._note_format(before)  # an upgrade that was rolled back; else it is read again
            raise

    def records(self, begin: int, end: int) -> pa.RecordBatch:
        """The records from ``begin`` on, which must be there: up to ``end``, or fewer when these are large.

        What lies before a damaged row is given without it: readers come up to the damage.

        Raises:
            Failed: ``log_corrupt``: some are missing, or a row does not hold what was appended.
        """
        rows: list[Row] = []
        size_bytes, complete = 0, True
        with closing(self._connection.execute(self._with_checksum(_READ), (begin, end))) as cursor:
            for checksum, *columns in cursor:
                row: Any = tuple(columns)
                try:
                    self._check(checksum, row, f"records from {row[0]} on")
                except Failed:
                    if not rows:
                        raise
                    complete = False
                    break
                rows.append(row)
                size_bytes += sum(map(len, row[3:]))
                if size_bytes >= _READ_BYTES:
                    complete = False
                    break
        try:
            found = unpacked(rows)
            first = rows[0][0] if rows else end
            if first > begin or first + found.num_rows <= begin or (complete and first + found.num_rows < end):
                raise ValueError("records are missing")
        except ValueError as error:
            raise self._corrupt(f"{error}: {len(rows)} rows", f"records in [{begin}, {end})") from error
        return found.slice(begin - first, end - begin)

    def appended_ms(self, offset: int) -> int:
        """The append time of the record at a readable offset: feeds begin where it says, so its row is proved whole.

        Raises:
            Failed: ``log_corrupt``.
        """
        row = self._connection.execute(self._with_checksum(_APPENDED), (offset,)).fetchone()
        if row is None:
            raise self._corrupt("none", f"a record at {offset}")
        checksum, *columns = row
        self._check(checksum, columns, f"records from {columns[0]} on")
        first, count, appended_ms, *_ = columns
        if first + count <= offset:
            raise self._corrupt("none", f"a record at {offset}")
        return int(appended_ms)

    def _corrupt(self, found: str, expected: str) -> Failed:
        return Failed(
            "log_corrupt",
            "a partition of the embedded log does not hold what was appended",
            found=f"{self._path}: {found}",
            expected=expected,
            hint="put the file back from a copy; without one: `A damaged log` in docs/operations.md",
        )

    def insert(self, first_offset: int, appended_ms: int, portions: Iterable[Packed]) -> None:
        """Insert records with one append time; part of a transaction that also moves the meta row."""
        for packed in portions:
            row: Row = (first_offset, packed.count, appended_ms, *packed.columns)
            self._connection.execute(_INSERT, (*row, row_checksum(row)))
            first_offset += packed.count

    def append_of(self, append_id: bytes) -> Appended | None:
        """The append that was made under an id, None where none is known; part of a transaction that writes.

        Raises:
            Failed: ``log_corrupt``.
        """
        query = "SELECT checksum, append_id, first_offset, next_offset, appended_ms FROM appends WHERE append_id = ?"
        row = self._connection.execute(query, (append_id,)).fetchone()
        if row is None:
            return None
        checksum, *columns = row
        self._check(checksum, columns, "an append's id")
        return Appended(*columns[1:])

    def note_append(self, append_id: bytes, appended: Appended) -> None:
        """Keep the id of an append, and forget the oldest beyond `APPENDS_KEPT`; part of the append's transaction."""
        columns = append_id, appended.first_offset, appended.next_offset, appended.last_ms
        insert = "INSERT INTO appends VALUES (NULL, ?, ?, ?, ?, ?)"
        number = self._connection.execute(insert, (*columns, row_checksum(columns))).lastrowid
        assert number is not None, "the row was inserted"
        self._connection.execute("DELETE FROM appends WHERE number <= ?", (number - APPENDS_KEPT,))

    def knows_appends_since(self, offset: int) -> bool:
        """Whether no id of an append at or behind an offset was forgotten; part of a transaction that writes."""
        row = self._connection.execute("SELECT number, first_offset FROM appends ORDER BY number LIMIT 1").fetchone()
        return row is None or row[0] == 1 or row[1] <= offset

    def move_end(self, next_offset: int, last_ms: int) -> None:
        """Note the end and the last time; part of the append's transaction (rule R3)."""
        self._set_meta(next_offset=next_offset, last_ms=last_ms)

    def set_open(self, *, is_open: bool, epoch: int) -> None:
        """Note whether appends are accepted; part of a transaction."""
        self._set_meta(is_open=is_open, open_epoch=epoch)

    def move_begin(self, begin: int) -> None:
        """Forget the records below ``begin``; part of a transaction. A row goes with its last record."""
        gone = "DELETE FROM batches WHERE first_offset < ? AND first_offset + record_count <= ?"
        self._connection.execute(gone, (begin, begin))
        self._set_meta(begin=begin)

    def kept_from(self, retention: Retention, now_ms: int, begin: int) -> int:
        """Where begin is to be next under a retention: before a row, and the newest row is kept; part of a transaction.

        What is dropped at once is `FORGOTTEN_ROWS` at most, because appends wait for the transaction that drops it.
        Where more is to go, the rows are not looked at again before it has gone: what is written since keeps none.
        """
        known, wanted = self._wanted
        if known != retention or wanted <= begin:
            wanted = self._wanted_from(retention, now_ms)
            self._wanted = retention, wanted
        most = self._connection.execute(_ROWS, (FORGOTTEN_ROWS,)).fetchone()
        return wanted if most is None else min(wanted, int(most[0]))

    def _wanted_from(self, retention: Retention, now_ms: int) -> int:
        """Where a retention keeps rows from: by the append time of their records, and by what these take."""
        execute = self._connection.execute
        (newest,) = execute("SELECT max(first_offset) FROM batches").fetchone()
        if newest is None:
            return 0
        begin = 0
        if retention.time_ms is not None:
            since = execute(_SINCE, (now_ms - retention.time_ms,)).fetchone()
            begin = newest if since is None else since[0]
        if retention.partition_bytes is not None and self._used_bytes() > retention.partition_bytes:
            begin = max(begin, self._newest_within(retention.partition_bytes, newest))
        return int(begin)

    def _newest_within(self, most_bytes: int, newest: int) -> int:
        """Where the newest rows begin that take so many bytes together; one is taken whatever its size."""
        within, left = newest, most_bytes
        with closing(self._connection.execute(_SIZES)) as sizes:
            for first_offset, size_bytes in sizes:
                left -= size_bytes
                if left < 0:
                    return int(within)
                within = first_offset
        return 0

    def _used_bytes(self) -> int:
        """What the file's pages hold, without those that wait to be used again: more than its rows' columns take."""
        size, count, free = (
            int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_size", "page_count", "freelist_count")
        )
        return size * (count - free)

    def close(self) -> None:
        """Let go of the file."""
        self._inode = -1  # which may be given to another file from now on
        self._connection.close()

    def _changes(self) -> int:
        """Another number whenever another connection has committed."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _meta(self) -> Meta:
        checksum, *columns = self._connection.execute(self._with_checksum(_META)).fetchone() or [b"", None]
        self._check(checksum, columns, "its meta row")
        begin, next_offset, last_ms, is_open, epoch = columns
        return Meta(begin, next_offset, last_ms, bool(is_open), epoch)

    def _set_meta(self, **changes: Any) -> None:
        assert self._held is not None, "the meta row changes inside of `writing`"
        self._held = replace(self._held, **changes)
        columns = self._held.columns
        self._connection.execute(_SET_META, (row_checksum(columns), *columns))

    def _note_format(self, found: int) -> None:
        self._format, self._checked = found, found >= 1

    def _read_format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _with_checksum(self, query: str) -> str:
        return query.format(checksum="checksum" if self._checked else "NULL")

    def _check(self, checksum: bytes | None, columns: Sequence[Any], what: str) -> None:
        """Raise unless a row is as it was written, as far as its file knows.

        Raises:
            Failed: ``log_corrupt``.
        """
        found = row_checksum(columns)
        if (checksum is not None and checksum != found) or not all(isinstance(value, int | bytes) for value in columns):
            kept = checksum.hex() if isinstance(checksum, bytes) else "none"
            raise self._corrupt(f"the checksum {found.hex()} of {what}", kept)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            meant = from_sqlite(error, self._path)
            if meant.code == "log_full":
                # A write to the WAL found no room, so that the frame that would commit is not there, whole or later.
                raise meant from error
            raise OutcomeUnknown(
                "append_unknown",
                "the embedded log did not say whether the change was committed",
                found=f"{self._path}: {error}",
                hint="repeat the append under its id, which finds it if it was committed",
            ) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # SQLite has rolled back by itself after some errors
            self._connection.execute("ROLLBACK")
