"""What a task does with one segment, without Spark: fetch, prove or make again, put, read back."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.core.errors import Failed
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Build
from anew.deepstore.arrow import ArrowDeepStore
from anew.deepstore.open import open_deep_store
from anew.segments.tables.rebuild import make_file
from anew.spark.tables.segmenttask import SegmentTask, rebuild_segment
from anew.testing.clock import NOON_MS
from tests.component.segments_tables.rows import COLUMNS, config_of, trips
from tests.disks import filled, small_disk

_NOW, _WANTED = config_of(COLUMNS, sort="id"), config_of(COLUMNS, sort="city")
_DIRECTORY, _SOURCE = "tables/u1/r1-e1", "tables/u1/r0-e1/s0-t1.parquet"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Spark lets tasks keep files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    return folder


def _deep(tmp_path: Path) -> str:
    return str(tmp_path / "deep")


def _build(tmp_path: Path, config: SegmentConfig = _NOW) -> Build:
    made = tmp_path / f"made-{config.hash}.parquet"
    rebuilt = make_file(trips(), made, config)
    open_deep_store(_deep(tmp_path)).put(_SOURCE, made.read_bytes())
    return Build(
        id="b1",
        path=_SOURCE,
        bytes=rebuilt.bytes,
        sha256=rebuilt.sha256,
        config_hash=config.hash,
        contents=rebuilt.contents,
        built_at_ms=NOON_MS,
    )


def _task(tmp_path: Path, source: Build, wanted: SegmentConfig = _WANTED) -> SegmentTask:
    return SegmentTask(_deep(tmp_path), _DIRECTORY, "s0", source, _NOW, wanted)


def _stored(tmp_path: Path) -> dict[str, bytes]:
    root = Path(_deep(tmp_path))
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.parquet")}


@pytest.mark.case("tables:D2", "tables:C9")
def test_a_build_goes_to_a_path_of_its_own_attempt(tmp_path: Path, scratch: Path) -> None:
    """Attempts never meet, the source stays as it is, what is told is what lies there, and scratch is empty again."""
    source = _build(tmp_path)
    before = _stored(tmp_path)
    one, two = (rebuild_segment(_task(tmp_path, source), attempt) for attempt in ("t7", "t8"))
    after = _stored(tmp_path)
    assert (
        {one.path, two.path} == after.keys() - before.keys() == {f"{_DIRECTORY}/s0-{a}.parquet" for a in ("t7", "t8")}
    )
    assert after[_SOURCE] == before[_SOURCE]
    assert hashlib.sha256(after[one.path]).hexdigest() == one.sha256 == two.sha256
    assert pq.read_table(pa.BufferReader(after[one.path])).equals(
        pq.read_table(pa.BufferReader(before[_SOURCE])).sort_by([("city", "ascending"), ("id", "ascending")])
    )
    assert list(scratch.iterdir()) == []


@pytest.mark.case("tables:A4")
def test_bytes_that_satisfy_the_configuration_are_not_made_again(tmp_path: Path, scratch: Path) -> None:
    """The answer names the source itself, and nothing is written."""
    source = _build(tmp_path, config_of(COLUMNS))
    answer = rebuild_segment(_task(tmp_path, source, _NOW), "t1")
    assert (answer.path, answer.attempt, answer.why) == (_SOURCE, "", ())
    assert _stored(tmp_path).keys() == {_SOURCE}
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("damage", "code"), [("changed", "checksum_mismatch"), ("removed", "file_missing")])
def test_a_source_that_is_not_what_it_was_is_refused(tmp_path: Path, scratch: Path, damage: str, code: str) -> None:
    """A file that was changed or removed behind our back is never made into a build."""
    source = _build(tmp_path)
    file = Path(_deep(tmp_path)) / _SOURCE
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage == "changed":
        content[100] ^= 1
        file.write_bytes(bytes(content))
    with pytest.raises(Failed) as caught:
        rebuild_segment(_task(tmp_path, source), "t1")
    assert caught.value.code == code
    assert _stored(tmp_path).keys() <= {_SOURCE}
    assert list(scratch.iterdir()) == []


@pytest.mark.case("tables:D2")
def test_what_was_stored_otherwise_than_written_is_refused(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read back from where it lies before anybody is told of it."""
    source = _build(tmp_path)
    write = ArrowDeepStore.write

    @contextmanager
    def corrupts(self: ArrowDeepStore, path: str) -> Iterator[Any]:
        with write(self, path) as sink:
            yield sink
            sink.write(b"x")

    monkeypatch.setattr(ArrowDeepStore, "write", corrupts)
    with pytest.raises(Failed) as caught:
        rebuild_segment(_task(tmp_path, source), "t1")
    assert caught.value.code == "checksum_mismatch"
    assert list(scratch.iterdir()) == []


@pytest.mark.processes
def test_a_full_scratch_disk_ends_the_task_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored, nothing is left behind, and with room the same task works."""
    source, disk = _build(tmp_path), tmp_path / "disk"
    with small_disk(disk, 4):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(disk))
        with filled(disk), pytest.raises(OSError, match=r"No space left") as caught:
            rebuild_segment(_task(tmp_path, source), "t1")
        assert caught.value.errno == errno.ENOSPC
        assert _stored(tmp_path).keys() == {_SOURCE}
        assert list(disk.iterdir()) == []
        assert rebuild_segment(_task(tmp_path, source), "t2").attempt == "t2"
