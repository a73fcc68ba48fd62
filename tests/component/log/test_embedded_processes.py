"""The embedded log among processes: several at once, and some killed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from anew.log.embedded import EmbeddedLog
from anew.log.interface import Offsets, TopicPartition, TopicSpec, present_partitions
from anew.testing.builders import some_records
from anew.testing.clock import ManualClock
from anew.testing.log_reading import keys

pytestmark = pytest.mark.processes

TOPIC = TopicSpec("flights_rt", "uid-1", 1)
AT = TopicPartition("flights_rt", "uid-1", 0)
_PROGRAM = Path(__file__).parent / "log_process.py"

_DIE_BEFORE_THE_COMMIT = """
import os, sys
from pathlib import Path
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicPartition
from anew.log.partition_file import PartitionFile
from anew.testing.builders import some_records
from anew.testing.clock import ManualClock
PartitionFile.move_end = lambda *_: os.kill(os.getpid(), 9)
log = EmbeddedLog(Path(sys.argv[1]), clock=ManualClock())
log.append(TopicPartition("flights_rt", "uid-1", 0), some_records(50_000, "torn"))
"""

_DIE_BEFORE_THE_RENAME = """
import os, sys
from pathlib import Path
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicSpec
from anew.testing.clock import ManualClock
log = EmbeddedLog(Path(sys.argv[1]), clock=ManualClock())
Path.rename = lambda *_: os.kill(os.getpid(), 9)
log.create_topic(TopicSpec("flights_rt", "uid-1", 3))
"""

_DIE_AT_A_RENAME = """
import itertools, os, shutil, sys
from pathlib import Path
from anew.log.embedded import EmbeddedLog
from anew.testing.clock import ManualClock
log = EmbeddedLog(Path(sys.argv[1]), clock=ManualClock())
rename, numbers = Path.rename, itertools.count()

def die(*_):
    os.kill(os.getpid(), 9)

Path.rename = lambda *paths: die() if next(numbers) == int(sys.argv[2]) else rename(*paths)
shutil.rmtree = die
log.add_partitions("flights_rt", "uid-1", 3)
"""


def _start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(_PROGRAM), arguments[0], str(directory), *arguments[1:]]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _log(directory: Path) -> EmbeddedLog:
    log = EmbeddedLog(directory, clock=ManualClock())
    log.create_topic(TOPIC)
    return log


def _die(program: str, directory: Path, *arguments: str) -> None:
    run = subprocess.run([sys.executable, "-c", program, str(directory), *arguments], check=False)
    assert run.returncode == -9


def test_two_writers_and_a_reader(tmp_path: Path) -> None:
    """Two processes append while a third reads: offsets are dense, batches whole, the reader sees each record once."""
    log = _log(tmp_path)
    processes = [
        _start(tmp_path, "append", "a", "100", "5"),
        _start(tmp_path, "append", "b", "100", "5"),
        _start(tmp_path, "read", "1000"),
    ]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    read: list[str] = json.loads(outputs[2][0])
    for name, lines in zip("ab", outputs, strict=False):
        assert len(lines) == 100
        for number, (first, following) in enumerate(map(json.loads, lines)):
            assert read[first:following] == [f"{name}-{number}-{row}" for row in range(5)]
    assert len(set(read)) == 1_000
    assert log.offsets(AT) == Offsets(0, 1_000)
    log.close()


@pytest.mark.case("rules:R3")
def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    """After kill −9 while appending, all that was acknowledged is there, every batch is whole, and counting goes on."""
    log = _log(tmp_path)
    for _ in range(3):
        writer = _start(tmp_path, "append", "a", "0", "20")
        assert writer.stdout is not None
        acknowledged = [json.loads(writer.stdout.readline()) for _ in range(30)][-1][1]
        writer.kill()
        writer.communicate(timeout=30)
        end = log.offsets(AT).end
        assert end >= acknowledged
        found = keys(log, AT)
        assert len(found) == end
        for at in range(0, end, 20):
            batch = found[at].rpartition(b"-")[0]
            assert found[at : at + 20] == [batch + b"-%d" % row for row in range(20)]
        assert end % 20 == 0
    log.close()


@pytest.mark.case("rules:R3", "rules:R5")
def test_records_never_come_without_their_end(tmp_path: Path) -> None:
    """A kill between inserting records and moving the end leaves neither: both are one transaction."""
    log = _log(tmp_path)
    log.append(AT, some_records(3))
    _die(_DIE_BEFORE_THE_COMMIT, tmp_path)
    assert log.offsets(AT) == Offsets(0, 3)
    assert log.append(AT, some_records(1, "next")).first_offset == 3
    assert keys(log, AT, 3) == [b"next-0"]
    log.close()


@pytest.mark.case("rules:R3")
def test_the_hole_that_the_meta_row_closes(tmp_path: Path) -> None:
    """SQLite's own row numbers start again when a table is emptied; the log's offsets do not."""
    with closing(sqlite3.connect(":memory:")) as bare:
        bare.execute("CREATE TABLE records (position INTEGER PRIMARY KEY, value)")
        bare.executemany("INSERT INTO records (value) VALUES (?)", [(1,), (2,)])
        bare.execute("DELETE FROM records")
        bare.execute("INSERT INTO records (value) VALUES (3)")
        assert bare.execute("SELECT position FROM records").fetchall() == [(1,)], "used before: the hole"
    log = _log(tmp_path)
    log.append(AT, some_records(2))
    log.truncate_below(AT, 2)
    assert log.append(AT, some_records(1)).first_offset == 2
    log.close()


def test_a_killed_creator_leaves_nothing(tmp_path: Path) -> None:
    """A topic whose creator was killed before the rename is not there, and the next create sweeps and makes it."""
    _die(_DIE_BEFORE_THE_RENAME, tmp_path)
    assert list(tmp_path.glob(".new-*")), "the hole that the rename closes: half a topic is on the disk"
    log = EmbeddedLog(tmp_path, clock=ManualClock())
    assert log.topic("flights_rt") is None
    log.create_topic(TopicSpec("flights_rt", "uid-1", 3))
    assert log.append(AT, some_records(1)).first_offset == 0
    assert list(tmp_path.glob(".new-*")) == []
    log.close()


@pytest.mark.parametrize(("renames", "partitions"), [(0, 1), (1, 1), (2, 1), (3, 3)])
def test_partitions_that_are_added_are_there_all_or_none(tmp_path: Path, renames: int, partitions: int) -> None:
    """Killed behind each rename the topic has its first partitions or all; a repeat makes the rest, once."""
    log = _log(tmp_path)
    log.append(AT, some_records(2))
    _die(_DIE_AT_A_RENAME, tmp_path, str(renames))
    assert log.partition_count("flights_rt", "uid-1") == partitions
    assert log.add_partitions("flights_rt", "uid-1", 3) == 3
    places = present_partitions(log, "flights_rt", "uid-1")
    assert [log.offsets(at) for at in places] == [Offsets(0, 2), Offsets(0, 0), Offsets(0, 0)]
    assert log.append(places[2], some_records(1)).first_offset == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "flights_rt"]
    log.close()
