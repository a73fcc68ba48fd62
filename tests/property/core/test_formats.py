"""Hashes, cells and origins: the vectorised forms are the scalar ones, and the bytes carry everything."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from anew.core.admission import with_hashes
from anew.core.arrow import bytes_list
from anew.core.cell import decode_cell, decode_cells, decode_headers, decode_origins, encode_cell, encode_cells
from anew.core.errors import Failed
from anew.core.hashing import SEED, hash_binary, hash_int64, key_hash, key_hashes, origin_hash, row_hashes, total
from anew.core.merge import Cell
from anew.core.rows import ROWS
from anew.core.stamp import BATCH, Origin, OriginKind, Stamp, fabric_origin
from tests.property.core.histories import MODEST, rows_of

_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_INT64 = st.integers(-(2**63), 2**63 - 1)

origins = st.one_of(
    st.just(BATCH),
    _NAMES.map(lambda name: Origin(OriginKind.FABRIC, name)),
    st.builds(Origin, st.just(OriginKind.JOB), _NAMES, st.integers(0, 2**64 - 1)),
)
stamps = st.builds(
    Stamp,
    st.integers(0, 2**62),
    origins.map(lambda origin: origin.encoded),
    st.booleans(),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
)
cells = st.builds(Cell, stamps, st.binary(max_size=40), st.integers(1, 2**31 - 1)) | stamps.map(lambda s: Cell(s, None))
keyed = st.lists(st.tuples(st.binary(max_size=12), cells), max_size=8)


def _chained(key: bytes, cell: Cell) -> int:
    """A row's hash as the module describes it, one link after the other with the plain library."""
    stamp = cell.stamp
    digest = xxhash.xxh64_intdigest(key, SEED)
    if cell.value is not None:
        digest = xxhash.xxh64_intdigest(cell.value, digest)
    flags = int(stamp.append_timed) + 2 * cell.tombstone
    numbers = [
        cell.schema_id,
        stamp.time_ms,
        xxhash.xxh64_intdigest(stamp.origin, SEED),
        flags,
        stamp.incarnation,
        stamp.partition,
        stamp.offset,
    ]
    for number in numbers:
        digest = xxhash.xxh64_intdigest((number % 2**64).to_bytes(8, "little"), digest)
    return digest


@pytest.mark.case("rules:R19")
@MODEST
@given(keyed)
def test_row_hashes_are_the_plain_chain(rows: list[tuple[bytes, Cell]]) -> None:
    """The vectorised hash of each row is the chain of plain XXH64 calls, and the fingerprint is their sum."""
    expected = [_chained(key, cell) for key, cell in rows]
    batch = rows_of(rows)
    assert row_hashes(batch).tolist() == expected
    assert total(batch.column("hash").to_numpy()) == sum(expected) % 2**64


@MODEST
@given(st.lists(st.tuples(_INT64, st.integers(0, 2**64 - 1)), max_size=20))
def test_hashes_of_whole_numbers_are_xxh64(pairs: list[tuple[int, int]]) -> None:
    """Each int64 hashes like its eight little-endian bytes with its own seed."""
    numbers = np.array([number for number, _ in pairs], dtype=np.int64)
    seeds = np.array([seed for _, seed in pairs], dtype=np.uint64)
    expected = [xxhash.xxh64_intdigest(n.to_bytes(8, "little", signed=True), seed) for n, seed in pairs]
    assert hash_int64(numbers, seeds).tolist() == expected


