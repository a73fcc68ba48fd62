"""What the embedded log says when SQLite or the disk cannot answer, and how appends share a commit."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from anew.api.location import LogLocation
from anew.core.errors import AnewError, Failed, InvalidRequest, OutcomeUnknown, Unreachable
from anew.log import embedded, partition_file, sqlite_errors
from anew.log.embedded import EmbeddedLog
from anew.log.interface import Offsets, TopicPartition, TopicSpec, identified
from anew.log.open import open_log
from anew.testing.builders import some_records
from anew.testing.clock import ManualClock
from anew.testing.log_reading import keys
from tests.disks import filled, small_disk

TOPIC = TopicSpec("flights_rt", "uid-1", 1)
AT = TopicPartition("flights_rt", "uid-1", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """A log with one topic of one partition."""
    log = EmbeddedLog(tmp_path, clock=ManualClock())
    log.create_topic(TOPIC)
    yield log
    log.close()


def _file(directory: Path) -> Path:
    (path,) = directory.glob("flights_rt/p-*.sqlite")
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


def _until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("the condition never came true")


def test_a_lock_held_too_long_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends and truncations end with log_unreachable when the wait is over, change nothing, and reads go on."""
    monkeypatch.setattr(embedded, "_TIMEOUT_SECONDS", 0.05)
    log = EmbeddedLog(tmp_path, clock=ManualClock())
    log.create_topic(TOPIC)
    log.append(AT, some_records(2))
    with _locked(_file(tmp_path)):
        for change in (lambda: log.append(AT, some_records(1)), lambda: log.truncate_below(AT, 1)):
            with pytest.raises(Unreachable) as caught:
                change()
            assert caught.value.code == "log_unreachable"
        assert len(keys(log, AT)) == 2
    assert log.append(AT, some_records(1)).first_offset == 2
    log.close()


def test_a_damaged_file_is_corrupt(log: EmbeddedLog, tmp_path: Path) -> None:
    """Bytes that are no database, missing records, and rows cut short are log_corrupt, never an empty read."""
    for _ in range(5):
        log.append(AT, some_records(1))
    damages = (
        "DELETE FROM batches WHERE first_offset = 2",
        "UPDATE batches SET keys = x'' WHERE first_offset = 1",
        "UPDATE batches SET schema_ids = x'00' WHERE first_offset = 0",
        "DELETE FROM batches",
    )
    for damage in damages:
        with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
            other.execute(damage)
        with pytest.raises(Failed) as caught:
            _read_all(log)
        assert caught.value.code == "log_corrupt"
    log.close()
    _file(tmp_path).write_bytes(b"something else " * 1_000)
    with pytest.raises(Failed) as caught:
        EmbeddedLog(tmp_path, clock=ManualClock()).offsets(AT)
    assert caught.value.code == "log_corrupt"


def _read_all(log: EmbeddedLog) -> list[int]:
    """Where each read came to: one comes up to what is damaged, and the next one fails."""
    reached = [0]
    while reached[-1] < 5:
        reached.append(log.read(AT, reached[-1], 10).next_offset)
        assert reached[-1] > reached[-2]
    return reached


def test_what_lies_before_a_damaged_row_is_read(log: EmbeddedLog, tmp_path: Path) -> None:
    """It was acknowledged, and waits for nobody to mend the file; what follows does."""
    for _ in range(5):
        log.append(AT, some_records(1))
    whole = log.read(AT, 0, 10).records
    with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
        other.execute("UPDATE batches SET value_bytes = x'00' WHERE first_offset = 3")
    read = log.read(AT, 0, 10)
    assert (read.next_offset, read.records) == (3, whole.slice(0, 3))
    with pytest.raises(Failed, match="records from 3 on"):
        log.read(AT, 3, 10)
    assert log.read(AT, 4, 10).records == whole.slice(4)


@pytest.mark.case("rules:R3")
def test_another_partition_s_file_is_noticed(log: EmbeddedLog, tmp_path: Path) -> None:
    """A file that was put in another's place is log_corrupt: its meta row says whose it is."""
    log.create_topic(TopicSpec("other_rt", "uid-2", 1))
    log.close()
    (other,) = tmp_path.glob("other_rt/p-*.sqlite")
    other.replace(_file(tmp_path))
    with pytest.raises(Failed) as caught:
        EmbeddedLog(tmp_path, clock=ManualClock()).offsets(AT)
    assert caught.value.code == "log_corrupt"


