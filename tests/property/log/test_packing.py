"""Records in the rows of the embedded log: what is unpacked is what was packed, and nothing broken passes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.arrow import concat
from anew.log.interface import APPEND_RECORDS
from anew.log.packing import PACKED_BYTES, PACKED_RECORDS, Row, appending, unpacked

_BYTES = st.binary(max_size=40)
_RECORDS = st.lists(
    st.tuples(
        st.none() | st.integers(1, 2**62), _BYTES, _BYTES, st.integers(0, 2**31 - 1), st.none() | st.binary(max_size=90)
    ),
    max_size=30,
)


def _batch(records: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*records, strict=True)) if records else [()] * len(APPEND_RECORDS)
    arrays: list[Any] = [pa.array(column, of) for column, of in zip(columns, APPEND_RECORDS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=APPEND_RECORDS)


def _rows(first_offset: int, batches: list[pa.RecordBatch]) -> list[Row]:
    portions = [packed for batch in batches for packed in appending(batch).packed]
    firsts = accumulate((packed.count for packed in portions), initial=first_offset)
    return [
        (first, packed.count, 1_000 + index, *packed.columns)
        for index, (first, packed) in enumerate(zip(firsts, portions, strict=False))
    ]


@given(st.lists(_RECORDS, min_size=1, max_size=4), st.integers(0, 2**40), st.integers(0, 5))
def test_what_is_unpacked_is_what_was_packed(appends: list[Any], first: int, skipped: int) -> None:
    """Appends, also parts of larger batches, come back record by record, with the offsets and times of their rows."""
    batches = [_batch([(None, b"before", b"", 1, b"other")] * skipped + records).slice(skipped) for records in appends]
    found = unpacked(_rows(first, batches))
    expected = concat(batches)
    assert found.select(APPEND_RECORDS.names).to_pylist() == expected.to_pylist()
    assert found.column("offset").to_pylist() == list(range(first, first + expected.num_rows))
    alone = [number for number, batch in enumerate(b for b in batches if b.num_rows) for _ in range(batch.num_rows)]
    assert found.column("appended_ms").to_pylist() == [1_000 + number for number in alone]
    found.validate(full=True)


@given(_RECORDS.filter(len), st.data())
def test_what_is_cut_short_is_noticed(records: list[Any], data: st.DataObject) -> None:
    """A row that lacks bytes of a column, or a row that is not there, is an error and never fewer records."""
    rows = _rows(0, [_batch(records), _batch(records), _batch(records)])
    with pytest.raises(ValueError, match="missing"):
        unpacked([rows[0], rows[2]])
    column = data.draw(st.sampled_from([i for i in range(3, 11) if rows[1][i]]))
    cut: Any = list(rows[1])
    cut[column] = cut[column][: -data.draw(st.integers(1, len(cut[column])))]
    with pytest.raises(ValueError):  # noqa: PT011  # numpy says it in words of its own
        unpacked([rows[0], tuple(cut), rows[2]])


def test_a_value_below_a_null_is_nothing() -> None:
    """Bytes that lie in the buffer where a null stands are not of the next value."""
    hidden = pa.array([b"a", b"hidden", b"b"], pa.binary())
    buffers = [pa.py_buffer(b"\x05"), *hidden.buffers()[1:]]
    value: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), 3, buffers, 1)
    batch = _batch([(None, b"o", b"k", 1, None)] * 3)
    batch = batch.set_column(4, APPEND_RECORDS.field("value"), value)
    assert unpacked(_rows(0, [batch])).column("value").to_pylist() == [b"a", None, b"b"]


def test_rows_are_bounded() -> None:
    """Many records and large ones are split, so that reading one does not unpack all."""
    many = appending(_batch([(None, b"o", b"k", 1, b"v")] * (2 * PACKED_RECORDS + 1)))
    assert [packed.count for packed in many.packed] == [PACKED_RECORDS, PACKED_RECORDS, 1]
    large = appending(_batch([(None, b"o", b"k", 1, bytes(PACKED_BYTES // 2))] * 3))
    assert [packed.count for packed in large.packed] == [1, 1, 1]