@MODEST
@given(
    st.lists(st.tuples(st.integers(0, 140), st.sampled_from([1, 3, 47, 48, 60])), max_size=6),
    st.booleans(),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_a_column_hashes_like_each_of_its_values(
    groups: list[tuple[int, int]],
    nulls: bool,  # noqa: FBT001 - drawn
    skipped: int,
    chance: random.Random,
) -> None:
    """Values of many and of few lengths, with own seeds and in a slice, hash as XXH64; a null leaves its seed."""
    values: list[bytes | None] = [chance.randbytes(length) for length, count in groups for _ in range(count)]
    chance.shuffle(values)
    values += [None] if nulls else []
    seeds = np.array([chance.getrandbits(64) for _ in values], dtype=np.uint64)
    column = pa.array(values, pa.binary()).slice(skipped)
    expected = [
        int(seed) if value is None else xxhash.xxh64_intdigest(value, int(seed))
        for value, seed in zip(values[skipped:], seeds[skipped:], strict=True)
    ]
    assert hash_binary(column, seeds[skipped:]).tolist() == expected


@MODEST
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_key_hashes_are_the_hash_of_each(keys: list[bytes]) -> None:
    """The hashes of many keys are the hashes of each one; an origin's is the same, signed."""
    assert key_hashes(pa.array(keys, pa.binary())).tolist() == [key_hash(key) for key in keys]
    assert [origin_hash(key) % 2**64 for key in keys] == [key_hash(key) for key in keys]


@MODEST
@given(keyed)
def test_cells_survive_and_both_encoders_agree(rows: list[tuple[bytes, Cell]]) -> None:
    """A cell's bytes give the cell back, and encoding many at once gives the same bytes."""
    encoded = [encode_cell(cell) for _, cell in rows]
    assert [decode_cell(one) for one in encoded] == [cell for _, cell in rows]
    assert bytes_list(encode_cells(rows_of(rows))) == encoded


@MODEST
@given(keyed)
def test_rows_of_many_cells_are_what_they_were_made_of(rows: list[tuple[bytes, Cell]]) -> None:
    """Decoding many cells at once gives the rows that they encode, with hashes that are still to be made."""
    batch = rows_of(rows)
    decoded = decode_cells([key for key, _ in rows], bytes_list(encode_cells(batch)))
    assert decoded.num_rows == 0 or with_hashes(decoded).equals(batch)


@pytest.mark.parametrize(
    ("broken", "code"), [(b"\x01" * 31, "corrupt_cell"), (b"\x02" + bytes(31), "unknown_cell_format")]
)
def test_cells_that_cannot_be_read_are_refused(broken: bytes, code: str) -> None:
    """One cell that is too short, or of another format, among good ones is an error with its own code."""
    good = encode_cell(Cell(Stamp(1), b"value", 1))
    with pytest.raises(Failed) as refusal:
        decode_cells([b"a", b"b"], [good, broken])
    assert refusal.value.code == code


@MODEST
@given(keyed)
def test_headers_of_many_cells_are_those_of_each(rows: list[tuple[bytes, Cell]]) -> None:
    """What is read from many headers at once is what each cell says."""
    cells = [encode_cell(cell) for _, cell in rows]
    headers = decode_headers(cells)
    stamps_found = [
        (int(h["time"]), int(h["incarnation"]), int(h["feed_partition"]), int(h["offset"])) for h in headers
    ]
    assert stamps_found == [(c.stamp.time_ms, c.stamp.incarnation, c.stamp.partition, c.stamp.offset) for _, c in rows]
    assert decode_origins(cells, headers) == [cell.stamp.origin for _, cell in rows]


def test_slices_are_hashed_and_encoded_like_whole_batches() -> None:
    """A batch that is a slice of another one, offsets in its buffers and all, gives the bytes of its own rows."""
    origin = fabric_origin("dc-0").encoded
    rows = [(b"k%d" % n, Cell(Stamp(n, origin, n % 2 == 0, 1, 0, n), None if n % 3 else b"v%d" % n)) for n in range(9)]
    whole, part = rows_of(rows), rows_of(rows).slice(4, 3)
    assert row_hashes(part).tolist() == row_hashes(whole).tolist()[4:7]
    assert bytes_list(encode_cells(part)) == [encode_cell(cell) for _, cell in rows[4:7]]
    assert pa.RecordBatch.from_pylist(part.to_pylist(), schema=ROWS) == part


@pytest.mark.case("rules:R20")
@MODEST
@given(origins, origins)
def test_encoded_origins_have_the_order_of_origins(left: Origin, right: Origin) -> None:
    """Comparing two encodings byte by byte compares (kind, name, numeric generation)."""
    wanted = [(o.kind, o.name.encode(), o.generation) for o in (left, right)]
    assert (left.encoded < right.encoded) == (wanted[0] < wanted[1])
    assert (left.encoded == right.encoded) == (wanted[0] == wanted[1])


@MODEST
@given(origins)
def test_origins_survive_their_encoding(origin: Origin) -> None:
    """Decoding gives the origin back."""
    assert Origin.decode(origin.encoded) == origin


@pytest.mark.case("rules:R20")
def test_generations_are_numbers_not_text() -> None:
    """Generation 10 comes after 9, and a job whose name begins with another's keeps its place."""
    jobs = [("a", 9), ("a", 10), ("a", 2**40), ("ab", 0), ("b", 1)]
    encoded = [Origin(OriginKind.JOB, name, generation).encoded for name, generation in jobs]
    assert encoded == sorted(encoded)
    assert sorted(str(generation) for _, generation in jobs[:2]) == ["10", "9"]


@pytest.mark.parametrize("bad", [b"", b"\x03x", b"\x01short", b"\x00\x00"])
def test_what_is_no_origin_is_refused(bad: bytes) -> None:
    """Bytes of another form are not taken for an origin."""
    with pytest.raises(ValueError, match="not an origin"):
        Origin.decode(bad)


@pytest.mark.parametrize("name", ["a\x00b", "x" * 255])
def test_names_that_the_cell_cannot_hold_are_refused(name: str) -> None:
    """A name with NUL, or longer than the format's one byte of length allows, makes no origin."""
    with pytest.raises(ValueError, match="an origin's name"):
        fabric_origin(name)