@contextmanager
def _unanswered_commits(monkeypatch: pytest.MonkeyPatch, *, landed: bool) -> Iterator[None]:
    """Commits of which nobody learns the outcome."""
    put = partition_file.PartitionFile.move_end

    def move_end(self: partition_file.PartitionFile, next_offset: int, last_ms: int) -> None:
        put(self, next_offset, last_ms)
        if landed:
            self._connection.execute("COMMIT")
            self._connection.execute("BEGIN IMMEDIATE")
        raise OutcomeUnknown("append_unknown", "lost")

    with monkeypatch.context() as patched:
        patched.setattr(partition_file.PartitionFile, "move_end", move_end)
        yield


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("kept", [1, 100])
def test_a_commit_without_an_answer_is_repeated_once(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, *, landed: bool, kept: int
) -> None:
    """The repeat finds what was committed and makes what was not; where ids were forgotten since, it says unknown."""
    monkeypatch.setattr(partition_file, "APPENDS_KEPT", kept)
    log.append(AT, identified(some_records(1)))
    records = identified(some_records(2))
    with _unanswered_commits(monkeypatch, landed=landed), pytest.raises(OutcomeUnknown):
        log.append(AT, records)
    for _ in range(2):
        log.append(AT, identified(some_records(1)))
    end = log.offsets(AT).end
    if kept == 1:
        with pytest.raises(OutcomeUnknown) as caught:
            log.append(AT, records)
        assert "does not know any more" in caught.value.message
    else:
        assert log.append(AT, records).first_offset == (1 if landed else end)
    assert log.offsets(AT).end == end + (2 if kept > 1 and not landed else 0)


def test_a_file_of_an_earlier_format_learns_to_know_appends(log: EmbeddedLog, tmp_path: Path) -> None:
    """A file from before ids were kept is read as it is, and the next append brings it up to date."""
    log.append(AT, some_records(1))
    log.close()
    with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
        other.execute("DROP TABLE appends")
        other.execute("PRAGMA user_version = 1")
    records = identified(some_records(2))
    with closing(EmbeddedLog(tmp_path, clock=ManualClock())) as later:
        assert len(keys(later, AT)) == 1
        assert later.append(AT, records) == later.append(AT, records)
        assert later.offsets(AT) == Offsets(0, 3)


def test_a_damaged_id_is_corrupt(log: EmbeddedLog, tmp_path: Path) -> None:
    """An id whose row is not what was written finds nothing: the answer would be wrong offsets."""
    records = identified(some_records(2))
    log.append(AT, records)
    with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
        other.execute("UPDATE appends SET next_offset = 7")
    with pytest.raises(Failed) as caught:
        log.append(AT, records)
    assert caught.value.code == "log_corrupt"


