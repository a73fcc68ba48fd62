"""Bases that go through the log instead of files: the same rows, those of the attempts that count (rule R23)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anew.core.errors import Failed
from anew.core.merge import Cell
from anew.core.stamp import BATCH, Stamp
from anew.segments.manifest import Manifest
from anew.spark.stores import build
from anew.testing.builders import ORIGIN
from tests.spark.dying import dying_once
from tests.spark.world import World

_COUNT = 60


def _filled(make_world: Callable[..., World], **settings: Any) -> World:
    """A world with a base in files, and writes and deletes on top of it."""
    world = make_world(**settings)
    base = {b"\x04%02d" % n: Cell(Stamp(0, BATCH.encoded), b"base %d" % n, 1) for n in range(_COUNT)}
    world.base({**base, b"\x02j": Cell(Stamp(77, ORIGIN, False, 1, 1, 5), b"nearline before", 3)})
    for n in range(0, _COUNT, 3):
        world.write(b"\x04%02d" % n, None if n % 2 else b"written %d" % n)
    return world


def _in_topic(manifest: Manifest) -> bool:
    return manifest.files == () and len(manifest.ranges) > 0


@pytest.mark.parametrize("path", ["general", "copartitioned"])
@pytest.mark.parametrize("factor", [1, 2])
def test_a_base_goes_into_the_log_and_out_of_it(make_world: Callable[..., World], path: str, factor: int) -> None:
    """Files to log, log to log, log to files: every cell stays what it is, the fingerprint too."""
    world = _filled(make_world)
    in_files = world.repush(path=path)
    cells = world.cells(in_files)
    world.configure(transport="log", amplification_factor=factor)
    for _ in range(2):
        manifest = world.repush(path=path)
        assert _in_topic(manifest)
        assert world.cells(manifest) == cells
        assert manifest.ref("m").fingerprint == in_files.ref("m").fingerprint
        assert [world.log.offsets(part.at).begin for part in manifest.ranges] == [0] * len(manifest.ranges)
    world.configure(transport="files", partitions=4)
    back = world.repush(path=path)
    assert back.ranges == ()
    assert world.cells(back) == cells


def test_a_dictionary_travels_with_the_rows(make_world: Callable[..., World]) -> None:
    """SOP carries the dictionary that the values need, the same that lies beside the manifest."""
    world = make_world(compression="none")
    values = {b"\x08%04d" % n: b'{"airport": "JFK", "carrier": "UA", "number": %d}' % n for n in range(4_000)}
    world.base({key: Cell(Stamp(0, BATCH.encoded), value, 1) for key, value in values.items()})
    world.configure(transport="log", compression="zstd_dict")
    manifest = world.repush()
    assert _in_topic(manifest)
    assert manifest.dictionary is not None
    assert world.values(manifest) == values
    first = manifest.ranges[0]
    start = world.log.read(first.at, 0, 1).records.column("value")[0].as_py()
    assert b'"dictionary":"' in start
    assert manifest.config_hash.encode() in start
    world.configure(compression="gzip")
    assert world.values(world.repush()) == values


@pytest.mark.case("stores:G6", "rules:R23")
def test_a_retried_task_counts_once(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A task that dies after it has appended everything is tried again: what it left in the topic does not count."""
    world = _filled(make_world)
    expected = world.cells(world.repush())
    world.configure(transport="log")
    flag = tmp_path / "died"
    monkeypatch.setattr(build, "merge_and_write", dying_once(flag))
    manifest = world.repush()
    assert flag.exists()
    assert world.cells(manifest) == expected
    ends = sum(world.log.offsets(part.at).end for part in manifest.ranges)
    assert ends > sum(end - begin for part in manifest.ranges for begin, end in part.pieces), "more lies in the topic"


@pytest.mark.case("stores:G7")
def test_a_source_that_lost_records_is_not_rebuilt_from(make_world: Callable[..., World]) -> None:
    """A repush of a base whose range was truncated fails, and says where."""
    world = _filled(make_world)
    world.configure(transport="log")
    part = world.repush().ranges[0]
    world.log.truncate_below(part.at, 3)
    with pytest.raises(Failed, match="was truncated"):
        world.repush()
