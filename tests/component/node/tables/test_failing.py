"""Segments that cannot be had: the others and the old builds serve on, and what failed is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.api.tables.segments import DesiredTable, SegmentState
from tests.component.node.tables.harness import (
    COLUMNS,
    PLAIN,
    SORTED,
    Rig,
    cut,
    damage,
    flipped,
    raised,
    rig,
    rows,
    segment,
    table,
)
from tests.component.segments_tables.rows import config_of
from tests.disks import filled, small_disk

NUMBERED = config_of({**COLUMNS, "city": "bigint"})
"""Cities are no numbers: nothing can be made with this."""


@pytest.fixture
def node(tmp_path: Path) -> Rig:
    """A node with an empty disk."""
    return rig(tmp_path)


def ids(node: Rig, wanted: DesiredTable, name: str = "s0") -> list[int]:
    """The ids that queries of a segment find, ascending."""
    found: list[Any] = pq.read_table(node.path(wanted, name), partitioning=None)["id"].to_pylist()
    return sorted(found)


def pauses(node: Rig, count: int) -> list[float]:
    """How long the node waits before each of so many further attempts."""
    found = []
    for _ in range(count):
        before, begun = len(node.loader.done), node.clock.seconds
        while len(node.loader.done) == before:
            node.clock.seconds += 0.25
            node.work()
            assert node.clock.seconds - begun < 200, "it is not tried again"
        found.append(node.clock.seconds - begun)
    return found


@pytest.mark.case("tables:E4")
@pytest.mark.parametrize("harm", [cut, flipped, lambda _content: b""], ids=["cut", "flipped", "empty"])
def test_what_is_not_the_build_is_never_served(node: Rig, harm: Callable[[bytes], bytes]) -> None:
    """A cut file, or one with another bit, is refused by its checksum; the old build serves until the file is right."""
    first, two = table(segment(node.build(rows(0)))), node.build(rows(100))
    node.settle(first)
    before, right = node.files(), node.in_deep_store(two).read_bytes()
    damage(node.in_deep_store(two), harm(right))
    second = table(segment(two))
    node.settle(second)
    report = node.report()
    assert (report.state, report.build) == (SegmentState.ERROR, "b1")
    assert report.error is not None
    assert (two.path in report.error, two.sha256 in report.error) == (True, True)
    assert raised("checksum_mismatch", node.loader.done[-1].run).expected == two.sha256
    assert ids(node, second) == list(range(40))
    damage(node.in_deep_store(two), right)
    node.clock.seconds += 0.5
    node.work()
    report = node.report()
    assert (report.state, report.build, report.error) == (SegmentState.SERVING, "b2", None)
    assert ids(node, second) == list(range(100, 140))
    assert not before & node.files()
    assert node.files() == {node.path(second), node.path(second).parent / "copy.json"}


@pytest.mark.case("tables:E4")
def test_what_fails_is_tried_again_with_longer_and_longer_pauses(node: Rig) -> None:
    """Pauses double from half a second to a minute; another build is tried at once, and begins with short ones."""
    lost, other = node.build(rows(0)), node.build(rows(100))
    for build in (lost, other):
        node.deep.delete(build.path)
    node.settle(table(segment(lost)))
    assert pauses(node, 9) == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    done = len(node.loader.done)
    node.settle(table(segment(lost), revision=2))
    assert len(node.loader.done) == done
    node.settle(table(segment(other), revision=3))
    assert [job.build.id for job in node.loader.done[done:]] == [other.id]
    assert pauses(node, 2) == [0.5, 1]


@pytest.mark.case("tables:E4")
def test_what_failed_leaves_nothing_behind(node: Rig) -> None:
    """However often a download fails, no part of it stays on the disk, and none of what was served goes."""
    node.settle(table(segment(node.build(rows(0)))))
    before, two = node.files(), node.build(rows(100))
    damage(node.in_deep_store(two), cut(node.in_deep_store(two).read_bytes()))
    node.settle(table(segment(two)))
    assert pauses(node, 3) == [0.5, 1, 2]
    assert node.files() == before
    assert not [path for path in node.directory.glob("*/*/*") if path.name == two.id]


@pytest.mark.case("tables:E8")
def test_what_cannot_be_loaded_leaves_the_others_alone(node: Rig) -> None:
    """A damaged, a lost and an unfitting segment of two tables are listed with their reasons; all others serve."""
    builds = [node.build(rows(100 * number)) for number in range(5)]
    damage(node.in_deep_store(builds[0]), b"no parquet")
    node.deep.delete(builds[2].path)
    first = table(segment(builds[0], "damaged"), segment(builds[1], "right"))
    second = table(segment(builds[2], "lost"), segment(builds[3], "well"), uid="u2", name="other")
    third = table(segment(builds[4], "unfit"), config=NUMBERED, uid="u3", name="third")
    node.settle(first, second, third)
    states = {report.segment: (report.table_uid, report.state, report.build) for report in node.host.report()}
    assert states == {
        "damaged": ("u1", SegmentState.ERROR, None),
        "right": ("u1", SegmentState.SERVING, "b2"),
        "lost": ("u2", SegmentState.ERROR, None),
        "well": ("u2", SegmentState.SERVING, "b4"),
        "unfit": ("u3", SegmentState.ERROR, None),
    }
    reasons = {report.segment: report.error for report in node.host.report() if report.error is not None}
    assert builds[0].sha256 in reasons["damaged"]
    assert "missing from the deep store" in reasons["lost"]
    assert ("city" in reasons["unfit"], "'city " in reasons["unfit"]) == (True, True)
    assert sorted(reasons) == ["damaged", "lost", "unfit"]
    assert ids(node, first, "right") == list(range(100, 140))
    assert ids(node, second, "well") == list(range(300, 340))


@pytest.mark.case("tables:E8", "tables:E5")
def test_a_reload_that_fails_leaves_the_copy_before(node: Rig) -> None:
    """A copy that cannot be made again is served as it was, says so, and is made when the configuration fits again."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    before = node.files()
    node.settle(table(segment(build, reload=1), config=NUMBERED))
    report = node.report()
    assert (report.state, report.config_hash, report.reload) == (SegmentState.ERROR, PLAIN.hash, 0)
    assert report.error is not None
    assert "city" in report.error
    assert node.files() == before
    fits = table(segment(build, reload=1), config=SORTED)
    node.settle(fits)
    report = node.report()
    assert (report.state, report.config_hash, report.reload) == (SegmentState.SERVING, SORTED.hash, 1)
    assert ids(node, fits) == list(range(40))


