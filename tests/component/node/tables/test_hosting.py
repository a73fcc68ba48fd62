"""Segments on a node: what is wanted is fetched and swapped in, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.api.tables.segments import DesiredTable, SegmentState
from tests.component.node.tables.harness import (
    PLAIN,
    SORTED,
    WIDER,
    Rig,
    rig,
    rows,
    segment,
    table,
)


@pytest.fixture
def node(tmp_path: Path) -> Rig:
    """A node with an empty disk."""
    return rig(tmp_path)


def held(node: Rig, wanted: DesiredTable, name: str = "s0") -> pa.Table:
    """The rows that queries of a segment find."""
    return pq.read_table(node.path(wanted, name), partitioning=None)


def test_nothing_is_done_before_anything_is_wanted(node: Rig) -> None:
    """Without a desired state a host has nothing to do, knows no table and reports nothing."""
    assert not node.host.step()
    assert (node.host.tables(), node.host.deep_store, node.host.report()) == ({}, None, ())


@pytest.mark.case("tables:E1")
def test_a_wanted_build_is_fetched_checked_and_swapped_in(node: Rig) -> None:
    """Each wanted build is downloaded and served; the one before is served until then and gone afterwards."""
    one, two = node.build(rows(0)), node.build(rows(100))
    first, second = table(segment(one)), table(segment(two))
    node.loader.holds = True
    node.settle(first)
    assert (node.report().state, node.report().build) == (SegmentState.LOADING, None)
    assert [file.path for file in node.host.files_of(first)] == [None]
    node.loader.work()
    node.work()
    assert (node.report().state, node.report().build) == (SegmentState.SERVING, one.id)
    assert (node.report().config_hash, node.report().rebuilt_rows) == (PLAIN.hash, 0)
    before = node.path(first)
    assert held(node, first) == node_rows(first, one.path, node)
    node.settle(second)
    assert (node.report().state, node.report().build, node.path(second)) == (SegmentState.LOADING, one.id, before)
    node.loader.work()
    node.work()
    assert (node.report().state, node.report().build) == (SegmentState.SERVING, two.id)
    assert held(node, second)["id"].to_pylist() == rows(100)["id"].to_pylist()
    assert not before.parent.exists()


def node_rows(wanted: DesiredTable, path: str, node: Rig) -> pa.Table:
    """The rows of a build as the deep store has them."""
    assert wanted.segments
    return pq.read_table(node.folder / "deep" / path, partitioning=None)


@pytest.mark.case("tables:E1")
def test_a_file_stays_as_long_as_it_is_read(node: Rig) -> None:
    """A reader keeps the file that it began with, over a swap; it is gone when the last reader is done."""
    first, second = table(segment(node.build(rows(0)))), table(segment(node.build(rows(100))))
    node.settle(first)
    before = node.path(first)
    with node.host.reading([before]):
        with node.host.reading([before]):
            node.settle(second)
            assert node.path(second) != before
            assert pq.read_table(before)["id"].to_pylist() == list(range(40))
        node.work()
        assert node.host.is_read(before)
        assert before.exists()
    assert not node.host.is_read(before)
    node.work()
    assert not before.parent.exists()
    assert held(node, second)["id"].to_pylist() == rows(100)["id"].to_pylist()


@pytest.mark.case("tables:E1", "tables:E5")
def test_each_of_several_old_files_stays_as_long_as_it_is_read(node: Rig) -> None:
    """A file of a build is still read when a later file of the same build goes: it is left alone."""
    build = node.build(rows(0))
    as_it_is = table(segment(build))
    node.settle(as_it_is)
    slow = node.path(as_it_is)
    with node.host.reading([slow]):
        node.settle(table(segment(build, reload=1), config=SORTED))
        assert node.report().config_hash == SORTED.hash
        node.settle(table(segment(node.build(rows(100), SORTED), reload=1), config=SORTED))
        assert pq.read_table(slow)["id"].to_pylist() == list(range(40))
    node.work()
    assert not slow.parent.exists()


@pytest.mark.case("tables:E2")
def test_what_is_served_as_wanted_is_not_touched(node: Rig) -> None:
    """A newer desired state with the same builds, and other columns and settings, causes no job and no new file."""
    build = node.build(rows(0))
    wanted = table(segment(build))
    node.settle(wanted)
    before, status = node.files(), node.path(wanted).stat()
    assert len(node.loader.done) == 1
    for again in (wanted, table(segment(build), config=WIDER), table(segment(build), config=SORTED, revision=9)):
        node.settle(again)
        after = node.path(again).stat()
        assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
            status.st_ino,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
    assert node.files() == before
    assert len(node.loader.done) == 1
    assert node.report().config_hash == PLAIN.hash
    told = node.told
    node.work()
    assert node.told == told


@pytest.mark.case("tables:E3")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_that_was_away_needs_no_more_than_the_newest_state(node: Rig, *, restarted: bool) -> None:
    """After any number of missed builds the newest state alone brings the node there, with one download."""
    node.settle(table(segment(node.build(rows(0)))))
    missed = [node.build(rows(100 * number), SORTED) for number in range(1, 5)]
    for build in missed[:-1]:
        node.deep.delete(build.path)
    if restarted:
        node.restart()
    node.loader.done.clear()
    newest = table(segment(missed[-1]), config=SORTED)
    node.settle(newest)
    assert [job.build.id for job in node.loader.done] == [missed[-1].id]
    assert (node.report().build, node.report().config_hash) == (missed[-1].id, SORTED.hash)
    assert set(held(node, newest)["id"].to_pylist()) == set(rows(400)["id"].to_pylist())
    assert {path.parent.name for path in node.files()} == {missed[-1].id}


@pytest.mark.case("tables:E3")
@pytest.mark.parametrize("fails", [False, True])
def test_a_build_that_is_replaced_while_it_is_fetched(node: Rig, *, fails: bool) -> None:
    """A download that ends after a newer build is wanted leaves a served file on disk, and does not delay the newer."""
    one, two, three = (node.build(rows(100 * number)) for number in range(3))
    node.settle(table(segment(one)))
    node.loader.holds = True
    node.settle(table(segment(two)))
    if fails:
        node.deep.delete(two.path)
    else:
        node.loader.work()
    newest = table(segment(three))
    node.host.accept(node.desired(newest))
    node.host.step()
    node.loader.work()
    node.host.step()
    assert node.path(newest).exists()
    assert node.report().error is None
    node.loader.holds = False
    node.loader.work()
    node.work()
    assert (node.report().build, node.clock.seconds) == (three.id, 100.0)
    assert {path.parent.name for path in node.files()} == {three.id}


@pytest.mark.case("tables:E9")
def test_no_path_ever_holds_other_bytes(node: Rig) -> None:
    """Builds, local rebuilds and a return to an earlier configuration each have paths of their own, and keep them."""
    seen: dict[Path, bytes] = {}
    one, two = node.build(rows(0)), node.build(rows(0), SORTED)
    steps = [
        table(segment(one)),
        table(segment(one, reload=1), config=SORTED),
        table(segment(one, reload=2), config=PLAIN),
        table(segment(one, reload=3), config=SORTED),
        table(segment(one, reload=4), config=WIDER),
        table(segment(two, reload=4), config=SORTED),
    ]
    for wanted in steps:
        node.settle(wanted)
        path = node.path(wanted)
        assert path not in seen
        seen[path] = path.read_bytes()
        assert (path.parent.name, path.stat().st_mode & 0o222) == (wanted.segments[0].build.id, 0)
    assert len(seen) == len(steps)


@pytest.mark.case("tables:E9")
def test_an_old_file_that_is_read_is_never_mistaken_for_the_served_one(node: Rig) -> None:
    """Back at a configuration whose earlier file is still read, the node serves another file, which stays."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    one = table(segment(build, reload=1), config=SORTED)
    node.settle(one)
    slow = node.path(one)
    with node.host.reading([slow]):
        inode = slow.stat().st_ino
        node.settle(table(segment(build, reload=2), config=WIDER))
        last = table(segment(build, reload=3), config=SORTED)
        node.settle(last)
        assert slow.stat().st_ino == inode
    node.work()
    assert held(node, last)["city"].to_pylist() == rows(0).sort_by("city")["city"].to_pylist()
    assert not slow.exists()


