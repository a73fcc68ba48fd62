"""Reading from S3: whole objects as a stream that takes up again where it was cut, and files read here and there."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

from botocore.exceptions import ClientError

from anew.deepstore.failures import file_missing
from anew.deepstore.s3client import RETRIED, Attempts, code_of
from anew.deepstore.s3write import Place

CHUNK_BYTES = 4 << 20
_FIRST_BYTES, _MOST_BYTES = 64 << 10, 8 << 20
_GROWTH = 4
_GAP_BYTES = 1 << 20
MISSING = frozenset({"404", "NoSuchKey"})
_BEYOND = frozenset({"416", "InvalidRange"})


def chunks(place: Place) -> Iterator[bytes]:
    """An object's bytes from the first to the last, a few MB at a time.

    Raises:
        Failed: ``file_missing``.
        Unreachable: No progress for the client's patience.
    """
    attempts, position, size = place.attempts(), 0, -1
    while size < 0 or position < size:
        try:
            answer = _get(place, attempts, position)
            size = position + int(answer["ContentLength"])
            with closing(answer["Body"]) as body:
                while chunk := body.read(CHUNK_BYTES):
                    position += len(chunk)
                    attempts.progress()
                    yield chunk
        except RETRIED as error:
            attempts.failed(error)


def _get(place: Place, attempts: Attempts, position: int) -> Any:
    # Not with `Range` from the beginning: an empty object has no first byte.
    wanted = {"Range": f"bytes={position}-"} if position else {}
    try:
        return attempts.run(lambda: place.client.api.get_object(**place.names, **wanted))
    except ClientError as error:
        if code_of(error) in MISSING:
            raise file_missing(place.path) from None
        raise


class RangedFile(io.RawIOBase):
    """A file read here and there. What is read in order is fetched in growing pieces, the next one ahead of its use."""

    def __init__(self, place: Place, size: int, pool: ThreadPoolExecutor) -> None:
        """Read an object.

        Args:
            place: The object.
            size: Its size in bytes.
            pool: Who fetches ahead.
        """
        self._place = place
        self._size = size
        self._pool = pool
        self._position = 0
        self._start, self._held = 0, b""
        self._ahead: tuple[int, int, Future[bytes]] | None = None
        self._grain = _FIRST_BYTES

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go somewhere."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def size(self) -> int:
        """The size in bytes."""
        return self._size

    def readall(self) -> bytes:
        """All that is left."""
        return self.read(-1)

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes: as many as were asked for, except at the end."""
        wanted = max(0, self._size - self._position)
        wanted = wanted if size is None or size < 0 else min(size, wanted)
        pieces: list[bytes] = []
        while wanted:
            piece = self._at_hand(wanted)
            pieces.append(piece)
            self._position += len(piece)
            wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Let go of what was fetched."""
        self._held, ahead, self._ahead = b"", self._ahead, None
        if ahead is not None:
            ahead[2].cancel()
        super().close()

    def _at_hand(self, wanted: int) -> bytes:
        """At least one byte from the position on, fetched where it must be."""
        offset = self._position - self._start
        if not 0 <= offset < len(self._held):
            self._move(wanted)
            offset = self._position - self._start
        return self._held[offset : offset + wanted]

    def _move(self, wanted: int) -> None:
        end = self._start + len(self._held)
        in_order = end <= self._position <= end + _GAP_BYTES and end > 0
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] <= self._position < ahead[1]:
            self._start, self._held = ahead[0], ahead[2].result()
        else:
            if ahead is not None:
                ahead[2].cancel()
            self._grain = min(_MOST_BYTES, self._grain * _GROWTH) if in_order else _FIRST_BYTES
            self._start, self._held = self._position, self._fetch(self._position, max(wanted, self._grain))
        following = self._start + len(self._held)
        if in_order and following < self._size:
            self._grain = min(_MOST_BYTES, self._grain * _GROWTH)
            stop = min(self._size, following + self._grain)
            self._ahead = (following, stop, self._pool.submit(self._fetch, following, stop - following))

    def _fetch(self, start: int, length: int) -> bytes:
        stop = min(self._size, start + length)

        def get() -> bytes:
            answer = self._place.client.api.get_object(**self._place.names, Range=f"bytes={start}-{stop - 1}")
            with closing(answer["Body"]) as body:
                content: bytes = body.read()
            return content

        try:
            content = self._place.attempts().run(get)
        except ClientError as error:
            if code_of(error) in MISSING | _BEYOND:
                raise file_missing(self._place.path) from None
            raise
        if len(content) != stop - start:
            raise file_missing(self._place.path)
        return content
