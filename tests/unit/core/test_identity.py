"""The identity that a stream job's records carry behind their generation's origin (rule R20)."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.arrow import bytes_list
from anew.core.errors import Refused
from anew.core.identity import (
    MOST_BATCHES,
    MOST_EPOCHS,
    MOST_ROWS,
    identified_origins,
    sequences,
    split_identities,
    split_identity,
)
from anew.core.stamp import BATCH, Origin, OriginKind, fabric_origin

pytestmark = pytest.mark.case("rules:R20")

_JOB = Origin(OriginKind.JOB, "clicks", 3)
_NAMES = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=1, max_size=12)
_ORIGINS = st.builds(
    lambda name, generation: Origin(OriginKind.JOB, name, generation), _NAMES, st.integers(0, 2**64 - 1)
)


def _binary(values: list[bytes]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def test_a_sequence_is_epoch_attempt_and_row() -> None:
    """15 bits of epoch, 22 of the task attempt and 26 of the row: each of them decides before those behind it."""
    assert sequences(0, 0, 5, 3).tolist() == [5, 6, 7]
    assert sequences(1, 2, 0, 1).tolist() == [(1 << 48) + (2 << 26)]
    assert sequences(2, 0, 0, 1)[0] > sequences(1, (1 << 22) - 1, MOST_ROWS - 1, 1)[0]
    assert sequences(MOST_EPOCHS - 1, (1 << 22) - 1, MOST_ROWS - 1, 1).tolist() == [(1 << 63) - 1]
    assert sequences(1, 2, 7, 0).tolist() == []


def test_attempts_are_counted_modulo_their_room() -> None:
    """A long-running session has more task attempts than there is room for: those of one batch differ all the same."""
    first, later = sequences(0, (1 << 22) - 1, 0, 1), sequences(0, 1 << 22, 0, 1)
    assert first.tolist() != later.tolist()
    assert later.tolist() == sequences(0, 0, 0, 1).tolist()


@pytest.mark.parametrize(
    ("epoch", "first_row", "count", "code", "found"),
    [
        (MOST_EPOCHS, 0, 1, "epoch_out_of_range", MOST_EPOCHS),
        (-1, 0, 1, "epoch_out_of_range", -1),
        (0, MOST_ROWS - 1, 2, "too_many_rows", MOST_ROWS + 1),
        (0, MOST_ROWS, 1, "too_many_rows", MOST_ROWS + 1),
    ],
)
def test_what_has_no_room_is_refused(epoch: int, first_row: int, count: int, code: str, found: int) -> None:
    """An epoch or a row that does not fit is never cut: two records would share a sequence."""
    with pytest.raises(Refused) as refused:
        sequences(epoch, 0, first_row, count)
    assert (refused.value.code, refused.value.found) == (code, found)
    assert refused.value.expected is not None
    assert refused.value.hint is not None


def test_a_batch_that_has_no_room_is_refused() -> None:
    """Batches are numbered below 2**31, as the merge's columns are."""
    assert len(identified_origins(_JOB, MOST_BATCHES - 1, sequences(0, 0, 0, 2))) == 2
    with pytest.raises(Refused) as refused:
        identified_origins(_JOB, MOST_BATCHES, sequences(0, 0, 0, 2))
    assert refused.value.code == "batch_out_of_range"


def test_only_a_job_s_records_have_an_identity() -> None:
    """A push or a fabric has no batches."""
    with pytest.raises(ValueError, match="only a job's records"):
        identified_origins(fabric_origin("dc-0"), 0, sequences(0, 0, 0, 1))


@given(_ORIGINS, st.integers(0, MOST_BATCHES - 1), st.lists(st.integers(0, 2**63 - 1), max_size=5))
def test_what_is_put_together_is_taken_apart(origin: Origin, batch: int, numbers: list[int]) -> None:
    """Any origin, batch and sequence come back, each record by itself as well; the bytes are those of the format."""
    carried = identified_origins(origin, batch, np.array(numbers, dtype=np.int64))
    assert bytes_list(carried) == [origin.encoded + struct.pack(">IQ", batch, number) for number in numbers]
    found = split_identities(carried)
    assert bytes_list(found.origin) == [origin.encoded] * len(numbers)
    assert found.batch.tolist() == [batch] * len(numbers)
    assert found.sequence.tolist() == numbers
    assert [split_identity(one) for one in bytes_list(carried)] == [(origin, batch, number) for number in numbers]


@given(
    st.lists(
        st.one_of(
            st.tuples(_ORIGINS, st.integers(0, MOST_BATCHES - 1), st.integers(0, 2**63 - 1)),
            st.sampled_from([BATCH, fabric_origin("dc-0"), fabric_origin("a" * 40), _JOB]),
            st.binary(max_size=40),
        ),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_records_of_all_kinds_are_told_apart(
    records: list[tuple[Origin, int, int] | Origin | bytes], skipped: int
) -> None:
    """Plain origins, foreign bytes and identities side by side: what has no identity stays as it is, slices too."""
    carried = [
        record.encoded
        if isinstance(record, Origin)
        else record
        if isinstance(record, bytes)
        else bytes_list(identified_origins(record[0], record[1], np.array([record[2]])))[0]
        for record in records
    ]
    found = split_identities(_binary(carried).slice(skipped))
    for index, record in enumerate(records[skipped:]):
        batch, sequence = int(found.batch[index]), int(found.sequence[index])
        origin = bytes_list(found.origin)[index]
        if isinstance(record, tuple):
            assert (origin, batch, sequence) == (record[0].encoded, record[1], record[2])
        elif isinstance(record, Origin):
            assert (origin, batch, sequence) == (record.encoded, -1, -1)
        else:
            assert (batch < 0) == (sequence < 0)
            assert origin == (record if batch < 0 else record[:-12])


def test_a_plain_origin_is_one_still() -> None:
    """The encoding of an origin without an identity is read as before, and one with an identity is not one."""
    assert Origin.decode(_JOB.encoded) == _JOB
    (carried,) = bytes_list(identified_origins(_JOB, 7, sequences(0, 0, 0, 1)))
    with pytest.raises(ValueError, match="not an origin"):
        Origin.decode(carried)
    with pytest.raises(ValueError, match="not an origin with an identity"):
        split_identity(_JOB.encoded)


@pytest.mark.parametrize("tail", [struct.pack(">IQ", 1 << 31, 0), struct.pack(">IQ", 0, 1 << 63)])
def test_numbers_that_no_writer_gives_are_no_identity(tail: bytes) -> None:
    """A batch or a sequence with its highest bit set would be negative in the merge."""
    found = split_identities(_binary([_JOB.encoded + tail, _JOB.encoded + struct.pack(">IQ", 1, 2)]))
    assert found.batch.tolist() == [-1, 1]
    assert bytes_list(found.origin) == [_JOB.encoded + tail, _JOB.encoded]


@pytest.mark.parametrize("encoded", [b"\x01seven b", b"\x01\x00", b"\x01", b"\x01a\x00" + bytes(9)])
def test_what_has_no_generation_is_no_origin(encoded: bytes) -> None:
    """A job's origin has one NUL behind its name and eight bytes behind that."""
    with pytest.raises(ValueError, match="not an origin"):
        Origin.decode(encoded)
