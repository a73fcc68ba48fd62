"""Segment files are made anew without losing anything, and a file that lost something is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.core.errors import Failed
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import ColumnStats, Contents
from anew.segments.tables.inspect import contents_of, verify_segment
from anew.segments.tables.reading import read_rows
from anew.segments.tables.rebuild import RebuildJob, make_file, rebuild_file, unchanged_columns
from anew.segments.tables.write import write_segment
from tests.component.segments_tables.rows import COLUMNS, config_of, every_type, trips

_DERIVED = COLUMNS | {"x": "bigint"}


def _source(tmp_path: Path, config: SegmentConfig, rows: pa.Table | None = None) -> Path:
    path = tmp_path / "source.parquet"
    make_file(trips() if rows is None else rows, path, config)
    return path


@pytest.mark.case("tables:C4")
def test_a_file_is_sorted_anew(tmp_path: Path) -> None:
    """With another sort column the file is sorted by that, by its rows and by its own word, and holds the same rows."""
    now, wanted = config_of(COLUMNS, sort="id"), config_of(COLUMNS, sort="city,at", row_group_rows=1_000)
    source, target = _source(tmp_path, now), tmp_path / "target.parquet"
    made = rebuild_file(source, target, RebuildJob(wanted, now))
    verify_segment(target, wanted, rows=5_000)
    read = pq.read_table(target)
    assert read.equals(trips().sort_by("id").sort_by([("city", "ascending"), ("at", "ascending")]))
    assert made.contents == contents_of(target, wanted)
    before = contents_of(source).columns
    assert {name: stats.fingerprint for name, stats in made.contents.columns.items()} == {
        name: stats.fingerprint for name, stats in before.items()
    }
    assert (made.rows_read, made.rows_filtered) == (5_000, 0)


def test_a_finished_file_is_read_only_and_described(tmp_path: Path) -> None:
    """The file cannot be written to by chance, and its size and checksum are those told."""
    target = tmp_path / "target.parquet"
    made = make_file(trips(), target, config_of(COLUMNS))
    assert target.stat().st_mode & 0o777 == 0o444
    assert made.bytes == target.stat().st_size
    assert made.sha256 == hashlib.sha256(target.read_bytes()).hexdigest()


def test_the_same_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    """A rebuild from the same file to the same configuration gives equal bytes, so that a retry is seen as one."""
    now, wanted = config_of(COLUMNS), config_of(COLUMNS, sort="city", bloom="name")
    source = _source(tmp_path, now)
    made = [rebuild_file(source, tmp_path / name, RebuildJob(wanted, now)) for name in ("a", "b")]
    assert made[0] == made[1]


def test_every_type_is_rebuilt(tmp_path: Path) -> None:
    """Columns of every type keep their values, and each can be sorted by."""
    columns, rows = every_type()
    said = {column.name: column.type for column in columns}
    now = config_of(said)
    source = _source(tmp_path, now, rows)
    for column in said:
        wanted = config_of(said, sort=column)
        made = rebuild_file(source, tmp_path / column, RebuildJob(wanted, now))
        assert made.rows_read == 4


@pytest.mark.case("tables:C3")
def test_types_change(tmp_path: Path) -> None:
    """INT becomes LONG, and LONG becomes text; where a value does not fit, the error says so and no file is there."""
    now = config_of({"a": "integer", "b": "bigint", "c": "varchar"})
    rows = pa.table({"a": pa.array([1, None], pa.int32()), "b": [1, 2], "c": ["7", "abc"]})
    source, target = _source(tmp_path, now, rows), tmp_path / "target.parquet"
    wider = config_of({"a": "bigint", "b": "varchar", "c": "varchar"})
    made = rebuild_file(source, target, RebuildJob(wider, now))
    assert pq.read_table(target).to_pydict() == {"a": [1, None], "b": ["1", "2"], "c": ["7", "abc"]}
    assert made.contents.columns["b"].greatest == "2"
    refused = tmp_path / "refused.parquet"
    with pytest.raises(Failed, match="column c does not fit its type, in row 1; found: 'abc'"):
        rebuild_file(source, refused, RebuildJob(config_of({"c": "integer"}), now))
    assert not refused.exists()


@pytest.mark.case("tables:C5")
def test_a_derived_column_is_right_and_stays_so(tmp_path: Path) -> None:
    """A column derived by a rebuild is right for old rows; rebuilding again gives the same bytes."""
    now, wanted = config_of(COLUMNS), config_of(_DERIVED, derived={"x": "id * 2"}, sort="id")
    first, second = tmp_path / "first", tmp_path / "second"
    once = rebuild_file(_source(tmp_path, now), first, RebuildJob(wanted, now))
    assert pq.read_table(first).column("x").to_pylist() == [2 * number for number in range(5_000)]
    assert not once.contents.columns["x"].filled
    assert rebuild_file(first, second, RebuildJob(wanted, wanted)).sha256 == once.sha256


def test_columns_that_are_added_are_noted_as_filled(tmp_path: Path) -> None:
    """An added column has its default and is noted; with another default it is filled again, alone."""
    columns = {"id": {"type": "bigint", "default": 0}}
    now = config_of(columns)
    added = config_of(columns | {"y": {"type": "varchar", "default": "a"}})
    other = config_of({"id": {"type": "bigint", "default": 9}, "y": {"type": "varchar", "default": "b"}})
    source = _source(tmp_path, now, trips(10).select(["id"]))
    once = rebuild_file(source, tmp_path / "1", RebuildJob(added, now))
    assert once.contents.filled == {"y"}
    twice = rebuild_file(tmp_path / "1", tmp_path / "2", RebuildJob(other, added, once.contents))
    assert pq.read_table(tmp_path / "2").column("y").to_pylist() == ["b"] * 10
    assert twice.contents.columns["y"].filled
    assert twice.contents.columns["id"].fingerprint == once.contents.columns["id"].fingerprint


def test_a_file_of_which_nothing_stays_keeps_its_number_of_rows(tmp_path: Path) -> None:
    """Where every column is a new one, there are as many rows as before."""
    now = config_of({"id": "bigint"})
    source = _source(tmp_path, now, trips(10).select(["id"]))
    made = rebuild_file(source, tmp_path / "x", RebuildJob(config_of({"y": "bigint"}), now))
    assert made.contents.rows == 10


@pytest.mark.case("tables:C8")
def test_rows_that_are_filtered_are_counted(tmp_path: Path) -> None:
    """Rows read are rows written and rows filtered, and those that stay are the same."""
    now, wanted = config_of(COLUMNS), config_of(COLUMNS, row_filter="id % 3 = 0", sort="name")
    source = _source(tmp_path, now)
    made = rebuild_file(source, tmp_path / "x", RebuildJob(wanted, now))
    assert (made.rows_read, made.rows_filtered, made.contents.rows) == (5_000, 3_333, 1_667)
    kept = list(range(0, 5_000, 3))
    assert pq.read_table(tmp_path / "x").sort_by("id").column("id").to_pylist() == kept


def _without_a_row(table: pa.Table) -> pa.Table:
    return table.slice(0, table.num_rows - 1)


def _with_a_row_twice(table: pa.Table) -> pa.Table:
    return table.take(pa.array([0, 0, *range(2, table.num_rows)]))


def _with_values_swapped(table: pa.Table) -> pa.Table:
    order = np.arange(table.num_rows)
    order[[0, 1]] = order[[1, 0]]
    at = table.schema.get_field_index("name")
    return table.set_column(at, "name", table.column("name").take(pa.array(order, pa.int64())))


def _with_a_null(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("name")
    values: Any = pa.array([None, *table.column("name").to_pylist()[1:]])
    return table.set_column(at, "name", values)


@pytest.mark.case("tables:C8")
@pytest.mark.parametrize("damage", [_without_a_row, _with_a_row_twice, _with_values_swapped, _with_a_null])
@pytest.mark.parametrize("row_filter", [None, "id % 3 = 0"])
@pytest.mark.parametrize("known", [False, True], ids=["read", "known"])
def test_a_file_that_lost_something_is_refused(
    damage: Callable[[pa.Table], pa.Table],
    row_filter: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    known: bool,
) -> None:
    """A row lost or doubled, a value lost, two values that changed places among rows: nothing is made."""
    now, wanted = config_of(COLUMNS), config_of(COLUMNS, sort="id", row_filter=row_filter)
    source, target = _source(tmp_path, now), tmp_path / "target.parquet"
    contents = contents_of(source) if known else None
    monkeypatch.setattr(
        f"{rebuild_file.__module__}.write_segment",
        lambda table, config, path: write_segment(damage(table), config, path),
    )
    with pytest.raises(Failed) as caught:
        rebuild_file(source, target, RebuildJob(wanted, now, contents))
    assert caught.value.code == "rows_changed"
    assert not target.exists()


@pytest.mark.parametrize("damage", [_without_a_row, _with_a_row_twice, _with_values_swapped, _with_a_null])
def test_a_source_that_is_read_wrongly_is_found(
    damage: Callable[[pa.Table], pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the source was found to hold when it was made has to be in the file made, whatever is read of it now."""
    now, wanted = config_of(COLUMNS), config_of(COLUMNS, sort="id")
    source, target = _source(tmp_path, now), tmp_path / "target.parquet"
    contents = contents_of(source)
    module = rebuild_file.__module__
    monkeypatch.setattr(f"{module}.read_rows", lambda path, names: damage(read_rows(path, names)))
    with pytest.raises(Failed) as caught:
        rebuild_file(source, target, RebuildJob(wanted, now, contents))
    assert caught.value.code == "rows_changed"
    assert not target.exists()


