"""The base of a version, in pieces that scanning tasks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anew.segments.base import BaseReader
from anew.segments.basefile import ROW_GROUP_ROWS
from anew.segments.manifest import BaseFile, BasePart
from anew.spark.stores.dealing import dealt, share_of
from anew.spark.stores.frames import Kind, as_scanned


@dataclass(frozen=True, slots=True)
class BasePiece:
    """One of ``slices`` slices of a part of the base: consecutive rows, so that its keys ascend too."""

    part: BasePart
    slice_: int
    slices: int


def base_pieces(parts: Sequence[BasePart], max_records: int, wanted: int) -> list[tuple[BasePiece, ...]]:
    """The whole base as pieces, in groups of at most ``max_records`` (case B7): about ``wanted`` if that is enough.

    A piece is a row group at least, even where that is more than the limit; of a format-1 file it is the whole file.
    """
    limit = min(max_records, max(ROW_GROUP_ROWS, share_of(sum(map(_rows, parts)), wanted)))
    pieces: list[tuple[BasePiece, int]] = []
    for part in parts:
        rows = _rows(part)
        slices = max(1, min(-(-rows // limit), -(-rows // ROW_GROUP_ROWS))) if _is_sliced(part) else 1
        pieces += [(BasePiece(part, slice_, slices), rows // slices) for slice_ in range(slices)]
    return [tuple(group) for group in dealt(pieces, limit)]


def _is_sliced(part: BasePart) -> bool:
    """Whether a slice can be proved without the rest: of a file that has its checksum alone it cannot."""
    return not isinstance(part, BaseFile) or part.proof is not None


def _rows(part: BasePart) -> int:
    return part.rows + part.tombstones


def scan_base(base: BaseReader, pieces: Iterable[BasePiece]) -> Iterator[pa.RecordBatch]:
    """The rows of some pieces, columns `anew.spark.stores.frames.SCANNED`."""
    for piece in pieces:
        for rows in base.rows(piece.part, piece.slice_, piece.slices):
            yield as_scanned(rows, Kind.BASE)
