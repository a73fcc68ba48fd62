"""Sorted blocks: rows travel through a shuffle by the thousand, and meet again in a merge.

A scanning task sorts a *run* of rows, some megabytes of them, and cuts it by destination into *blocks*. What shuffles
is blocks: a few thousand wide rows instead of millions of narrow ones, sorted by the place of their first row. Who
receives them in that order holds only those that overlap: whatever lies before the first row of the next block can go.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import concat, take
from anew.core.errors import Failed
from anew.core.rows import ROWS, SORT_COLUMNS
from anew.core.sorting import sort_order

Ints = npt.NDArray[np.int64]
Batches = list[pa.RecordBatch]

RUN_BYTES = 16 << 20
"""About how much a scanning task sorts at once where runs overlap: the more, the fewer runs there are to merge."""
_STEP_BYTES = 2 << 20
_OVERLAP_BYTES = 64 << 20
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 8 << 10, 512 << 10
_ALWAYS_IN_ROWS = frozenset({"key", "value", "hash"})


_PACKED: list[Any] = [
    pa.field("place", pa.int32(), nullable=False),
    *(ROWS.field(name) for name in SORT_COLUMNS),
    pa.field("constants", pa.binary()),
    pa.field("rows", pa.binary(), nullable=False),
]
BLOCKS = pa.schema(_PACKED)
"""One block: its destination; the sort columns of its first row; an Arrow stream of one row with the columns that are
the same in all its rows, and the schema of the others; an Arrow record batch message of these others. A block without
``constants`` holds no rows but whatever bytes its maker put there."""


def block_bytes(runs: int) -> int:
    """How large blocks may be so that one of each of so many runs can be held at once."""
    return min(max(_OVERLAP_BYTES // max(runs, 1), _LEAST_BLOCK_BYTES), _MOST_BLOCK_BYTES)


def runs_of(batches: Iterable[pa.RecordBatch], run_bytes: int = RUN_BYTES) -> Iterator[pa.RecordBatch]:
    """Batches joined to about ``run_bytes``; those without rows vanish."""
    waiting: Batches = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= run_bytes:
            yield waiting[0] if len(waiting) == 1 else concat(waiting)
            waiting, size = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else concat(waiting)


def cut(rows: pa.RecordBatch, places: npt.NDArray[np.int32], size_bytes: int) -> pa.RecordBatch:
    """A run as blocks (columns `BLOCKS`) of about ``size_bytes``, in the order of their places.

    Args:
        rows: At least one row, in any order.
        places: The destination of each, from 0, shape (n,).
        size_bytes: See `block_bytes`.
    """
    order = sort_order(rows)
    most = int(places.max())
    if most != int(places.min()):
        narrow = places.astype(np.uint16) if most < 1 << 16 else places  # numpy sorts short numbers by radix
        order = order[narrow[order].argsort(kind="stable")]
    ordered = _taken(rows, order)
    constants, varying = _fold(ordered)
    step = max(1, size_bytes * rows.num_rows // max(varying.nbytes, 1))
    counts = np.bincount(places)
    ends = np.cumsum(counts)
    spans = [
        (begin, min(begin + step, int(ends[place])))
        for place in counts.nonzero()[0]
        for begin in range(int(ends[place] - counts[place]), int(ends[place]), step)
    ]
    begins = np.array([begin for begin, _ in spans])
    firsts = take(ordered.select(list(SORT_COLUMNS)), begins)
    packed: list[Any] = [
        pa.array(places[order[begins]]),
        *firsts.columns,
        pa.repeat(pa.scalar(constants, pa.binary()), len(spans)),
        _messages([varying.slice(begin, end - begin) for begin, end in spans]),
    ]
    return pa.RecordBatch.from_arrays(packed, schema=BLOCKS)


def unpack(constants: bytes, rows: bytes) -> pa.RecordBatch:
    """The rows of a block, with all columns of the run.

    Raises:
        Failed: ``corrupt_block``.
    """
    try:
        schema, inner, known = _opened(constants)
        body = pa.ipc.read_record_batch(pa.py_buffer(rows), inner)
        # Arrow believes offsets until they are used, and then it is too late.
        body.validate(full=True)
        columns = [
            body.column(name) if name not in known else pa.repeat(known[name], body.num_rows) for name in schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except (pa.ArrowException, OSError, EOFError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise Failed(
            "corrupt_block", "rows that Spark shuffled cannot be read", found=f"{type(error).__name__}: {error}"
        ) from error


def merge_blocks(blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted batches in the order of `SORT_COLUMNS`; the batches come in the order of their first rows.

    Held in memory: the batches that overlap, and some megabytes. However often a key comes, its records of one feed
    partition are in batches that do not overlap.
    """
    held: Batches = []
    left = fresh = 0
    for block in blocks:
        if block.num_rows == 0:
            continue
        if fresh >= max(_STEP_BYTES, left):
            frontier = _place(block, 0)
            ready, held = _divided(held, frontier)
            if ready:
                yield _merged(ready)
                ready = []
            left, fresh = sum(batch.nbytes for batch in held), 0
        held.append(block)
        fresh += block.nbytes
    if held:
        yield _merged(held)


