"""Copies that a node makes again by itself: when, from what, and never where the table says not to."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.api.tables.segments import DesiredTable, SegmentState
from anew.core.tables.segment import Build
from tests.component.node.tables.harness import (
    COLUMNS,
    PLAIN,
    SORTED,
    WIDER,
    Rig,
    damage,
    raised,
    rig,
    rows,
    segment,
    table,
)
from tests.component.segments_tables.rows import config_of

NARROW = config_of({name: said for name, said in COLUMNS.items() if name != "fare"})

_Way = Callable[[Rig], tuple[DesiredTable, Build]]


@pytest.fixture
def node(tmp_path: Path) -> Rig:
    """A node with an empty disk."""
    return rig(tmp_path)


def held(node: Rig, wanted: DesiredTable, name: str = "s0") -> pa.Table:
    """The rows that queries of a segment find."""
    return pq.read_table(node.path(wanted, name), partitioning=None)


def stored(node: Rig) -> dict[Path, bytes]:
    """All that the deep store holds."""
    return {path: path.read_bytes() for path in (node.folder / "deep").rglob("*") if path.is_file()}


def start(node: Rig) -> tuple[DesiredTable, Build]:
    """A node begins over a copy that was made with another configuration."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    node.restart()
    return table(segment(build), config=SORTED), build


def reload(node: Rig) -> tuple[DesiredTable, Build]:
    """A reload is asked for after the configuration changed."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    return table(segment(build, reload=1), config=SORTED), build


def download(node: Rig) -> tuple[DesiredTable, Build]:
    """A fresh node gets a segment that is behind."""
    build = node.build(rows(0))
    return table(segment(build), config=SORTED), build


def refresh(node: Rig) -> tuple[DesiredTable, Build]:
    """A newer build comes that is behind already, because the configuration changed again."""
    node.settle(table(segment(node.build(rows(0)))))
    build = node.build(rows(0), WIDER)
    return table(segment(build), config=SORTED), build


WAYS = pytest.mark.parametrize("way", [start, reload, download, refresh])


@WAYS
@pytest.mark.case("tables:E6")
def test_where_the_table_says_so_nothing_is_made_again(node: Rig, way: _Way) -> None:
    """With skip_segment_preprocess the build is served byte for byte, on all four ways in, and reports that it is."""
    behind, build = way(node)
    wanted = behind.model_copy(update={"skip_segment_preprocess": True})
    before = stored(node)
    node.settle(wanted)
    report = node.report()
    assert (report.state, report.build, report.rebuilt_rows) == (SegmentState.SERVING, build.id, 0)
    assert (report.config_hash, report.reload) == (build.config_hash, wanted.segments[0].reload)
    assert node.path(wanted).read_bytes() == node.in_deep_store(build).read_bytes()
    assert stored(node) == before
    node.restart()
    node.settle(wanted)
    assert (node.loader.done, node.report().config_hash) == ([], build.config_hash)


@WAYS
@pytest.mark.case("tables:E5", "tables:E6")
def test_otherwise_what_is_behind_is_made_again(node: Rig, way: _Way) -> None:
    """Without it the same four ways make the copy with the newest configuration, and say so; the deep store stays."""
    wanted, build = way(node)
    before = stored(node)
    node.settle(wanted)
    report = node.report()
    assert (report.state, report.build, report.rebuilt_rows) == (SegmentState.SERVING, build.id, 40)
    assert (report.config_hash, report.reload) == (SORTED.hash, wanted.segments[0].reload)
    expected = rows(0).sort_by([("city", "ascending")])
    assert held(node, wanted)["city"].to_pylist() == expected["city"].to_pylist()
    assert held(node, wanted).sort_by("id")["id"].to_pylist() == rows(0)["id"].to_pylist()
    assert stored(node) == before
    node.restart()
    node.settle(wanted)
    assert (node.loader.done, node.report().config_hash) == ([], SORTED.hash)


@pytest.mark.case("tables:E6")
def test_the_setting_counts_as_of_now(node: Rig) -> None:
    """Once it is taken away the next reload makes the copy again; once it is set the next one keeps what it has."""
    build = node.build(rows(0))
    node.settle(table(segment(build), config=SORTED, skip_segment_preprocess=True))
    assert node.report().config_hash == PLAIN.hash
    node.settle(table(segment(build), config=SORTED))
    assert node.report().config_hash == PLAIN.hash
    node.settle(table(segment(build, reload=1), config=SORTED))
    assert (node.report().config_hash, node.report().reload) == (SORTED.hash, 1)
    node.settle(table(segment(build, reload=2), config=WIDER, skip_segment_preprocess=True))
    assert (node.report().config_hash, node.report().reload) == (SORTED.hash, 2)


@pytest.mark.case("tables:E5", "tables:C8")
@pytest.mark.parametrize("skip", [False, True])
def test_rows_that_a_filter_took_out_of_a_copy_come_back(node: Rig, *, skip: bool) -> None:
    """A reload after the filter was taken back makes the copy of the whole build, or serves that as it is."""
    build = node.build(rows(0))
    filtered = SORTED.model_copy(update={"row_filter": "id < 10"})
    node.settle(table(segment(build), config=filtered))
    few = held(node, table(segment(build))).num_rows
    last = table(segment(build, reload=1), config=SORTED, skip_segment_preprocess=skip)
    node.settle(last)
    assert (0 < few < build.contents.rows, held(node, last).num_rows) == (True, build.contents.rows)
    assert node.report().config_hash == (PLAIN if skip else SORTED).hash


@pytest.mark.case("tables:E5")
@pytest.mark.parametrize("skip", [False, True])
def test_a_lost_disk_pays_again(node: Rig, *, skip: bool) -> None:
    """After its disk is gone a node fetches the deep store's build, and rebuilds it as before, or is behind again."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    node.settle(table(segment(build, reload=1), config=SORTED))
    assert (node.report().config_hash, node.report().rebuilt_rows) == (SORTED.hash, 40)
    shutil.rmtree(node.directory)
    node.restart()
    wanted = table(segment(build, reload=1), config=SORTED, skip_segment_preprocess=skip)
    node.settle(wanted)
    found = (node.report().config_hash, node.report().rebuilt_rows, node.report().reload)
    assert found == ((PLAIN.hash, 0, 1) if skip else (SORTED.hash, 40, 1))


