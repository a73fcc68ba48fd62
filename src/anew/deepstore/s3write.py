"""Writing to S3: a file appears whole with the last request, which succeeds only where nothing is.

Small files are one conditional PUT. Larger ones are uploaded in parts while they are written, and the request that
completes them is the conditional one. A lost answer is looked up: what lies under the path is compared with what was
written. Parts of an upload whose writer died are invisible, and cost space until the bucket's lifecycle rule
(``AbortIncompleteMultipartUpload``) or `S3DeepStore.delete_tree` ends them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from anew.core.errors import AnewError, Failed, OutcomeUnknown, Unreachable
from anew.deepstore.failures import path_taken
from anew.deepstore.s3client import Attempts, S3Client, code_of

PART_BYTES = 8 << 20
_MOST_PARTS = 10_000
_PENDING_PARTS = 2
_EXISTS = frozenset({"412", "PreconditionFailed"})
_LOST = frozenset({"409", "ConditionalRequestConflict", "NoSuchUpload"})
_REFUSED = "deep_store_refused"


@dataclass(frozen=True, slots=True)
class Place:
    """One object.

    Attributes:
        client: How it is reached.
        bucket: Its bucket.
        key: Its key.
        path: What errors call it.
        same: Whether the object that lies there has this SHA-256; False when there is none.
    """

    client: S3Client
    bucket: str
    key: str
    path: str
    same: Callable[[str], bool]

    @property
    def names(self) -> dict[str, str]:
        """Bucket and key as the client's calls take them."""
        return {"Bucket": self.bucket, "Key": self.key}

    def attempts(self) -> Attempts:
        """A new operation on the object."""
        return self.client.attempts(self.path)


def create(place: Place, content: bytes) -> None:
    """Write an object whole; the same bytes again is nothing.

    Raises:
        Refused: ``path_taken``: it holds other bytes.
        OutcomeUnknown: ``deep_store_outcome_unknown``.
        Unreachable: Nothing was written.
    """
    _publish(place, _put(place, content), hashlib.sha256(content).hexdigest(), same_is_nothing=True)


def _put(place: Place, content: bytes) -> Callable[[], object]:
    return lambda: place.client.api.put_object(**place.names, Body=content, IfNoneMatch="*")


def _publish(place: Place, act: Callable[[], object], checksum: str, *, same_is_nothing: bool) -> None:
    """Carry out the request that makes an object appear, once, whatever becomes of its answers."""
    attempts = place.attempts()
    try:
        try:
            attempts.run(act)
        except ClientError as error:
            code = code_of(error)
            # What is there may be our own, whose answer was lost.
            may_be_ours = attempts.ambiguous or same_is_nothing
            if code in _EXISTS | _LOST and may_be_ours and place.same(checksum):
                return
            raise (path_taken(place.path) if code in _EXISTS else _refused(place, code)) from None
    except Unreachable as error:
        if not attempts.ambiguous or error.code == _REFUSED:
            raise
        raise _unknown(place, error) from None


class Upload(io.RawIOBase):
    """A file that is being written; `finish` makes it appear, `abandon` leaves nothing of it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._parts: _Parts | None = None
        self._position = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """How many bytes were written."""
        return self._position

    def write(self, data: Any, /) -> int:
        """Add bytes; they are sent in the background, part by part."""
        with memoryview(data) as view, view.cast("B") as content:
            self._digest.update(content)
            self._buffer += content
            size = len(content)
        self._position += size
        while len(self._buffer) >= PART_BYTES:
            if self._parts is None:
                self._parts = _Parts(self._place)
            self._parts.send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return size

    def finish(self) -> None:
        """Make the file appear.

        Raises:
            Refused: ``path_taken``.
            OutcomeUnknown: ``deep_store_outcome_unknown``.
            Unreachable: Nothing was written.
        """
        checksum = self._digest.hexdigest()
        if self._parts is not None:
            self._parts.complete(bytes(self._buffer), checksum)
            return
        _publish(self._place, _put(self._place, bytes(self._buffer)), checksum, same_is_nothing=False)

    def abandon(self) -> None:
        """Give the file up. What cannot be taken back now is invisible, and ends with the lifecycle rule."""
        self._buffer.clear()
        if self._parts is not None:
            self._parts.abort()


@dataclass(slots=True)
class _Parts:
    """An upload in parts. Few of them are in memory at once."""

    place: Place
    _upload: str = ""
    _sent: list[dict[str, Any]] = field(default_factory=list)
    _pending: deque[Future[dict[str, Any]]] = field(default_factory=deque)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_PENDING_PARTS, thread_name_prefix="anew-upload")
    )

    def send(self, content: bytes) -> None:
        """Send the next part, once there is room for it."""
        api, names = self.place.client.api, self.place.names
        if not self._upload:
            # Begun twice when its answer is lost: the other one is invisible, like that of a writer that died.
            answer = self.place.attempts().run(lambda: api.create_multipart_upload(**names))
            self._upload = str(answer["UploadId"])
        number = len(self._sent) + len(self._pending) + 1
        if number > _MOST_PARTS:
            raise Failed(
                "file_too_large",
                "a file is larger than S3 takes",
                found=self.place.path,
                expected=f"at most {_MOST_PARTS * PART_BYTES} bytes",
                hint="more partitions make smaller files",
            )
        while len(self._pending) >= _PENDING_PARTS:
            self._sent.append(self._pending.popleft().result())
        self._pending.append(self._pool.submit(self._send, number, content))

    def _send(self, number: int, content: bytes) -> dict[str, Any]:
        api, names = self.place.client.api, self.place.names
        # The same part again replaces the part.
        answer = self.place.attempts().run(
            lambda: api.upload_part(**names, UploadId=self._upload, PartNumber=number, Body=content)
        )
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def complete(self, rest: bytes, checksum: str) -> None:
        """Send what is left and make the file appear."""
        if rest:
            self.send(rest)
        while self._pending:
            self._sent.append(self._pending.popleft().result())
        api, names = self.place.client.api, self.place.names

        parts = {"Parts": self._sent}

        def complete() -> None:
            api.complete_multipart_upload(**names, UploadId=self._upload, MultipartUpload=parts, IfNoneMatch="*")

        _publish(self.place, complete, checksum, same_is_nothing=False)
        self._pool.shutdown()

    def abort(self) -> None:
        """Take back what was sent."""
        self._pool.shutdown(cancel_futures=True)
        if not self._upload:
            return
        api, names = self.place.client.api, self.place.names
        with contextlib.suppress(AnewError, ClientError):
            self.place.attempts().run(lambda: api.abort_multipart_upload(**names, UploadId=self._upload))


def _refused(place: Place, code: str) -> Unreachable:
    return Unreachable(
        _REFUSED,
        "the deep store refuses to write a file; nothing was written",
        found=f"{place.path}: {code}",
        expected="a server that takes conditional writes (If-None-Match)",
        hint="run it again; see what the server says",
    )


def _unknown(place: Place, error: Unreachable) -> OutcomeUnknown:
    return OutcomeUnknown(
        "deep_store_outcome_unknown",
        "the deep store went away while a file was being published: it is there whole, or not at all",
        found=error.found,
        expected="an answer",
        hint=f"see whether {place.path} is there, or run it again",
    )
