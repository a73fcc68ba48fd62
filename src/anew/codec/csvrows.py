"""CSV as RFC 4180 has it: which bytes are a row, and its cells as text; a cell in quotes may hold line breaks.

Rows are found before they are parsed, so that the line of each is known, and a row that is not well formed is told
apart from its neighbours instead of being read as something else. Where a block uses quotes as the RFC says, a line
break ends a row if the number of quotes before it is even; only blocks with other quotes are looked at row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from anew.codec.csvdialect import CsvDialect, cells_of, row_patterns
from anew.codec.filerows import FileRows, Lines, Unparsed, batch_of, shown_bytes, unreadable_file, utf8_rows
from anew.codec.kernels import pc
from anew.codec.textfile import MAX_ROW_BYTES, TextPart, is_divisible, text_blocks
from anew.core.errors import InvalidRequest

NOT_UTF8 = "a row of UTF-8 text (of another encoding: --option encoding=NAME)"
_NOT_CLOSED = "a row that parses: each quote closed, nothing between a closing quote and the next separator"
_LF, _CR = 10, 13
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file's columns.

    Attributes:
        names: The names of its cells, in order: the header's, or ``_c0``, ``_c1``, … where it has none.
        header_rows: 1 where the first row that is not blank is the header, else 0.
    """

    names: tuple[str, ...]
    header_rows: int


@dataclass(frozen=True, slots=True)
class _Block:
    """Complete rows, one after the other.

    Attributes:
        data: Their bytes.
        starts: Where each begins; shape (n,).
        ends: Where each ends, after its line break; shape (n,).
        malformed: Which are not well formed; shape (n,).
        lines: The line where each begins; shape (n,).
        next_line: The line after the last.
    """

    data: bytes
    starts: Lines
    ends: Lines
    malformed: npt.NDArray[np.bool_]
    lines: Lines
    next_line: int

    def row(self, index: Any) -> bytes:
        """The bytes of a row."""
        return self.data[self.starts[index] : self.ends[index]]


def csv_file(path: str, dialect: CsvDialect) -> CsvFile:
    """The columns of a file, by its first row.

    Raises:
        InvalidRequest: ``empty_input``: it has no row; ``unreadable_input``.
    """
    for block in _blocks(TextPart(path, dialect.encoding), dialect):
        for index in (~_blank(block)).nonzero()[0][:1]:
            row = block.row(index)
            if block.malformed[index]:
                raise unreadable_file(path, shown_bytes(row), _NOT_CLOSED)
            try:
                names = [(cell or b"").decode() for cell in cells_of(row, dialect)]
            except UnicodeDecodeError:
                raise unreadable_file(path, shown_bytes(row), NOT_UTF8) from None
            if not dialect.header:
                return CsvFile(tuple(f"_c{number}" for number in range(len(names))), 0)
            return CsvFile(tuple(name.strip() if dialect.trims else name for name in names), 1)
    raise InvalidRequest("empty_input", "the input holds nothing", found=path, expected="a line of column names")


def read_csv(part: TextPart, dialect: CsvDialect, file: CsvFile, columns: Sequence[str]) -> Iterator[FileRows]:
    """Some columns of a part of a file as text; null where a cell is empty without quotes, or the null text.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    wanted = [name for name in columns if name in file.names]
    header_rows = file.header_rows if part.begin == 0 else 0
    for block in _blocks(part, dialect):
        keep = ~_blank(block)
        if header_rows and keep.any():
            keep[int(keep.argmax())] = False
            header_rows = 0
        parser = _Parser(part.path, dialect, file.names, wanted)
        yield parser.rows(block, keep)


def split_csv(path: str, dialect: CsvDialect, target_bytes: int) -> list[TextPart]:
    """A file in parts of about so many bytes, each of whole rows.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    if not is_divisible(path, dialect.encoding) or Path(path).stat().st_size <= target_bytes:
        return [TextPart(path, dialect.encoding)]
    with Path(path).open("rb") as source:
        at = len(_MARK) if source.read(len(_MARK)) == _MARK else 0
    parts: list[TextPart] = []
    begin, first_line = 0, 1
    for block in _blocks(TextPart(path, dialect.encoding), dialect):
        at += len(block.data)
        if at - begin >= target_bytes:
            parts.append(TextPart(path, dialect.encoding, begin, at, first_line))
            begin, first_line = at, block.next_line
    if begin < at or not parts:
        parts.append(TextPart(path, dialect.encoding, begin, None, first_line))
    return parts