def test_a_full_disk_changes_nothing(log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that finds no space is log_full, leaves nothing of itself, and the next one goes on."""
    log.append(AT, some_records(1))
    connect = sqlite3.connect

    def small(*arguments: object, **keywords: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **keywords)  # type: ignore[call-overload]  # passed on
        connection.execute("PRAGMA max_page_count=8")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    with closing(EmbeddedLog(tmp_path, clock=ManualClock())) as full:
        with pytest.raises(Unreachable) as caught:
            full.append(AT, some_records(10_000))
        assert caught.value.code == "log_full"
        assert full.append(AT, some_records(1)).first_offset == 1
    assert log.offsets(AT) == Offsets(0, 2)


@pytest.mark.processes
def test_a_disk_without_room_refuses_the_commit_as_well(tmp_path: Path) -> None:
    """On a disk that is really full each append is log_full, whichever of its writes found no room; then it goes on."""
    with small_disk(tmp_path / "disk", 8), closing(EmbeddedLog(tmp_path / "disk" / "log", clock=ManualClock())) as log:
        log.create_topic(TOPIC)
        log.append(AT, some_records(1))
        with filled(tmp_path / "disk"):
            for count in (1, 10, 1_000):
                with pytest.raises(Unreachable) as caught:
                    log.append(AT, some_records(count))
                assert caught.value.code == "log_full"
            assert log.offsets(AT) == Offsets(0, 1)
        assert log.append(AT, some_records(1)).first_offset == 1


def test_appends_that_wait_share_one_commit(log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes while the leader waits for its turn is committed in one transaction with one shared fsync."""
    log.append(AT, some_records(1))
    group = log._writer(AT).group
    sizes: list[int] = []
    commit = group._commit

    def counted(batches: object) -> object:
        sizes.append(len(batches))  # type: ignore[arg-type]  # a sequence of batches
        return commit(batches)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(group, "_commit", counted)
    with ThreadPoolExecutor(8) as pool:
        with _locked(_file(tmp_path)):
            leader = pool.submit(log.append, AT, some_records(1))
            _until(lambda: sizes == [1])
            others = [pool.submit(log.append, AT, some_records(2)) for _ in range(7)]
            _until(lambda: len(group._waiting) == 7)
        firsts = sorted(future.result().first_offset for future in (leader, *others))
    assert sizes == [1, 7]
    assert firsts == [1, 2, 4, 6, 8, 10, 12, 14]


def test_a_shared_error_is_raised_by_each_on_its_own(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the common transaction fails every caller gets an error object of its own."""
    gate = threading.Event()
    calls: list[int] = []
    group = log._writer(AT).group

    def refuse(batches: object) -> object:
        calls.append(len(batches))  # type: ignore[arg-type]  # a sequence of batches
        gate.wait(10)
        raise Unreachable("log_unreachable", "no answer")

    monkeypatch.setattr(group, "_commit", refuse)

    def append() -> AnewError:
        with pytest.raises(Unreachable) as caught:
            log.append(AT, some_records(1))
        return caught.value

    with ThreadPoolExecutor(4) as pool:
        errors = [pool.submit(append) for _ in range(4)]
        _until(lambda: len(calls) == 1 and len(group._waiting) == 3)
        gate.set()
        assert len({id(future.result()) for future in errors}) == 4


def test_a_thread_that_never_gets_a_turn_gives_up(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting append ends at its deadline with log_unreachable and is not committed later."""
    log.append(AT, some_records(1))
    gate = threading.Event()
    group = log._writer(AT).group
    commit = group._commit

    def slow(batches: object) -> object:
        gate.wait(10)
        return commit(batches)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(group, "_commit", slow)
    monkeypatch.setattr(group, "_timeout_seconds", 0.05)
    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(log.append, AT, some_records(1, "leader"))
        _until(lambda: group._led and not group._waiting)
        with pytest.raises(Unreachable) as caught:
            log.append(AT, some_records(1, "late"))
        gate.set()
        leader.result()
    assert caught.value.code == "log_unreachable"
    assert keys(log, AT, 1) == [b"leader-0"]


def test_system_errors_keep_their_meaning(tmp_path: Path) -> None:
    """A missing permission or device is log_unreachable, a full disk log_full."""
    for number, code in ((28, "log_full"), (5, "log_unreachable")):
        with pytest.raises(Unreachable) as caught, sqlite_errors.translated(tmp_path):
            raise OSError(number, "error")
        assert caught.value.code == code


def test_logs_are_opened_by_kind(tmp_path: Path) -> None:
    """The embedded kind opens a directory; other kinds are refused by name."""
    log = open_log(LogLocation(kind="embedded", address=str(tmp_path / "log")), clock=ManualClock(), durable=False)
    log.create_topic(TOPIC)
    assert log.append(AT, some_records(2)).next_offset == 2
    log.close()
    with pytest.raises(InvalidRequest) as caught:
        open_log(LogLocation(kind="pulsar", address="somewhere"), clock=ManualClock())
    assert caught.value.code == "unknown_log_kind"


def test_an_upgrade_that_was_rolled_back_leaves_the_file_writable(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that finds no room in the transaction that upgrades leaves the old file, and a log that knows it."""

    def no_room(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    log.append(AT, some_records(1))
    log.close()
    with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
        other.execute("DROP TABLE appends")
        other.execute("PRAGMA user_version = 1")
    with closing(EmbeddedLog(tmp_path, clock=ManualClock())) as later:
        records = identified(some_records(2))
        with monkeypatch.context() as patched:
            patched.setattr(partition_file.PartitionFile, "insert", no_room)
            with pytest.raises(AnewError):
                later.append(AT, records)
        assert len(keys(later, AT)) == 1
        assert later.append(AT, records) == later.append(AT, records)


def test_a_damaged_append_time_finds_no_offset(tmp_path: Path) -> None:
    """Feeds begin where a search by time says, so that a row whose time was altered ends the search."""
    clock = ManualClock()
    with closing(EmbeddedLog(tmp_path, clock=clock)) as log:
        log.create_topic(TOPIC)
        begun_ms = clock()
        for _ in range(9):
            log.append(AT, some_records(1))
            clock.advance(1_000)
        with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
            other.execute("UPDATE batches SET appended_ms = appended_ms - 524288 WHERE first_offset = 4")
        with pytest.raises(Failed) as caught:
            log.offset_for_time(AT, begun_ms + 3_000)
        assert caught.value.code == "log_corrupt"


def test_a_reader_from_before_an_upgrade_proves_what_comes_after_it(log: EmbeddedLog, tmp_path: Path) -> None:
    """It opened a file without checksums; since another process has brought it up, it checks them as all others do."""
    log.append(AT, some_records(1))
    log.close()
    with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
        other.execute("DROP TABLE appends")
        for table in ("meta", "batches"):
            other.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        other.execute("PRAGMA user_version = 0")
    with (
        closing(EmbeddedLog(tmp_path, clock=ManualClock())) as reader,
        closing(EmbeddedLog(tmp_path, clock=ManualClock())) as writer,
    ):
        assert len(keys(reader, AT)) == 1
        writer.append(AT, some_records(1, "later"))
        assert len(keys(reader, AT)) == 2
        with closing(sqlite3.connect(_file(tmp_path), isolation_level=None)) as other:
            other.execute("UPDATE batches SET keys = CAST('later-1' AS BLOB) WHERE first_offset = 1")
        with pytest.raises(Failed) as caught:
            reader.read(AT, 1, 10)
        assert caught.value.code == "log_corrupt"