@contextmanager
def room_for(disk: Path, bytes_free: int) -> Iterator[None]:
    """The disk has room for so many bytes and no more."""
    with filled(disk):
        filler = disk / "filler"
        size = filler.stat().st_size
        with filler.open("r+b") as file:
            file.truncate(size - bytes_free)
        yield


@pytest.mark.processes
@pytest.mark.case("tables:E4")
@pytest.mark.parametrize("way", ["download", "start", "reload"])
def test_a_full_disk_keeps_the_old_copy(node: Rig, way: str) -> None:
    """While there is no room the old copy serves and it is tried again; with room the wanted one comes, and no more."""
    one, two = node.build(many()), node.build(many(10), SORTED)
    wanted = {
        "download": table(segment(two), config=SORTED),
        "start": table(segment(one), config=SORTED),
        "reload": table(segment(one, reload=1), config=SORTED),
    }[way]
    with small_disk(node.directory, 4):
        node.settle(table(segment(one)))
        before = node.files()
        if way == "start":
            node.restart()
        with filled(node.directory):
            node.settle(wanted)
            for _ in range(3):
                report = node.report()
                assert (report.state, report.build, report.config_hash) == (SegmentState.ERROR, one.id, PLAIN.hash)
                assert report.error is not None
                assert "No space left" in report.error
                assert node.files() - {node.directory / "filler"} == before
                assert len(ids(node, wanted)) == many().num_rows
                pauses(node, 1)
        pauses(node, 1)
        report = node.report()
        assert (report.state, report.build) == (SegmentState.SERVING, wanted.segments[0].build.id)
        assert (report.config_hash, report.error) == (SORTED.hash, None)
        assert node.files() == {node.path(wanted), node.path(wanted).parent / "copy.json"}


