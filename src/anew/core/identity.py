"""The identity of a stream job's record: its batch and its sequence there, behind the origin of its generation (R20).

A generation's record carries in the log, where others carry their origin, ``Origin.encoded`` and 12 bytes more::

    kind, name, NUL, generation   the origin of a job's generation, 10 bytes and the name's
    u32                           batch, below 2**31
    u64                           sequence, below 2**63: epoch (15 bits) | task attempt (22 bits) | row (26 bits)

Numbers are big-endian. No name holds a NUL, so the first NUL ends the name: an origin without an identity ends eight
bytes behind it, one with an identity twenty.

Two records of one (generation, batch) never share a sequence. The epoch is that of the lease under which the batch ran:
a repeated batch runs under a greater one. The task attempt is Spark's ``taskAttemptId`` modulo 2**22, which no two
attempts of a batch share, also when a stage runs again (``attemptNumber`` starts again then). The row counts the
records that the attempt has appended. So two records with equal stamps are the same record, with the same value.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import binary_lengths
from anew.core.errors import Refused
from anew.core.stamp import Origin, OriginKind

IDENTITY_BYTES = 12
MOST_BATCHES = 1 << 31
MOST_EPOCHS = 1 << 15
MOST_ROWS = 1 << 26
"""How many records one task attempt can append in a batch."""
ATTEMPT_BITS, ROW_BITS = 22, 26
_GENERATION_BYTES = 8
_IDENTITY = struct.Struct(">IQ")
_NONE = -1
_NUL: Any = b"\x00"
_JOB_KIND: Any = bytes([OriginKind.JOB])

Ints = npt.NDArray[np.int64]


class Identities(NamedTuple):
    """What `split_identities` finds of n records.

    Attributes:
        origin: The encoded origins without their identities; what has no identity stays as it is. Shape (n,).
        batch: int32 of shape (n,); -1 where there is no identity.
        sequence: int64 of shape (n,); -1 where there is no identity.
    """

    origin: pa.BinaryArray
    batch: npt.NDArray[np.int32]
    sequence: Ints


def sequences(epoch: int, attempt: int, first_row: int, count: int) -> Ints:
    """The sequences of ``count`` records that one task attempt appends next in a batch, ascending, shape (count,).

    Args:
        epoch: That of the generation's lease, from 0.
        attempt: Spark's ``taskAttemptId``.
        first_row: How many records the attempt has appended in this batch before.
        count: How many follow.

    Raises:
        Refused: ``epoch_out_of_range``, ``too_many_rows``: the sequence has no room for it.
    """
    if not 0 <= epoch < MOST_EPOCHS:
        raise Refused(
            "epoch_out_of_range",
            "a record's identity has no room for that epoch: the generation was started too often",
            found=epoch,
            expected=f"0 … {MOST_EPOCHS - 1}",
            hint="go on in a new generation of the job",
        )
    if first_row < 0 or count < 0 or first_row + count > MOST_ROWS:
        raise Refused(
            "too_many_rows",
            "one task brings more records of one batch than their identities can count",
            found=first_row + count,
            expected=f"{MOST_ROWS} records at most",
            hint="read smaller batches, or divide the output among more tasks",
        )
    if attempt < 0:
        raise ValueError(f"a task attempt's number is not negative: {attempt}")
    begin = ((epoch << ATTEMPT_BITS) | attempt % (1 << ATTEMPT_BITS)) << ROW_BITS
    return np.arange(begin + first_row, begin + first_row + count, dtype=np.int64)


def identified_origins(origin: Origin, batch: int, numbers: Ints) -> pa.BinaryArray:
    """What the records of one batch carry as their origins, shape (n,); ``numbers`` are their `sequences`.

    Raises:
        Refused: ``batch_out_of_range``.
    """
    if origin.kind is not OriginKind.JOB:
        raise ValueError(f"only a job's records have an identity, not those of {origin}")
    if not 0 <= batch < MOST_BATCHES:
        raise Refused(
            "batch_out_of_range",
            "a record's identity has no room for that batch",
            found=batch,
            expected=f"0 … {MOST_BATCHES - 1}",
            hint="go on in a new generation of the job",
        )
    head = origin.encoded + struct.pack(">I", batch)
    row_type = np.dtype([("head", "u1", (len(head),)), ("sequence", ">u8")])
    rows = np.empty(numbers.size, dtype=row_type)
    rows["head"] = np.frombuffer(head, dtype=np.uint8)
    rows["sequence"] = numbers
    return _of_one_length(rows.tobytes(), numbers.size, row_type.itemsize)


def split_identities(origins: pa.BinaryArray) -> Identities:
    """Records' origins and identities out of what they carry as origins, shape (n,), none null."""
    count = len(origins)
    batches, found = np.full(count, _NONE, dtype=np.int32), np.full(count, _NONE, dtype=np.int64)
    own = _with_identity(origins)
    if not own.any():
        return Identities(origins, batches, found)
    data, ends = _laid_out(origins)
    length = int(ends[1])
    if own.all() and data.size == count * length and (np.diff(ends) == length).all():
        tails = data.reshape(count, length)[:, -IDENTITY_BYTES:]
    else:
        tails = data[ends[1:][own][:, None] + np.arange(-IDENTITY_BYTES, 0)]
    raw_batches = np.ascontiguousarray(tails[:, :4]).view(">u4").ravel()
    raw_sequences = np.ascontiguousarray(tails[:, 4:]).view(">u8").ravel()
    # Their highest bits are never set: with one they are no identities.
    fits = (raw_batches < MOST_BATCHES) & (raw_sequences < 1 << 63)
    own[own] = fits
    batches[own] = raw_batches[fits].astype(np.int32)
    found[own] = raw_sequences[fits].astype(np.int64)
    return Identities(_shortened(data, ends, own), batches, found)


