"""What a file holds is told from the file itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.errors import Failed
from anew.core.hashing import key_hash
from anew.core.tables.config import Partitioning
from anew.segments.tables.bounds import MOST_CHARACTERS, bounds_of
from anew.segments.tables.fingerprint import column_hashes, fingerprint
from anew.segments.tables.inspect import contents_of
from anew.segments.tables.partitions import partition_numbers, partitions_of
from tests.component.segments_tables.rows import config_of, every_type, trips


def test_contents_are_told_in_json(tmp_path: Path) -> None:
    """Bounds of each type are in the JSON form of its values; nulls and fingerprints are there."""
    columns, rows = every_type()
    path = tmp_path / "x.parquet"
    pq.write_table(rows, path)
    contents = contents_of(path, filled=frozenset(["c1"]))
    assert contents.rows == 4
    assert contents.created_by.startswith("parquet-cpp-arrow")
    assert contents.partitions is None
    found = {column.type: contents.columns[column.name] for column in columns}
    assert {kind: (stats.least, stats.greatest) for kind, stats in found.items()} == {
        "boolean": (False, True),
        "smallint": (-(2**15), 2**15 - 1),
        "integer": (-(2**31), 2**31 - 1),
        "bigint": (-(2**63), 2**63 - 1),
        "real": (0.0, None),
        "double": (0.0, 1e300),
        "varchar": ("", "b"),
        "blob": ("", None),
        "date": ("0001-01-01", "9999-12-31"),
        "timestamp": ("0001-01-01T00:00:00", "9999-12-31T00:00:00"),
        "decimal(10,2)": ("-99999999.99", "1.50"),
        "decimal(38,0)": (str(-(10**37)), str(10**37)),
    }
    for column in columns:
        stats = contents.columns[column.name]
        assert (stats.type, stats.nulls, stats.filled) == (column.type, 1, column.name == "c1")
        assert stats.fingerprint == fingerprint(column_hashes(rows.column(column.name)))


def test_floats_with_nan_have_no_bounds() -> None:
    """NaN is in no order with other numbers."""
    assert bounds_of(pa.array([1.0, math.nan, None])) == (None, None)
    assert bounds_of(pa.array([1.0, None])) == (1.0, 1.0)


def test_values_that_only_the_dictionary_has_are_no_bounds() -> None:
    """A dictionary may hold values that no row has."""
    column: Any = pa.DictionaryArray.from_arrays(pa.array([1, None, 1]), pa.array(["a", "b", "c"]))
    assert bounds_of(column) == ("b", "b")
    assert bounds_of(column[1:2]) == (None, None)


@given(values=st.lists(st.text(max_size=3).map(lambda end: "x" * 63 + end) | st.text(), min_size=1, max_size=5))
def test_cut_bounds_are_bounds_of_texts(values: list[str]) -> None:
    """Whatever the texts, the bounds are short and hold all of them."""
    least, greatest = bounds_of(pa.array(values, pa.string()))
    assert least <= min(values)
    assert greatest is None or (greatest >= max(values) and len(greatest) <= MOST_CHARACTERS)


def test_the_greatest_text_may_have_no_short_bound() -> None:
    """After the last character there is no other one; after those before the surrogates come those after them."""
    assert bounds_of(pa.array(["\U0010ffff" * 65]))[1] is None
    assert bounds_of(pa.array(["a" + "\U0010ffff" * 65]))[1] == "b"
    assert bounds_of(pa.array(["a" * 63 + "\ud7ff" + "b"]))[1] == "a" * 63 + "\ue000"


def test_partitions_are_those_of_the_rows(tmp_path: Path) -> None:
    """The partitions of a file are the remainders of its values, ascending."""
    path = tmp_path / "x.parquet"
    config = config_of({"id": "bigint"}, partition_column="id", partition_function="modulo", partition_count=4)
    pq.write_table(pa.table({"id": [-1, 7, 9]}), path)
    assert contents_of(path, config).partitions == (1, 3)


def test_hash_partitions_are_sparks() -> None:
    """Texts and bytes hash as in Spark, integers of any width as longs, and a null leaves the seed 42."""
    by = Partitioning(column="k", function="xxhash64", count=7)
    texts = ["a", "", "longer than a stripe of thirty-two bytes", "a"]
    signed = [key_hash(text.encode()) - (key_hash(text.encode()) >> 63 << 64) for text in texts]
    expected = [*(number % 7 for number in signed), 0]
    column = pa.array([*texts, None])
    assert partition_numbers(column, by).tolist() == expected
    assert partition_numbers(column.dictionary_encode(), by).tolist() == expected
    assert partition_numbers(column.cast(pa.binary()), by).tolist() == expected
    # SELECT xxhash64(1L) in Spark.
    assert partition_numbers(pa.array([1, None], pa.int16()), by).tolist() == [-7001672635703045582 % 7, 0]
    assert partitions_of(column.dictionary_encode(), by) == tuple(sorted(set(expected)))


def test_columns_of_types_that_tables_do_not_have_are_named(tmp_path: Path) -> None:
    """A file with lists, say, is no segment."""
    path = tmp_path / "x.parquet"
    pq.write_table(trips(3).append_column("tags", pa.array([["a"], [], None])), path)
    with pytest.raises(Failed) as caught:
        contents_of(path)
    assert caught.value.code == "unsupported_type"