@pytest.mark.processes
@pytest.mark.case("tables:E4")
def test_a_disk_with_room_for_the_download_alone(node: Rig) -> None:
    """What was fetched whole is not fetched again when it could not be made again; no half of what was made stays."""
    one, two = node.build(many()), node.build(many(10))
    wanted = table(segment(two), config=SORTED)
    with small_disk(node.directory, 4):
        node.settle(table(segment(one)))
        with room_for(node.directory, two.bytes + 4 * 4096):
            node.settle(wanted)
            assert (node.report().state, node.report().build) == (SegmentState.ERROR, one.id)
            assert "No space left" in str(node.report().error)
            kept = [path for path in node.files() if path.parent.name == two.id and path.suffix == ".parquet"]
            assert [path.read_bytes() for path in kept] == [node.in_deep_store(two).read_bytes()]
            assert len(ids(node, wanted)) == many().num_rows
        node.deep.delete(two.path)
        pauses(node, 1)
        assert (node.report().state, node.report().config_hash) == (SegmentState.SERVING, SORTED.hash)
        assert node.report().rebuilt_rows == many().num_rows
        assert node.files() == {node.path(wanted), node.path(wanted).parent / "copy.json"}


def many(first: int = 0) -> pa.Table:
    """Rows whose file does not fit into the last page of a disk."""
    return rows(first, 30_000)


@pytest.mark.case("tables:E4", "tables:E9")
def test_what_a_crash_left_is_swept(node: Rig) -> None:
    """Half downloads, files that no record names, older builds and dropped segments are gone after a start."""
    one, two = node.build(rows(0)), node.build(rows(100))
    first = table(segment(one), segment(node.build(rows(200)), "dropped"))
    node.settle(first)
    served = node.path(first)
    for left in (served.parent / ".half.tmp", served.parent / "9-as-it-is.parquet", served.parent / "copy.json.new"):
        left.write_bytes(cut(served.read_bytes()))
    fetching = served.parent.parent / two.id
    fetching.mkdir()
    (fetching / "0-as-it-is.parquet").write_bytes(cut(node.in_deep_store(two).read_bytes()))
    (node.directory / "gone" / "s7" / "b9").mkdir(parents=True)
    (node.directory / "gone" / "s7" / "b9" / "0-as-it-is.parquet").write_bytes(b"x")
    node.restart()
    node.loader.holds = True
    second = table(segment(two))
    node.settle(second)
    assert ids(node, second) == list(range(40))
    node.loader.work()
    node.work()
    assert ids(node, second) == list(range(100, 140))
    assert node.files() == {node.path(second), node.path(second).parent / "copy.json"}
    assert list(node.directory.iterdir()) == [node.directory / "u1"]


@pytest.mark.case("tables:E4")
@pytest.mark.parametrize("what", ["record", "file"])
def test_a_copy_that_is_not_whole_is_fetched_again(node: Rig, what: str) -> None:
    """A record that cannot be read, or a file of another size, is no copy: the next start downloads the build."""
    build = node.build(rows(0))
    wanted = table(segment(build))
    node.settle(wanted)
    harmed = node.path(wanted) if what == "file" else node.path(wanted).parent / "copy.json"
    damage(harmed, cut(harmed.read_bytes()))
    node.restart()
    node.settle(wanted)
    assert [job.build.id for job in node.loader.done] == [build.id]
    assert (node.report().state, node.report().rebuilt_rows) == (SegmentState.SERVING, 0)
    assert node.path(wanted).read_bytes() == node.in_deep_store(build).read_bytes()


@pytest.mark.case("tables:E4")
def test_a_deep_store_that_is_away_is_waited_for(node: Rig) -> None:
    """Without the deep store a segment is served on, also after a restart, and a new one comes when it is back."""
    one, two = node.build(rows(0)), node.build(rows(100))
    node.settle(table(segment(one)))
    deep, away = node.folder / "deep", node.folder / "away"
    deep.rename(away)
    node.restart()
    wanted = table(segment(one), segment(two, "s1"))
    node.settle(wanted)
    assert (node.report("s0").state, node.report("s1").state) == (SegmentState.SERVING, SegmentState.ERROR)
    assert ids(node, wanted) == list(range(40))
    raised("file_missing", node.loader.done[-1].run)
    away.rename(deep)
    assert pauses(node, 1) == [0.5]
    assert node.report("s1").state == SegmentState.SERVING
    assert ids(node, wanted, "s1") == list(range(100, 140))