def test_what_has_to_stay_is_every_column_that_does_not_change() -> None:
    """Columns whose type, default or nulls change need not be equal; derived ones only where nothing changes."""
    rows = trips().append_column("x", pa.array(range(5_000)))
    now = config_of(_DERIVED, derived={"x": "id + 1"})

    def stay(columns: dict[str, Any], filled: frozenset[str] = frozenset(), **settings: Any) -> set[str]:
        stats = {name: ColumnStats(type="", nulls=0, fingerprint=0, filled=True) for name in filled}
        known = Contents(rows=5_000, columns=stats)
        return set(unchanged_columns(rows, RebuildJob(config_of(columns, **settings), now, known)))

    same: dict[str, Any] = {"derived": {"x": "id + 1"}}
    assert stay(_DERIVED, **same) == set(_DERIVED)
    assert stay(_DERIVED | {"new": "date"}, **same) == set(_DERIVED)
    assert stay(_DERIVED, derived={"x": "id + 2"}) == set(COLUMNS)
    assert stay(_DERIVED) == set(_DERIVED)
    assert stay(_DERIVED | {"id": "varchar"}, **same) == set(COLUMNS) - {"id"}
    assert stay(_DERIVED, frozenset(["name"]), **same) == set(_DERIVED)
    renamed = _DERIVED | {"name": {"type": "varchar", "default": "?"}}
    assert stay(renamed, **same) == set(_DERIVED)
    assert stay(renamed, frozenset(["name"]), **same) == set(COLUMNS) - {"name"}
    never_null = _DERIVED | {"city": {"type": "varchar", "default": "?", "nullable": False}}
    assert stay(never_null, **same) == set(COLUMNS) - {"city"}


def test_nothing_is_written_over_a_file(tmp_path: Path) -> None:
    """A path that is taken is refused, and the file there stays."""
    target = tmp_path / "target.parquet"
    target.write_bytes(b"something")
    with pytest.raises(Failed) as caught:
        make_file(trips(), target, config_of(COLUMNS))
    assert caught.value.code == "target_exists"
    assert target.read_bytes() == b"something"


def test_a_load_is_cast_sorted_and_described(tmp_path: Path) -> None:
    """Rows of a load, in chunks and as texts, become a sound file of their table."""
    config = config_of({"id": "bigint", "new": "date"}, sort="id", partition_column="id", partition_count=3)
    piece = pa.table({"id": ["3", "1"], "other": [1, 2]})
    made = make_file(pa.concat_tables([piece, piece]), tmp_path / "x", config)
    verify_segment(tmp_path / "x", config, rows=4)
    assert pq.read_table(tmp_path / "x").column("id").to_pylist() == [1, 1, 3, 3]
    assert made.contents.columns["new"].filled
    assert made.contents.partitions is not None
