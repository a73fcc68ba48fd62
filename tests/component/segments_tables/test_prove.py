"""A file that already is what is wanted is proven to be; one that is not, is told what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Contents
from anew.segments.tables.fingerprint import column_hashes, fingerprint
from anew.segments.tables.inspect import contents_of
from anew.segments.tables.prove import shortfalls
from anew.segments.tables.rebuild import RebuildJob, make_file, rebuild_file
from tests.component.segments_tables.rows import COLUMNS, config_of, trips


def _made(tmp_path: Path, config: SegmentConfig, rows: pa.Table | None = None) -> tuple[Path, Contents]:
    path = tmp_path / "x.parquet"
    made = make_file(trips() if rows is None else rows, path, config)
    return path, made.contents


def _lacks(
    tmp_path: Path, now: dict[str, Any], wanted: dict[str, Any], rows: pa.Table | None = None
) -> tuple[str, ...]:
    before = config_of(now.pop("columns", COLUMNS), **now)
    path, contents = _made(tmp_path, before, rows)
    return shortfalls(path, contents, before, config_of(wanted.pop("columns", COLUMNS), **wanted))


_ROLE = COLUMNS | {"id": {"type": "bigint", "role": "metric"}}
_NEVER_NULL = COLUMNS | {"id": {"type": "bigint", "nullable": False}}
_OTHER_DEFAULT = COLUMNS | {"id": {"type": "bigint", "default": 5}}
_DERIVED = COLUMNS | {"x": "bigint"}

_PROVEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "role": ({}, {"columns": _ROLE}),
    "time column": ({}, {"time_column": "at"}),
    "partition": ({}, {"partition_column": "id", "partition_count": 3}),
    "may be null": ({"columns": _NEVER_NULL}, {}),
    "never null": ({}, {"columns": _NEVER_NULL}),
    "default": ({}, {"columns": _OTHER_DEFAULT}),
    "sort removed": ({"sort": "id"}, {}),
    "shorter sort": ({"sort": "city,id"}, {"sort": "city"}),
    "longer sort": ({"sort": "id"}, {"sort": "id,city"}),
    "row filter": ({}, {"row_filter": "id >= 0"}),
    "one row group all the same": ({}, {"row_group_rows": 5_000}),
    "same values": (
        {"columns": _DERIVED, "derived": {"x": "id + id"}},
        {"columns": _DERIVED, "derived": {"x": "id * 2"}},
    ),
    "derived no more": ({"columns": _DERIVED, "derived": {"x": "id + id"}}, {"columns": _DERIVED}),
}


@pytest.mark.case("tables:A4")
@pytest.mark.parametrize("change", list(_PROVEN))
def test_changes_that_the_file_meets_already_lack_nothing(change: str, tmp_path: Path) -> None:
    """What no byte tells, and what the rows and the footer show to be there, needs no rebuild."""
    now, wanted = _PROVEN[change]
    assert _lacks(tmp_path, dict(now), dict(wanted)) == ()


@pytest.mark.case("tables:A4")
def test_rows_that_happen_to_be_sorted_are_proven(tmp_path: Path) -> None:
    """Rows in the order of the new sort column lack nothing; others do."""
    rows = trips().sort_by("id")
    assert _lacks(tmp_path, {}, {"sort": "id"}, rows) == ()
    assert shortfalls(tmp_path / "x.parquet", None, config_of(COLUMNS), config_of(COLUMNS, sort="city")) == (
        "rows are not sorted by city",
    )


_LACKING: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "column added": ({}, {"columns": _DERIVED}, "column added"),
    "column removed": ({"columns": _DERIVED}, {}, "column removed"),
    "type": ({}, {"columns": COLUMNS | {"id": "varchar"}}, "type of id"),
    "never null": ({}, {"columns": COLUMNS | {"city": {"type": "varchar", "nullable": False}}}, "nulls in city"),
    "sort": ({}, {"sort": "id"}, "not sorted by id"),
    "row filter": ({}, {"row_filter": "id > 9"}, "leaves out 10 rows"),
    "failing row filter": ({}, {"row_filter": "CAST(name AS BIGINT) > 9"}, "row filter: "),
    "derived": (
        {"columns": _DERIVED, "derived": {"x": "id + id"}},
        {"columns": _DERIVED, "derived": {"x": "id * 3"}},
        "other values",
    ),
    "derived now": ({"columns": _DERIVED}, {"columns": _DERIVED, "derived": {"x": "id"}}, "other values"),
    "failing": (
        {"columns": _DERIVED, "derived": {"x": "id"}},
        {"columns": _DERIVED, "derived": {"x": "CAST(name AS BIGINT)"}},
        "derived x: ",
    ),
    "codec": ({}, {"codec": "snappy"}, "codec of amount: zstd, wanted snappy"),
    "codec of a column": ({}, {"codecs": {"id": "gzip"}}, "codec of id"),
    "level": ({}, {"level": 9}, "codec of amount: zstd:3 → zstd:9"),
    "row groups": ({}, {"row_group_rows": 1_000}, "row groups hold up to 5000 rows"),
    "page index": ({}, {"page_index": False}, "page index of amount: there"),
    "bloom": ({}, {"bloom": "id"}, "bloom filter of id: none"),
    "no bloom": ({"bloom": "id"}, {}, "bloom filter of id: there"),
    "other bloom": ({"bloom": "id"}, {"bloom": {"id": 0.5}}, "bloom of id: 0.01 → 0.5"),
    "dictionary": ({}, {"dictionary": {"id": "off"}}, "dictionary of id: there"),
    "dictionary on": ({"dictionary": {"id": "off"}}, {}, "dictionary of id: none"),
}


@pytest.mark.parametrize("change", list(_LACKING))
def test_changes_that_the_file_does_not_meet_are_told(change: str, tmp_path: Path) -> None:
    """What is not there, or cannot be seen, is a shortfall in words."""
    now, wanted, expected = _LACKING[change]
    found = _lacks(tmp_path, dict(now), dict(wanted))
    assert any(expected in text for text in found), found


def test_a_filled_column_lacks_a_new_default(tmp_path: Path) -> None:
    """Where rows were written without the column, another default is other values; unknown contents prove nothing."""
    now, wanted = config_of(COLUMNS), config_of(_OTHER_DEFAULT)
    path, contents = _made(tmp_path, now, trips().drop_columns(["id"]))
    assert contents.columns["id"].filled
    assert shortfalls(path, contents, now, wanted) == ("default of id: rows have an older one",)
    assert shortfalls(path, None, now, wanted) == ("default of id: rows may have an older one",)


def test_a_file_without_rows_has_any_layout(tmp_path: Path) -> None:
    """Nothing has to be encoded again where nothing is."""
    wanted = {"codec": "gzip", "row_group_rows": 1_000, "bloom": "id", "page_index": False, "sort": "id"}
    assert _lacks(tmp_path, {}, wanted, trips(0)) == ()


_IMPORTED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "sort": {"sort": "id"},
    "no codec": {"codec": "none"},
    "row groups": {"row_group_rows": 1_000},
    "page index": {"page_index": False},
    "dictionary": {"dictionary": {"name": "off"}},
    "row filter": {"row_filter": "id >= 0"},
    "derived": {"columns": _DERIVED, "derived": {"x": "id + 1"}},
    "never null": {"columns": _NEVER_NULL},
}


@pytest.mark.case("tables:B1")
@pytest.mark.parametrize("said", list(_IMPORTED))
def test_an_imported_file_is_proven_by_what_it_is(said: str, tmp_path: Path) -> None:
    """A file of which nothing is known lacks nothing where it is as wanted, and something under any other settings."""
    configs = {name: config_of(**({"columns": COLUMNS} | settings)) for name, settings in _IMPORTED.items()}
    path, contents = _made(tmp_path, configs[said])
    for known in (contents, contents_of(path), None):
        assert shortfalls(path, known, None, configs[said]) == ()
    # What a filter kept and what is never null is as wanted without them too.
    alike = {"nothing", "sort", "row filter", "never null"}
    for other, wanted in configs.items():
        proven = other == said or ({said, other} <= alike and other != "sort")
        assert (shortfalls(path, None, None, wanted) == ()) == proven, other


@pytest.mark.case("tables:B1")
def test_imported_files_lack_what_cannot_be_seen_or_is_not_there(tmp_path: Path) -> None:
    """Rates of bloom filters, other columns and types, nulls, and values that are not derived are told."""
    path = tmp_path / "theirs.parquet"
    rows = trips().append_column("x", pa.array(range(5_000)))
    pq.write_table(rows, path, compression="zstd", write_page_index=True, bloom_filter_options={"id": {"ndv": 5_000}})

    def lacks(columns: dict[str, Any], **settings: Any) -> str:
        return "; ".join(shortfalls(path, None, None, config_of(columns, **settings)))

    assert lacks(_DERIVED) == "bloom filter of id: there"
    assert lacks(_DERIVED, bloom="id") == "bloom filter of id: its false-positive rate cannot be seen"
    assert lacks(COLUMNS | {"y": "bigint", "id": "integer"}) == (
        "type of id: int64, wanted int32; column removed: x; column added: y"
    )
    assert "nulls in city: " in lacks(_DERIVED | {"city": {"type": "varchar", "nullable": False}}, bloom="id")
    assert "derived x: other values" in lacks(_DERIVED, bloom="id", derived={"x": "id"})
    pq.write_table(rows, path, compression="zstd", write_page_index=True, write_statistics=False)
    assert "statistics of id: none" in lacks(_DERIVED)


def test_how_another_program_held_its_columns_is_no_shortfall(tmp_path: Path) -> None:
    """Files say how texts were held when they were written: as views, with 64-bit offsets, as dictionaries."""
    path, wanted = tmp_path / "theirs.parquet", config_of(COLUMNS)
    views: Any = pa.string_view()
    for held in (views, pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        rows = trips()
        for name in ("city", "name"):
            plain: Any = rows.column(name)
            cast = plain.dictionary_encode() if pa.types.is_dictionary(held) else plain.cast(held)
            rows = rows.set_column(rows.schema.get_field_index(name), name, cast)
        pq.write_table(rows, path, compression="zstd", write_page_index=True)
        assert shortfalls(path, contents_of(path), None, wanted) == ()
        assert contents_of(path).columns["name"].fingerprint == fingerprint(column_hashes(trips().column("name")))
        made = rebuild_file(path, tmp_path / str(held), RebuildJob(wanted))
        assert made.contents.columns == contents_of(path).columns