@pytest.mark.case("tables:E5", "tables:E9")
def test_a_node_keeps_one_file_of_each_segment(node: Rig) -> None:
    """Neither a download that is made again nor later reloads leave files that nobody serves."""
    build = node.build(rows(0))
    for reload, config in enumerate((SORTED, WIDER, PLAIN)):
        wanted = table(segment(build, reload=reload), config=config)
        node.settle(wanted)
        path = node.path(wanted)
        assert node.files() == {path, path.parent / "copy.json"}


@pytest.mark.case("rules:R16")
def test_a_table_of_the_same_name_shares_nothing(node: Rig) -> None:
    """A table that was deleted and made again has files of its own, even for a segment of the same name."""
    old, new = table(segment(node.build(rows(0)))), table(segment(node.build(rows(100))), uid="u2")
    node.settle(old)
    before = node.path(old)
    node.settle(new)
    assert [(report.table_uid, report.build) for report in node.host.report()] == [("u2", "b2")]
    assert (before.parts[-4], node.path(new).parts[-4]) == ("u1", "u2")
    assert {path.parts[-4] for path in node.files()} == {"u2"}
    assert held(node, new)["id"].to_pylist() == rows(100)["id"].to_pylist()
    assert [file.path for file in node.host.files_of(old)] == [None]


