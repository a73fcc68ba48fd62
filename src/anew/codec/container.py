"""Avro container files as Arrow batches whose types are those of the writer's schema.

A column that Arrow has no type for (a union of several types, a record that contains itself) is carried as Avro bodies,
with its own schema as the field's metadata; see `anew.codec.carried`.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fastavro
import pyarrow as pa
import zstandard

from anew.codec.avro import CORRUPT_BODY
from anew.codec.filerows import FileRows, batch_of, line_numbers, unreadable_file
from anew.codec.nodes import kind, resolve
from anew.codec.schema import AvroSchema, parse_schema
from anew.codec.writercolumns import WriterColumn, native_text, writer_columns
from anew.core.errors import InvalidRequest

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BATCH_ROWS = 10_000
_MAX_BLOCK_BYTES = 1 << 30
_EXPECTED = "an Avro container file"
_CODECS = "one of null, deflate, snappy, bzip2, xz, zstandard"


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """An open container after its header.

    Attributes:
        path: The file, for errors.
        schema: What its records were written with.
        codec: How its blocks are compressed.
        sync: What comes after each block.
    """

    path: str
    schema: AvroSchema
    codec: str
    sync: bytes

    @property
    def names(self) -> list[str]:
        """The field names of its records."""
        return [str(one["name"]) for one in resolve(self.schema.root, self.schema.named)["fields"]]


def container_columns(path: str) -> list[str]:
    """The field names of a container file's records.

    Raises:
        InvalidRequest: ``unreadable_input``: no container file, or not of records.
    """
    with _opened(path) as source:
        return read_header(path, source).names


def read_container(path: str, columns: Sequence[str]) -> Iterator[FileRows]:
    """Some columns of a container file's records; those that it does not have are left out.

    Raises:
        InvalidRequest: ``unreadable_input``, naming the file and the record where reading ended.
    """
    with _opened(path) as source:
        file = read_header(path, source)
        wanted = writer_columns(file.schema, [name for name in columns if name in file.names])
        reader = _Records(file, wanted)
        row = 1
        count, blocks = 0, []
        for block_count, data in _blocks(file, source, row):
            blocks.append((block_count, data))
            count += block_count
            if count >= _BATCH_ROWS:
                yield reader.rows(blocks, row)
                row, count, blocks = row + count, 0, []
        if blocks:
            yield reader.rows(blocks, row)


def read_header(path: str, source: IO[bytes]) -> ContainerFile:
    """Read a container's header; the source then stands before the first block.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    try:
        if source.read(len(_MAGIC)) != _MAGIC:
            raise unreadable_file(path, "a file that does not begin as a container does", _EXPECTED)
        meta = _metadata(source)
        sync = _exactly(source, _SYNC_BYTES)
        codec = meta.get("avro.codec", b"null").decode() or "null"
        schema = json.loads(meta["avro.schema"])
    except (EOFError, KeyError, ValueError) as error:
        raise unreadable_file(path, f"a header that is damaged ({error})", _EXPECTED) from error
    if codec not in _UNPACK:
        raise unreadable_file(path, f"the codec {codec}", _CODECS)
    try:
        parsed = parse_schema(schema)
    except InvalidRequest as error:
        raise unreadable_file(path, f"a schema that is not valid: {error}", _EXPECTED) from error
    if kind(resolve(parsed.root, parsed.named)) != "record":
        raise unreadable_file(path, f"values of type {parsed.name}", "a container of records")
    return ContainerFile(path, parsed, codec, sync)