@dataclass(frozen=True, slots=True)
class _Parser:
    """Makes columns of blocks of one file."""

    path: str
    dialect: CsvDialect
    names: tuple[str, ...]
    wanted: list[str]

    def rows(self, block: _Block, keep: npt.NDArray[np.bool_]) -> FileRows:
        """The rows of a block that are kept: parsed, or said to be bad."""
        unparsed = [
            Unparsed(int(block.lines[index]), shown_bytes(block.row(index)), _NOT_CLOSED)
            for index in (keep & block.malformed).nonzero()[0]
        ]
        kept = (keep & ~block.malformed).nonzero()[0]
        columns, uneven = self._cells(block, kept)
        unparsed += [Unparsed(int(block.lines[index]), shown_bytes(block.row(index))) for index in kept[uneven]]
        kept = np.delete(kept, uneven)
        if any(len(column) != len(kept) for column in columns.values()):
            raise unreadable_file(self.path, "rows that do not end where their quotes do", "CSV as RFC 4180 has it")
        texts, not_text = utf8_rows(columns, len(kept))
        unparsed += [Unparsed(int(block.lines[i]), shown_bytes(block.row(i)), NOT_UTF8) for i in kept[not_text]]
        batch = batch_of(texts, len(kept))
        if not_text.any():
            batch, kept = batch.filter(pa.array(~not_text)), kept[~not_text]
        return FileRows(batch, block.lines[kept], sorted(unparsed, key=lambda row: row.line))

    def _cells(self, block: _Block, kept: npt.NDArray[np.int64]) -> tuple[dict[str, Any], list[int]]:
        """The wanted columns of some rows as binary arrays, and which of these rows have too few or too many cells."""
        if not len(kept):
            return {name: pa.array([], pa.binary()) for name in self.wanted}, []
        if self.dialect.has_escape:
            return self._cells_by_row(block, kept)
        data, uneven = _joined(block, kept), list[int]()
        width = len(self.names)

        def on_uneven(row: Any) -> Any:
            uneven.append(int(row.number) - 1)
            return "skip"

        places = [str(number) for number in range(width)]
        chosen = [str(self.names.index(name)) for name in self.wanted] or places[:1]
        null_texts = [""] if self.dialect.null_text is None else ["", self.dialect.null_text]
        source: Any = pa.BufferReader(data)
        types: Any = {place: pa.binary() for place in chosen}
        table = csv.read_csv(
            source,
            csv.ReadOptions(column_names=places, use_threads=False, block_size=len(data) + 1),
            csv.ParseOptions(
                delimiter=self.dialect.separator,
                quote_char=self.dialect.quote,
                newlines_in_values=True,
                invalid_row_handler=on_uneven,
            ),
            csv.ConvertOptions(
                column_types=types,
                include_columns=chosen,
                null_values=null_texts,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        arrays: list[Any] = [column.combine_chunks() for column in table.columns]
        columns = dict(zip(self.wanted, arrays, strict=False))
        return self._trimmed(columns), uneven

    def _cells_by_row(self, block: _Block, kept: npt.NDArray[np.int64]) -> tuple[dict[str, Any], list[int]]:
        rows = [cells_of(block.row(index), self.dialect) for index in kept]
        uneven = [index for index, row in enumerate(rows) if len(row) != len(self.names)]
        even = [row for row in rows if len(row) == len(self.names)]
        places = {name: self.names.index(name) for name in self.wanted}
        columns = {name: pa.array([row[place] for row in even], pa.binary()) for name, place in places.items()}
        return self._trimmed(columns), uneven

    def _trimmed(self, columns: dict[str, Any]) -> dict[str, Any]:
        if not self.dialect.trims:
            return columns
        return {name: pc.ascii_trim_whitespace(one.cast(pa.string(), safe=False)) for name, one in columns.items()}


def _joined(block: _Block, kept: npt.NDArray[np.int64]) -> Any:
    """The bytes of some rows, copied only where others lie between them."""
    if len(kept) == len(block.starts):
        return block.data
    gaps = np.flatnonzero(np.diff(kept) > 1)
    first, last = np.append(kept[0], kept[gaps + 1]), np.append(kept[gaps], kept[-1])
    runs = zip(block.starts[first], block.ends[last], strict=True)
    return b"".join(block.data[start:end] for start, end in runs)


def _blank(block: _Block) -> npt.NDArray[np.bool_]:
    """Which rows are nothing but a line break."""
    of = np.frombuffer(block.data, np.uint8)
    first = of[block.starts]
    is_break = (first == _LF) | (first == _CR)
    return np.asarray(is_break & (block.ends - block.starts <= 2))


def _blocks(part: TextPart, dialect: CsvDialect) -> Iterator[_Block]:
    """The part's rows, block by block; a row that goes over the end of a block belongs to the next one."""
    rest, line = b"", part.first_line
    source = text_blocks(part)
    while True:
        more = next(source, None)
        data = rest + (more or b"")
        if data:
            block = _found(data, line, dialect, final=more is None)
            if len(block.starts):
                yield block
            rest, line = data[len(block.data) :], block.next_line
        if more is None:
            return
        if len(rest) > MAX_ROW_BYTES:
            found = f"a row of more than {MAX_ROW_BYTES} bytes, from line {line}: {shown_bytes(rest[:100])}"
            raise unreadable_file(part.path, found, "rows whose quotes are closed")


def _found(data: bytes, first_line: int, dialect: CsvDialect, *, final: bool) -> _Block:
    of = np.frombuffer(data, np.uint8)
    breaks = _line_ends(data, of, final=final)
    quotes = np.flatnonzero(of == ord(dialect.quote)) if dialect.quote.encode() in data else np.array([], np.int64)
    if dialect.has_escape or not _are_as_rfc_says(of, quotes, ord(dialect.separator)):
        ends, malformed = _ends_by_row(data, dialect, final=final)
    else:
        ends = breaks[np.searchsorted(quotes, breaks) % 2 == 0] if len(quotes) else breaks
        malformed = np.zeros(len(ends), np.bool_)
        last = int(ends[-1]) if len(ends) else 0
        if final and last < len(data):
            ends = np.append(ends, len(data))
            # An odd number of quotes: one is never closed.
            malformed = np.append(malformed, len(quotes) % 2 == 1)
    starts = np.append(0, ends[:-1]) if len(ends) else ends
    size = int(ends[-1]) if len(ends) else 0
    before = np.searchsorted(breaks, starts, side="right")
    lines = first_line + before.astype(np.int64)
    next_line = first_line + int(np.searchsorted(breaks, size, side="right"))
    return _Block(data[:size], starts, ends, malformed, lines, next_line)


def _line_ends(data: bytes, of: Any, *, final: bool) -> Lines:
    """Where lines end, after LF, CR LF or CR; a CR at the end of a block may be half of a CR LF."""
    is_end = of == _LF
    if b"\r" in data:
        is_end |= (of == _CR) & (np.append(of[1:], 0 if final else _LF) != _LF)
    return np.flatnonzero(is_end).astype(np.int64) + 1


def _are_as_rfc_says(of: Any, quotes: Lines, separator: int) -> bool:
    """Whether each opening quote begins a cell, and each closing one ends it or is the first of a doubled one."""
    if not len(quotes):
        return True
    opening, closing = quotes[::2], quotes[1::2]
    padded = np.concatenate([[_LF], of, [_LF]])
    before, after, quote = padded[opening], padded[closing + 2], int(of[quotes[0]])

    def is_border(values: Any) -> Any:
        return (values == separator) | (values == _LF) | (values == _CR)

    doubled = before == quote
    doubled[1:] &= opening[1:] - closing[: len(opening) - 1] == 1
    doubled[:1] = False
    return bool((is_border(before) | doubled).all() and (is_border(after) | (after == quote)).all())


def _ends_by_row(data: bytes, dialect: CsvDialect, *, final: bool) -> tuple[Lines, npt.NDArray[np.bool_]]:
    patterns = row_patterns(dialect)
    ends: list[int] = []
    malformed: list[bool] = []
    at = 0
    while at < len(data):
        match, is_broken = patterns.row.match(data, at), False
        if match is None:
            match, is_broken = patterns.broken.match(data, at), True
        if match is None:
            raise AssertionError("what is left of a block is a row, if need be a broken one")
        at_end = match.end() == len(data)
        if at_end and not final and (not match[0].endswith(b"\n") or is_broken):
            break
        at = match.end()
        ends.append(at)
        malformed.append(is_broken)
    return np.array(ends, np.int64), np.array(malformed, np.bool_)
