"""Fingerprints: sums that know no order, by bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anew.core.arrow import take
from anew.core.fingerprint import BUCKETS, Fingerprint, FingerprintSum, buckets_of, in_buckets
from anew.core.hashing import key_hash, total
from anew.core.merge import Cell
from anew.core.stamp import Stamp
from tests.property.core.histories import rows_of

_ROWS = [
    (f"k{number}".encode(), Cell(Stamp(number), None if number % 5 == 0 else b"v%d" % number, int(number % 5 > 0)))
    for number in range(1_000)
]


def summed(*batches: pa.RecordBatch) -> Fingerprint:
    """The fingerprint of batches."""
    found = FingerprintSum()
    for batch in batches:
        found.add(batch)
    return found.result()


@pytest.mark.case("rules:R19")
def test_order_and_batches_do_not_matter() -> None:
    """The same rows, in whatever order and however they come, have one fingerprint: the sum of their hashes."""
    rows = rows_of(_ROWS)
    backwards = take(rows, np.arange(rows.num_rows)[::-1].copy())
    found = summed(rows)
    assert found == summed(backwards) == summed(rows.slice(700), rows.slice(0, 300), rows.slice(300, 400))
    assert (found.rows, found.tombstones) == (800, 200)
    assert found.total == total(rows.column("hash").to_numpy())
    assert sum(found.counts) == 1_000
    assert summed() == summed(rows[:0]) == Fingerprint(0, 0, (0,) * BUCKETS, (0,) * BUCKETS)


@pytest.mark.parametrize(
    "other",
    [
        Cell(Stamp(3), b"v4", 1),
        Cell(Stamp(4), b"v3", 1),
        Cell(Stamp(3), b"v3", 2),
        Cell(Stamp(3), None),
        Cell(Stamp(3, offset=1), b"v3", 1),
    ],
    ids=["value", "time", "schema", "deleted", "offset"],
)
def test_a_row_that_differs_shows_in_its_bucket(other: Cell) -> None:
    """Whatever changes about one row changes the sum of its key's bucket and of no other."""
    changed = [(key, other if key == b"k3" else cell) for key, cell in _ROWS]
    assert summed(rows_of(_ROWS)).differing(summed(rows_of(changed))) == [key_hash(b"k3") >> 56]


def test_a_row_more_or_less_shows_in_its_bucket() -> None:
    """A bucket differs when it has other rows, even where their hashes happened to sum up to nothing."""
    rows = rows_of(_ROWS)
    bucket = key_hash(b"k7") >> 56
    assert summed(rows).differing(summed(rows.slice(0, 7), rows.slice(8))) == [bucket]
    nothing = FingerprintSum()
    nothing.add(rows.slice(0, 1).set_column(9, "hash", pa.array([0])))
    assert summed().differing(nothing.result()) == [key_hash(b"k0") >> 56]


def test_buckets_are_the_first_byte_of_the_key_hash() -> None:
    """Each key is in the bucket of its hash's first byte; choosing buckets chooses just their keys."""
    keys = rows_of(_ROWS).column("key")
    expected = [key_hash(key) >> 56 for key, _ in _ROWS]
    assert buckets_of(keys).tolist() == expected
    some = frozenset({0, 17, 255})
    assert in_buckets(keys, some).tolist() == [index for index, bucket in enumerate(expected) if bucket in some]