class _Records:
    """Decodes the records of one file."""

    def __init__(self, file: ContainerFile, columns: list[WriterColumn]) -> None:
        self._file, self._columns = file, columns
        # fastavro decodes whole containers in native code: each group of blocks becomes one that is not compressed.
        out = io.BytesIO()
        meta = {"avro.schema": native_text(file.schema), "avro.codec": "null"}
        out.write(_MAGIC + _long(len(meta)))
        for name, text in meta.items():
            out.write(_long(len(name.encode())) + name.encode() + _long(len(text.encode())) + text.encode())
        out.write(b"\x00" + file.sync)
        self._header = out.getvalue()

    def rows(self, blocks: list[tuple[int, bytes]], first: int) -> FileRows:
        """The rows of some blocks, of which the first row has this number."""
        parts = [self._header]
        for count, data in blocks:
            parts += [_long(count), _long(len(data)), data, self._file.sync]
        records: list[Any] = []
        try:
            records.extend(fastavro.reader(io.BytesIO(b"".join(parts))))
        except CORRUPT_BODY as error:
            found = f"{type(error).__name__}: {error}, in the records from {first + len(records)} on"
            raise unreadable_file(self._file.path, found, "records of the writer's schema") from error
        arrays = {}
        for column in self._columns:
            try:
                arrays[column.name] = column.array([record[column.name] for record in records])
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as error:
                found = f"{error}, in column {column.name}, records {first} to {first + len(records) - 1}"
                raise unreadable_file(self._file.path, found, "values of the writer's schema") from error
        batch = batch_of(arrays, len(records))
        if arrays:
            schema = pa.schema([column.field for column in self._columns])
            batch = pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)
        return FileRows(batch, line_numbers(first, len(records)))


def _blocks(file: ContainerFile, source: IO[bytes], row: int) -> Iterator[tuple[int, bytes]]:
    """The number of records and the bytes of each block.

    Raises:
        InvalidRequest: ``unreadable_input``.
    """
    while True:
        first = source.read(1)
        if not first:
            return
        try:
            count, size = _read_long(source, first), _read_long(source)
            if count < 0 or not 0 <= size <= _MAX_BLOCK_BYTES:
                raise ValueError(f"a block of {count} records in {size} bytes")
            packed = _exactly(source, size)
            if _exactly(source, _SYNC_BYTES) != file.sync:
                raise ValueError("a block without the file's sync marker after it")
            data = _UNPACK[file.codec](packed)
        except (EOFError, ValueError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError, pa.ArrowException) as e:
            found = f"{e or type(e).__name__}, in the block from record {row} on"
            raise unreadable_file(file.path, found, "whole blocks of records") from e
        if count:
            yield count, data
        row += count


def _opened(path: str) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise unreadable_file(path, error, _EXPECTED) from error


def _metadata(source: IO[bytes]) -> dict[str, bytes]:
    meta: dict[str, bytes] = {}
    while count := _read_long(source):
        if count < 0:
            count = -count
            _read_long(source)
        for _ in range(count):
            name = _exactly(source, _read_long(source)).decode()
            meta[name] = _exactly(source, _read_long(source))
    return meta


def _exactly(source: IO[bytes], count: int) -> bytes:
    if count < 0 or count > _MAX_BLOCK_BYTES:
        raise ValueError(f"a length of {count} bytes")
    data = source.read(count)
    if len(data) != count:
        raise EOFError("the file ends too early")
    return data


def _read_long(source: IO[bytes], first: bytes = b"") -> int:
    """A zigzag varint (Avro specification, binary encoding)."""
    value = shift = 0
    while True:
        byte = (first or _exactly(source, 1))[0]
        first = b""
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _long(value: int) -> bytes:
    rest, out = value << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _snappy(packed: bytes) -> bytes:
    """A block as the specification has it: Snappy, then the CRC-32 of what it holds, big-endian."""
    body, checksum = packed[:-4], packed[-4:]
    size = _snappy_size(body)
    data: bytes = pa.Codec("snappy").decompress(body, size, asbytes=True)
    if len(checksum) != 4 or zlib.crc32(data) != struct.unpack(">I", checksum)[0]:
        raise ValueError("a block whose checksum is not that of its bytes")
    return data


def _snappy_size(body: bytes) -> int:
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if size > _MAX_BLOCK_BYTES:
        raise ValueError(f"a block of {size} bytes")
    return size


def _inflate(packed: bytes) -> bytes:
    stream = zlib.decompressobj(-15)
    data = stream.decompress(packed) + stream.flush()
    if not stream.eof:
        raise ValueError("a compressed block that ends too early")
    return data


def _unzstd(packed: bytes) -> bytes:
    # Writers that stream do not say the size beforehand.
    return zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()


_UNPACK: dict[str, Any] = {
    "null": bytes,
    "deflate": _inflate,
    "snappy": _snappy,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
    "zstandard": _unzstd,
}
