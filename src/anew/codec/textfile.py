"""Text files as blocks of UTF-8, whatever their compression and encoding."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from anew.codec.filerows import unreadable_file
from anew.core.errors import InvalidRequest

BLOCK_BYTES = 4 * 1024 * 1024
MAX_ROW_BYTES = 64 * 1024 * 1024
_UTF8_BOM = codecs.BOM_UTF8
_OTHER_BOMS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_COMPRESSED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True, slots=True)
class TextPart:
    """What of a text file is read.

    Attributes:
        path: The file.
        encoding: A name that Python knows.
        begin: The first byte; the beginning of a row. Only a file of UTF-8 that is not compressed is read in parts.
        end: The byte after the last one; None: to the end.
        first_line: The number of the line that begins at ``begin``.
    """

    path: str
    encoding: str = "utf-8"
    begin: int = 0
    end: int | None = None
    first_line: int = 1


def is_divisible(path: str, encoding: str) -> bool:
    """Whether the file's bytes are the text itself, so that it can be read in parts."""
    return is_utf8_name(encoding) and Path(path).suffix.lower() not in _COMPRESSED


def is_utf8_name(encoding: str) -> bool:
    """Whether an encoding's name is one of UTF-8's."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")


def check_encoding(encoding: str) -> str:
    """The name itself, if Python knows it as an encoding of text.

    Raises:
        InvalidRequest: ``bad_option``.
    """
    try:
        "".encode(encoding)
        known = codecs.lookup(encoding)
    except LookupError:
        raise InvalidRequest(
            "bad_option", "the encoding is unknown", found=encoding, expected="such as UTF-8, ISO-8859-1, windows-1252"
        ) from None
    return known.name


def text_blocks(part: TextPart) -> Iterator[bytes]:
    """The part's text as UTF-8, block by block, without a byte order mark.

    Bytes of a UTF-8 file are not checked here: the parser of rows names the rows that are not text.

    Raises:
        InvalidRequest: ``unreadable_input``: the file cannot be opened or unpacked, or is not in the encoding.
    """
    with contextlib.closing(_raw_blocks(part)) as raw:
        if is_utf8_name(part.encoding):
            yield from raw
        else:
            yield from _recoded(part, raw)


def _raw_blocks(part: TextPart) -> Generator[bytes]:
    left = None if part.end is None else part.end - part.begin
    try:
        with _opened(part.path) as source:
            if part.begin:
                source.seek(part.begin)
            at_start = part.begin == 0
            while left is None or left > 0:
                block = source.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
                if not block:
                    return
                left = None if left is None else left - len(block)
                if at_start and is_utf8_name(part.encoding):
                    block = _without_mark(part.path, block)
                at_start = False
                if block:
                    yield block
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise unreadable_file(part.path, error, "a text file, plain or compressed as its name says") from error


def _opened(path: str) -> Any:
    """The file's bytes, unpacked; an object with ``read`` and ``seek`` that is closed by ``with``."""
    match Path(path).suffix.lower():
        case ".gz":
            return gzip.open(path, "rb")
        case ".bz2":
            return bz2.open(path, "rb")
        case ".zst":
            return zstandard.open(path, "rb")
        case _:
            return Path(path).open("rb")


def _without_mark(path: str, block: bytes) -> bytes:
    for mark, name in _OTHER_BOMS.items():
        if block.startswith(mark):
            raise unreadable_file(path, f"the byte order mark of {name}", "UTF-8 text", f"--option encoding={name}")
    return block.removeprefix(_UTF8_BOM)


def _recoded(part: TextPart, raw: Iterator[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(part.encoding)("strict")
    try:
        for block in raw:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise unreadable_file(part.path, error, f"text in the encoding {part.encoding}") from error