@pytest.mark.case("tables:E2", "tables:E6")
@pytest.mark.parametrize(
    ("imported_under", "rebuilt"), [(PLAIN.hash, 0), (SORTED.hash, 40), (None, 40)], ids=["same", "other", "unknown"]
)
def test_an_imported_build_counts_as_made_with_what_was_wanted_then(
    node: Rig, imported_under: str | None, rebuilt: int
) -> None:
    """A build without a hash is made again only when the configuration is another one than at its import."""
    wanted = table(segment(node.build(rows(0), config_hash=None, imported_under=imported_under)))
    node.settle(wanted)
    assert (node.report().config_hash, node.report().rebuilt_rows) == (PLAIN.hash, rebuilt)
    node.restart()
    node.settle(wanted)
    assert (node.loader.done, node.report().rebuilt_rows) == ([], rebuilt)


def test_only_what_is_to_be_hosted_is_fetched(node: Rig) -> None:
    """Segments of other nodes are known and neither fetched nor reported; one that is given away is let go."""
    mine, other = segment(node.build(rows(0))), segment(node.build(rows(100)), "s1", hosted=False)
    wanted = table(mine, other)
    node.settle(wanted)
    assert [report.segment for report in node.host.report()] == ["s0"]
    assert [file.path is None for file in node.host.files_of(wanted)] == [False, True]
    node.settle(table(mine.model_copy(update={"hosted": False}), other))
    assert (node.host.report(), node.files()) == ((), set())


def test_what_is_given_away_while_it_is_fetched_leaves_nothing(node: Rig) -> None:
    """A download that ends after its segment went elsewhere is not kept; one that comes back is fetched and served."""
    wanted = table(segment(node.build(rows(0))))
    node.loader.holds = True
    node.settle(wanted)
    node.settle(table())
    node.loader.work()
    node.work()
    assert (node.host.report(), node.files()) == ((), set())
    node.settle(wanted)
    node.settle(table())
    node.settle(wanted)
    node.loader.work()
    node.work()
    assert node.report().state == SegmentState.SERVING
    assert node.files() == {node.path(wanted), node.path(wanted).parent / "copy.json"}


@pytest.mark.case("tables:E1")
def test_what_is_being_made_is_left_alone(node: Rig) -> None:
    """While a build is fetched no file in its place goes, though a reader of the build before has just ended."""
    first = table(segment(node.build(rows(0))))
    node.settle(first)
    before = node.path(first)
    second, third = table(segment(node.build(rows(100)))), table(segment(node.build(rows(200))))
    with node.host.reading([before]):
        node.settle(second)
        node.loader.holds = True
        node.settle(third)
    half = node.path(second).parent.parent / "b3" / "half.tmp"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    node.settle(third)
    assert half.exists()
    node.loader.work()
    node.work()
    assert node.files() == {node.path(third), node.path(third).parent / "copy.json"}
    assert not before.exists()