def split_identity(encoded: bytes) -> tuple[Origin, int, int]:
    """Origin, batch and sequence of what one record of a generation carries as its origin.

    Raises:
        ValueError: It is no origin with an identity.
    """
    found = split_identities(pa.array([encoded], pa.binary()))
    if found.batch[0] < 0:
        raise ValueError(f"not an origin with an identity: {encoded!r}")
    return Origin.decode(encoded[:-IDENTITY_BYTES]), int(found.batch[0]), int(found.sequence[0])


def _with_identity(origins: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Which are as long as a job's origin with an identity is, shape (n,)."""
    lengths = binary_lengths(origins)
    candidates = lengths > IDENTITY_BYTES + _GENERATION_BYTES + 1
    if not candidates.any():
        return candidates
    binary: Any = origins
    nuls = pc.find_substring(binary, _NUL).to_numpy(zero_copy_only=False)
    is_job = pc.starts_with(binary, _JOB_KIND).to_numpy(zero_copy_only=False)
    own: npt.NDArray[np.bool_] = is_job & (nuls + 1 + _GENERATION_BYTES + IDENTITY_BYTES == lengths)
    return own


def _laid_out(origins: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The bytes of all values end to end, and where each begins and the last ends, shape (n + 1,)."""
    buffers: list[Any] = origins.buffers()
    ends = np.frombuffer(buffers[1], np.int32)[origins.offset : origins.offset + len(origins) + 1]
    data = np.frombuffer(buffers[2], np.uint8)[ends[0] : ends[-1]]
    return data, (ends - ends[0]).astype(np.int64)


def _shortened(data: npt.NDArray[np.uint8], ends: Ints, own: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """Values laid end to end, those of ``own`` without their identities."""
    lengths = np.diff(ends)
    if own.all() and (lengths == lengths[0]).all():
        kept = data.reshape(own.size, int(lengths[0]))[:, :-IDENTITY_BYTES]
        return _of_one_length(kept.tobytes(), own.size, kept.shape[1])
    stays = np.ones(data.size, dtype=np.bool_)
    stays[(ends[1:][own][:, None] + np.arange(-IDENTITY_BYTES, 0)).ravel()] = False
    offsets = np.append(0, np.cumsum(lengths - IDENTITY_BYTES * own)).astype(np.int32)
    return _from_buffers(offsets, data[stays].tobytes())


def _of_one_length(data: bytes, count: int, length: int) -> pa.BinaryArray:
    if len(data) >= 1 << 31:
        raise ValueError(f"{count} origins do not fit into one column")
    return _from_buffers(np.arange(count + 1, dtype=np.int32) * np.int32(length), data)


def _from_buffers(offsets: npt.NDArray[np.int32], data: bytes) -> pa.BinaryArray:
    buffers: list[Any] = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    made: Any = pa.Array.from_buffers(pa.binary(), offsets.size - 1, buffers)
    result: pa.BinaryArray = made
    return result