@pytest.mark.case("tables:E5")
def test_a_copy_depends_on_its_build_and_configuration_alone(node: Rig, tmp_path: Path) -> None:
    """A node that followed a removed column and its return serves the same rows as one that was away meanwhile."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    for number, config in enumerate((NARROW, SORTED), start=1):
        last = table(segment(build, reload=number), config=config)
        node.settle(last)
        assert held(node, last).schema.names == [column.name for column in config.columns]
    (tmp_path / "fresh").mkdir()
    fresh = Rig(tmp_path / "fresh", node.deep)
    fresh.settle(last)
    assert held(node, last).equals(held(fresh, last))
    assert held(node, last)["fare"].null_count == rows(0)["fare"].null_count
    assert (node.report().rebuilt_rows, fresh.report().rebuilt_rows) == (80, 40)


@pytest.mark.case("tables:E5")
def test_back_at_the_configuration_of_the_build_its_bytes_are_served(node: Rig) -> None:
    """A reload to what the build was made with rewrites no row: the build itself is what is wanted."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    node.settle(table(segment(build, reload=1), config=SORTED))
    back = table(segment(build, reload=2))
    node.settle(back)
    assert (node.report().config_hash, node.report().rebuilt_rows, node.report().reload) == (PLAIN.hash, 40, 2)
    assert node.path(back).read_bytes() == node.in_deep_store(build).read_bytes()


@pytest.mark.case("tables:E5")
def test_a_reload_needs_the_deep_store_only_where_the_build_is_gone(node: Rig) -> None:
    """The first reload works on the bytes that are here; one after it waits for them, and the copy before serves."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    content = node.in_deep_store(build).read_bytes()
    node.deep.delete(build.path)
    first = table(segment(build, reload=1), config=SORTED)
    node.settle(first)
    assert (node.report().state, node.report().config_hash) == (SegmentState.SERVING, SORTED.hash)
    second = table(segment(build, reload=2), config=WIDER)
    node.settle(second)
    raised("file_missing", node.loader.done[-1].run)
    assert (node.report().state, node.report().config_hash) == (SegmentState.ERROR, SORTED.hash)
    assert held(node, second)["city"].to_pylist() == rows(0).sort_by("city")["city"].to_pylist()
    node.deep.put(build.path, content)
    node.clock.seconds += 0.5
    node.work()
    assert (node.report().state, node.report().config_hash) == (SegmentState.SERVING, WIDER.hash)
    assert held(node, second)["tip"].to_pylist() == [7] * 40


@pytest.mark.case("tables:E10")
def test_a_fresh_node_rewrites_nothing_when_the_deep_store_is_in_sync(node: Rig) -> None:
    """Segments that are given to another node are served there as they are: 0 rows rewritten."""
    builds = [node.build(rows(100 * number), SORTED) for number in range(3)]
    wanted = table(*(segment(build, f"s{at}") for at, build in enumerate(builds)), config=SORTED)
    node.settle(wanted)
    assert [report.rebuilt_rows for report in node.host.report()] == [0, 0, 0]
    assert [report.config_hash for report in node.host.report()] == [SORTED.hash] * 3
    for at, build in enumerate(builds):
        assert node.path(wanted, f"s{at}").read_bytes() == node.in_deep_store(build).read_bytes()


@pytest.mark.case("tables:E5")
def test_a_damaged_copy_is_not_made_into_another(node: Rig) -> None:
    """A reload over a file that a disk damaged fetches the build again: no wrong byte gets a right configuration."""
    build = node.build(rows(0))
    before = table(segment(build))
    node.settle(before)
    damage(node.path(before), quietly_wrong(node.path(before)))
    assert not held(node, before).equals(rows(0).select(held(node, before).column_names))
    wanted = table(segment(build, reload=1), config=SORTED)
    node.settle(wanted)
    assert (node.report().state, node.report().config_hash) == (SegmentState.SERVING, SORTED.hash)
    found = held(node, wanted).sort_by("id")
    assert found.select(["id", "city", "fare"]).equals(rows(0))


def quietly_wrong(path: Path) -> bytes:
    """A segment's file with one other bit, which can be read and holds other rows."""
    content, right = path.read_bytes(), pq.read_table(path, partitioning=None)
    for at in range(4, len(content)):
        wrong = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        with contextlib.suppress(pa.ArrowException, OSError, UnicodeDecodeError):
            found = pq.read_table(pa.BufferReader(wrong))
            found.validate(full=True)
            if found.schema == right.schema and found.num_rows == right.num_rows and found != right:
                return wrong
    raise AssertionError("every bit is checked")
