"""Segment files are what their configuration says, in their rows and in their footers, and read back as such."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.core.errors import Failed
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.settings import TableSettings
from anew.segments.tables.inspect import contents_of, verify_segment
from anew.segments.tables.order import sort_order, taken
from anew.segments.tables.reading import read_rows
from anew.segments.tables.write import write_segment
from tests.component.segments_tables.rows import COLUMNS, config_of, every_type, trips

_SETTINGS: dict[str, dict[str, Any]] = {
    "nothing said": {},
    "sorted": {"sort": "city,id"},
    "none": {"codec": "none"},
    "lz4": {"codec": "lz4"},
    "snappy": {"codec": "snappy"},
    "gzip": {"codec": "gzip", "level": 9},
    "brotli": {"codec": "brotli"},
    "codecs of columns": {"codecs": {"id": "zstd:19", "name": "none", "city": "lz4"}},
    "bloom filters": {"bloom": {"id": 0.001, "name": 0.1, "amount": 0.01, "at": 0.01}},
    "no dictionaries": {"dictionary": dict.fromkeys(COLUMNS, "off")},
    "a dictionary off": {"dictionary": {"city": "off"}},
    "small row groups": {"row_group_rows": 1_000},
    "no page index": {"page_index": False},
}


def _write(path: Path, config: SegmentConfig, count: int = 5_000) -> pa.Table:
    rows = trips(count)
    rows = taken(rows, sort_order(rows, config.sort))
    write_segment(rows, config, path)
    return rows


@pytest.mark.parametrize("said", list(_SETTINGS))
@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_rows_come_back_whatever_is_set(said: str, count: int, tmp_path: Path) -> None:
    """With every kind of setting, and with any number of rows, the file is sound and holds the rows written."""
    config, path = config_of(COLUMNS, **_SETTINGS[said]), tmp_path / "x.parquet"
    rows = _write(path, config, count)
    verify_segment(path, config, rows=count)
    assert pq.read_table(path).equals(rows)


@pytest.mark.parametrize("said", [said for said in _SETTINGS if said != "nothing said"])
def test_a_file_made_with_other_settings_is_unsound(said: str, tmp_path: Path) -> None:
    """Each setting is seen in the file: one that was made without it does not pass for one made with it, nor back."""
    plain, other = config_of(COLUMNS), config_of(COLUMNS, **_SETTINGS[said])
    for number, (made, promised) in enumerate([(plain, other), (other, plain)]):
        path = tmp_path / f"{number}.parquet"
        _write(path, made)
        with pytest.raises(Failed) as caught:
            verify_segment(path, promised)
        assert caught.value.code == "segment_unsound"


def test_every_type_comes_back(tmp_path: Path) -> None:
    """Extreme values and nulls of each type are the same after writing, plain and as dictionaries."""
    columns, rows = every_type()
    blooms = {c.name: 0.01 for c in columns if c.type != "boolean"}
    config = segment_config(columns, TableSettings(bloom=blooms, row_group_rows=1_000))
    encoded: Any = {
        name: column.combine_chunks().dictionary_encode() if column.type in (pa.string(), pa.binary()) else column
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    for number, given in enumerate((rows, pa.table(encoded))):
        path = tmp_path / f"{number}.parquet"
        write_segment(given, config, path)
        verify_segment(path, config, rows=4)
        assert pq.read_table(path).equals(rows.cast(config.arrow_schema))


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    """Writing the same rows twice gives the same bytes."""
    config = config_of(COLUMNS, sort="id", bloom="name", row_group_rows=1_000)
    for name in ("a", "b"):
        _write(tmp_path / name, config)
    one, other = (hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("a", "b"))
    assert one == other


def test_columns_with_nulls_alone_are_written(tmp_path: Path) -> None:
    """A column of nulls has a dictionary, a bloom filter and no bounds."""
    config, path = config_of({"a": "varchar", "b": "bigint"}, bloom="a,b"), tmp_path / "x.parquet"
    nulls: Any = {"a": pa.nulls(10, pa.string()).dictionary_encode(), "b": pa.nulls(10, pa.int64())}
    write_segment(pa.table(nulls), config, path)
    verify_segment(path, config, rows=10)
    assert contents_of(path).columns["a"].nulls == 10


def test_bloom_filters_exclude_what_is_not_there(tmp_path: Path) -> None:
    """A bloom filter knows every value, of plain columns and of dictionaries, and hardly any other."""
    config, path = config_of(COLUMNS, bloom="city,id,name", row_group_rows=1_000), tmp_path / "x.parquet"
    rows = trips()
    at = rows.schema.get_field_index("city")
    write_segment(rows.set_column(at, "city", rows.column("city").dictionary_encode()), config, path)

    def excluded(column: str, value: Any) -> list[bool]:
        sql = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?)"
        return [row[0] for row in duckdb.execute(sql, [str(path), column, value]).fetchall()]

    assert excluded("city", "city1") == [False] * 5
    assert excluded("city", "nowhere") == [True] * 5
    assert excluded("name", "name 4999").count(False) == 1
    assert sum(sum(excluded("id", value)) for value in range(10_000, 10_040)) > 40 * 5 * 0.9


@pytest.mark.case("tables:C4")
def test_row_groups_of_a_sorted_file_are_pruned_by_the_sort_column_alone(tmp_path: Path) -> None:
    """Row groups of a file sorted by id do not overlap in id, and all overlap in ``at``."""
    config, path = config_of(COLUMNS, sort="id", row_group_rows=1_000), tmp_path / "x.parquet"
    _write(path, config)
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]

    def holding(column: int, value: Any) -> int:
        ranges: list[Any] = [group.column(column).statistics for group in groups]
        return sum(bool(found.min <= value <= found.max) for found in ranges)

    assert [group.num_rows for group in groups] == [1_000] * 5
    assert [list(group.sorting_columns) for group in groups] == [[pq.SortingColumn(3)]] * 5
    middle = pq.read_table(path)
    assert holding(3, 2_500) == 1
    assert holding(1, middle.column("at")[2_500].as_py()) == 5


def test_few_texts_are_read_as_dictionaries(tmp_path: Path) -> None:
    """A column with few values is read as a dictionary and as one chunk; one with many is read as it is."""
    config, path = config_of(COLUMNS, row_group_rows=1_000), tmp_path / "x.parquet"
    rows = _write(path, config)
    read = read_rows(path)
    assert isinstance(read.schema.field("city").type, pa.DictionaryType)
    assert read.schema.field("name").type == pa.string()
    assert [column.num_chunks for column in read.columns] == [1] * 5
    assert read.column("city").to_pylist() == rows.column("city").to_pylist()
    assert read_rows(path, ["id"]).column_names == ["id"]


def test_rows_that_do_not_have_the_schema_are_refused(tmp_path: Path) -> None:
    """Missing columns, other types, and nulls where there may be none are errors that name the column."""
    config = config_of({"a": {"type": "bigint", "nullable": False}})
    refused: list[tuple[dict[str, Any], str]] = [
        ({"b": pa.array([1])}, "other columns"),
        ({"a": pa.array(["1"])}, "column a is of another type"),
        ({"a": pa.array([None], pa.int64())}, "column a has nulls"),
    ]
    for columns, message in refused:
        with pytest.raises(Failed, match=message):
            write_segment(pa.table(columns), config, tmp_path / "x.parquet")


def test_what_is_no_parquet_file_is_unreadable(tmp_path: Path) -> None:
    """A file that is cut, or anything else, is an error that names it."""
    path = tmp_path / "x.parquet"
    _write(path, config_of(COLUMNS))
    for damaged in (path.read_bytes()[:-100], b"", b"no such thing"):
        path.write_bytes(damaged)
        with pytest.raises(Failed, match=r"x\.parquet"):
            read_rows(path)


def test_an_unsorted_file_that_says_it_is_sorted_is_unsound(tmp_path: Path) -> None:
    """The order is checked by reading the rows, and the number of rows and nulls are too."""
    config, path = config_of(COLUMNS, sort="id"), tmp_path / "x.parquet"
    write_segment(trips(), config, path)
    with pytest.raises(Failed, match="not sorted"):
        verify_segment(path, config)
    _write(path, config)
    with pytest.raises(Failed, match="number of rows"):
        verify_segment(path, config, rows=4_999)
    with pytest.raises(Failed, match="columns are others"):
        verify_segment(path, config_of(COLUMNS | {"id": "integer"}, sort="id"))


def test_two_columns_of_one_name_are_unreadable(tmp_path: Path) -> None:
    """A file in which a name stands for two columns is no segment."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(Failed, match="two columns have one name"):
        read_rows(path)


@pytest.mark.parametrize("kind", ["real", "double"])
@pytest.mark.parametrize("page_index", ["true", "false"])
@pytest.mark.parametrize("rows", [["nan"], ["nan", "1", None], ["1", "2", "nan"], [None], ["inf", "-0.0"]])
def test_statistics_never_hide_nan(kind: str, page_index: str, rows: list[str | None], tmp_path: Path) -> None:
    """A column with NaN has no bounds in the footer, one without has them; both files are sound."""
    path, config = tmp_path / "x.parquet", config_of({"d": kind, "id": "bigint"}, page_index=page_index)
    values = [None if value is None else float(value) for value in rows]
    write_segment(
        pa.table({"d": pa.array(values, config.arrow_schema.field("d").type), "id": range(len(rows))}), config, path
    )
    verify_segment(path, config, rows=len(rows))
    chunk = pq.read_metadata(path).row_group(0).column(0)
    has_bounds = chunk.statistics is not None and chunk.statistics.has_min_max
    assert has_bounds == ("nan" not in rows and rows != [None])
