"""The base of a version, in pieces that scanning tasks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anew.deepstore.interface import DeepStore
from anew.segments.basefile import ROW_GROUP_ROWS, read_rows
from anew.segments.manifest import BaseFile
from anew.spark.dealing import dealt, share_of
from anew.spark.frames import Kind, as_scanned


@dataclass(frozen=True, slots=True)
class BasePiece:
    """One of ``parts`` parts of a base file: consecutive row groups, so that its keys ascend too."""

    path: str
    part: int
    parts: int


def base_pieces(files: Sequence[BaseFile], max_records: int, wanted: int) -> list[tuple[BasePiece, ...]]:
    """All files as pieces, in groups of at most ``max_records`` (case B7): about ``wanted`` of them if that is enough.

    A piece is a row group at least, even where that is more than the limit.
    """
    limit = min(max_records, max(ROW_GROUP_ROWS, share_of(sum(map(_rows, files)), wanted)))
    pieces: list[tuple[BasePiece, int]] = []
    for file in files:
        rows = _rows(file)
        parts = max(1, min(-(-rows // limit), -(-rows // ROW_GROUP_ROWS)))
        pieces += [(BasePiece(file.path, part, parts), rows // parts) for part in range(parts)]
    return [tuple(group) for group in dealt(pieces, limit)]


def _rows(file: BaseFile) -> int:
    return file.rows + file.tombstones


def scan_base(store: DeepStore, pieces: Iterable[BasePiece]) -> Iterator[pa.RecordBatch]:
    """The rows of some pieces, columns `anew.spark.frames.SCANNED`."""
    for piece in pieces:
        with store.open(piece.path) as opened:
            for rows in read_rows(opened, piece.part, piece.parts):
                yield as_scanned(rows, Kind.BASE)
