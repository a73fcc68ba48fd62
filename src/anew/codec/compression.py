"""Compression of single values: none, gzip, zstd, and zstd with a trained dictionary.

The same value gives the same bytes in every process (one library version), and what one compressor wrote any
other of the same codec and dictionary reads. Nothing here starts a thread: a Spark task has one core.
"""

from __future__ import annotations

import enum
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import zstandard

from anew.core.errors import Failed, InvalidRequest

ZSTD_LEVEL = 3
GZIP_LEVEL = 6
DEFAULT_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_GZIP_WINDOW = 31  # zlib's word for "gzip header"; zlib writes its time as 0
_MAX_OFFSET_32 = 2**31 - 1


class Codec(enum.StrEnum):
    """How a version's values are compressed."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"
    ZSTD_DICT = "zstd_dict"


class Compressor:
    """One codec with its dictionary and its bound on output; safe to share between threads, picklable.

    Attributes:
        codec: The codec.
        dictionary: The trained dictionary of ``zstd_dict``; empty bytes mean plain zstd frames (case E4), None
            for any other codec.
        max_output_bytes: What a value may decompress to.
    """

    def __init__(self, codec: Codec, dictionary: bytes | None, max_output_bytes: int) -> None:
        self.codec = codec
        self.dictionary = dictionary
        self.max_output_bytes = max_output_bytes
        # zstd's contexts must not be used by two threads at once: each thread gets its own.
        self._contexts = threading.local()
        self._dictionary_data = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        if self._dictionary_data is not None:
            self._dictionary_data.precompute_compress(level=ZSTD_LEVEL)

    def __reduce__(self) -> tuple[Any, ...]:
        return Compressor, (self.codec, self.dictionary, self.max_output_bytes)

    def compress(self, value: bytes) -> bytes:
        """The compressed value."""
        return self._compress_with()(value)

    def decompress(self, value: bytes) -> bytes:
        """The original value.

        Raises:
            Failed: ``corrupt_value``: no value of this codec, of another dictionary, or larger than allowed.
        """
        return self._decompress_with()(value)

    def compress_array(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Compress each value of a binary array; nulls stay null."""
        if self.codec is Codec.NONE:
            return values
        compress = self._compress_with()
        return _binary([None if value is None else compress(value) for value in values.to_pylist()])

    def decompress_array(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Decompress each value of a binary array; nulls stay null.

        Raises:
            Failed: ``corrupt_value``, naming the index of the value.
        """
        if self.codec is Codec.NONE:
            return values
        decompress = self._decompress_with()
        plain: list[bytes | None] = []
        try:
            for value in values.to_pylist():
                plain.append(None if value is None else decompress(value))
        except Failed as failed:
            message = f"{failed.message} (value {len(plain)} of {len(values)})"
            raise Failed(failed.code, message, found=failed.found, expected=failed.expected) from None
        return _binary(plain)

    @property
    def passes_through(self) -> bool:
        """Whether a value and its compressed form are the same bytes."""
        return self.codec is Codec.NONE

    def same_bytes_as(self, other: Compressor) -> bool:
        """Whether values of the one are values of the other, byte for byte."""
        return self.codec is other.codec and self.dictionary == other.dictionary

    def _compress_with(self) -> Callable[[bytes], bytes]:
        if self.codec is Codec.NONE:
            return bytes
        if self.codec is Codec.GZIP:
            return _gzip
        context: zstandard.ZstdCompressor | None = getattr(self._contexts, "compressor", None)
        if context is None:
            context = zstandard.ZstdCompressor(
                level=ZSTD_LEVEL, dict_data=self._dictionary_data, write_content_size=True
            )
            self._contexts.compressor = context
        return context.compress

    def _decompress_with(self) -> Callable[[bytes], bytes]:
        if self.codec is Codec.NONE:
            return bytes
        limit = self.max_output_bytes
        if self.codec is Codec.GZIP:
            return lambda value: _gunzip(value, limit)
        context: zstandard.ZstdDecompressor | None = getattr(self._contexts, "decompressor", None)
        if context is None:
            context = zstandard.ZstdDecompressor(dict_data=self._dictionary_data)
            self._contexts.decompressor = context
        ready = context
        return lambda value: _unzstd(ready, value, limit)


def compressor(
    name: str, dictionary: bytes | None = None, *, max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
) -> Compressor:
    """The compressor of a codec.

    Args:
        name: ``none``, ``gzip``, ``zstd`` or ``zstd_dict``.
        dictionary: For ``zstd_dict`` alone, and needed there; empty where there was too little to train on.
        max_output_bytes: What a value may decompress to, so that a corrupt one cannot take the memory.

    Raises:
        InvalidRequest: ``unknown_codec``, ``missing_dictionary`` or ``unexpected_dictionary``.
    """
    if name not in {codec.value for codec in Codec}:
        raise InvalidRequest("unknown_codec", "the codec is unknown", found=name, expected=f"one of {', '.join(Codec)}")
    codec = Codec(name)
    if codec is Codec.ZSTD_DICT and dictionary is None:
        raise InvalidRequest(
            "missing_dictionary", "zstd_dict needs its dictionary", found="none", expected="the version's dictionary"
        )
    if codec is not Codec.ZSTD_DICT and dictionary is not None:
        raise InvalidRequest(
            "unexpected_dictionary",
            f"{codec} takes no dictionary",
            found=f"{len(dictionary)} bytes",
            expected="no dictionary, or the codec zstd_dict",
        )
    try:
        return Compressor(codec, dictionary, max_output_bytes)
    except zstandard.ZstdError as error:
        raise InvalidRequest(
            "bad_dictionary", f"the dictionary cannot be used: {error}", found=f"{len(dictionary or b'')} bytes"
        ) from None


def recode(values: pa.Array[Any], source: Compressor, target: Compressor) -> pa.Array[Any]:
    """Values of one codec as values of another; the very same array where nothing would change (case E2).

    Raises:
        Failed: ``corrupt_value``, naming the index of the value.
    """
    if source.same_bytes_as(target):
        return values
    return target.compress_array(source.decompress_array(values))


def train_dictionary(samples: Sequence[bytes], size_bytes: int) -> bytes:
    """Train a zstd dictionary of at most so many bytes; empty where the samples are too few to train on."""
    try:
        return zstandard.train_dictionary(size_bytes, list(samples), threads=0, level=ZSTD_LEVEL).as_bytes()
    except zstandard.ZstdError:
        return b""


def _binary(values: list[bytes | None]) -> pa.Array[Any]:
    size_bytes = sum(len(value) for value in values if value is not None)
    return pa.array(values, pa.binary() if size_bytes <= _MAX_OFFSET_32 else pa.large_binary())


def _gzip(value: bytes) -> bytes:
    stream = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(value) + stream.flush()


def _gunzip(value: bytes, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = stream.decompress(value, limit_bytes + 1)
    except zlib.error as error:
        raise _corrupt(value, str(error)) from None
    if len(plain) > limit_bytes:
        raise _corrupt(value, f"it is larger than {limit_bytes} bytes")
    if not stream.eof or stream.unused_data:
        raise _corrupt(value, "bytes left over" if stream.eof else "it is cut short")
    return plain


def _unzstd(context: zstandard.ZstdDecompressor, value: bytes, limit_bytes: int) -> bytes:
    try:
        size_bytes = zstandard.frame_content_size(value)
        # The library allocates what the header says, before it has looked at the frame.
        if size_bytes > limit_bytes:
            raise _corrupt(value, f"its header says {size_bytes} bytes, more than {limit_bytes}")
        return context.decompress(value, max_output_size=limit_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _corrupt(value, str(error)) from None


def _corrupt(value: bytes, why: str) -> Failed:
    return Failed(
        "corrupt_value",
        f"a value cannot be decompressed: {why}",
        found=f"{len(value)} bytes",
        expected="a value of this codec and dictionary",
    )