def _messages(batches: Batches) -> pa.Array[Any]:
    """Each batch as an Arrow message, a binary column."""
    sink, ends = pa.BufferOutputStream(), [0]
    for batch in batches:
        sink.write(batch.serialize())
        ends.append(sink.tell())
    starts: Any = np.array(ends, dtype=np.int32)
    offsets: Any = pa.py_buffer(starts)
    return pa.Array.from_buffers(pa.binary(), len(batches), [None, offsets, sink.getvalue()])


def _divided(held: Batches, frontier: tuple[Any, ...]) -> tuple[Batches, Batches]:
    """The rows before the frontier, and the others."""
    ready: Batches = []
    later: Batches = []
    for batch in held:
        count = _rows_before(batch, frontier)
        if count:
            ready.append(batch.slice(0, count))
        if count < batch.num_rows:
            later.append(batch.slice(count))
    return ready, later


def _merged(batches: Batches) -> pa.RecordBatch:
    # In the order of the stamps, so that rows of one key meet in order: then nothing else has to be sorted than keys.
    batches.sort(key=lambda batch: _place(batch, 0)[1:])
    rows = concat(batches)
    return rows if len(batches) == 1 else _taken(rows, sort_order(rows))


def _rows_before(batch: pa.RecordBatch, frontier: tuple[Any, ...]) -> int:
    keys: Any = batch.column("key")
    rows = range(batch.num_rows)
    first = bisect_left(rows, frontier[0], key=lambda index: keys[index].as_py())
    if first == batch.num_rows or keys[first].as_py() != frontier[0]:
        return first
    return bisect_left(rows, frontier, lo=first, key=lambda index: _place(batch, index))


def _place(batch: pa.RecordBatch, index: int) -> tuple[Any, ...]:
    return tuple(batch.column(name)[index].as_py() for name in SORT_COLUMNS)


def _taken(rows: pa.RecordBatch, order: Ints) -> pa.RecordBatch:
    # No index is out of range, as they come from a sort.
    indices: Any = pa.array(order)
    taken: pa.RecordBatch = pc.take(rows, indices, boundscheck=False)
    return taken


def _fold(rows: pa.RecordBatch) -> tuple[bytes, pa.RecordBatch]:
    """What all rows have in common, with the schema, and the columns that remain."""
    alike = [name for name in rows.schema.names if name not in _ALWAYS_IN_ROWS and _is_constant(rows.column(name))]
    varying = rows.select([name for name in rows.schema.names if name not in alike])
    schema = rows.schema.with_metadata({b"varying": ",".join(varying.schema.names).encode()})
    sink = pa.BufferOutputStream()
    one: list[Any] = [
        rows.column(field.name)[:1] if field.name in alike else pa.nulls(1, field.type) for field in rows.schema
    ]
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(one, schema=schema))
    return sink.getvalue().to_pybytes(), varying


def _is_constant(column: pa.Array[Any]) -> bool:
    if column.null_count:
        return False
    return len(column) < 2 or not pc.any(pc.not_equal(column[1:], column[:-1])).as_py()


@functools.lru_cache(maxsize=1024)
def _opened(constants: bytes) -> tuple[pa.Schema, pa.Schema, dict[str, Any]]:
    """The schema of all columns, that of those in the rows, and the values of the others."""
    with pa.ipc.open_stream(pa.py_buffer(constants)) as stream:
        one = stream.read_next_batch()
    one.validate(full=True)
    metadata: Any = one.schema.metadata
    varying = metadata[b"varying"].decode().split(",")
    schema = one.schema.remove_metadata()
    known = {name: one.column(name)[0] for name in schema.names if name not in varying}
    fields: list[Any] = [schema.field(name) for name in varying]
    return schema, pa.schema(fields), known
