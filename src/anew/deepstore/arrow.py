"""The deep store on a local directory, by Arrow's file system.

A file is written under a temporary name and published under its own in one step that never overwrites: (1) the file is
made exclusively, written and fsynced, (2) a hard link gives it its name, which fails when the name is taken, (3) the
directory is fsynced, (4) the temporary name goes. A crash after each step leaves nothing, or the whole file, under its
name.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from anew.core.errors import AnewError, InvalidRequest, Refused, Unreachable
from anew.deepstore.copies import copy_checked, make_temporary, sync
from anew.deepstore.failures import file_missing, path_taken
from anew.deepstore.interface import StoredFile
from anew.deepstore.paths import check_path, is_temporary

_CHUNK_BYTES = 4 << 20
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class ArrowDeepStore:
    """`anew.deepstore.interface.DeepStore` on a directory, through ``pyarrow.fs``."""

    def __init__(self, root: str, root_uri: str) -> None:
        """Use a directory; it is made with the first file.

        Args:
            root: The directory, absolute, without a slash at the end.
            root_uri: The root as `open_deep_store` takes it.
        """
        self._fs = fs.LocalFileSystem()
        self._root = root
        self._root_uri = root_uri

    def check(self) -> None:
        """See `DeepStore.check`."""
        with _translated(self._root_uri):
            _make_directories(Path(self._root))

    @property
    def root_uri(self) -> str:
        """See `DeepStore.root_uri`."""
        return self._root_uri

    def absolute(self, path: str) -> str:
        """See `DeepStore.absolute`."""
        check_path(path)
        return f"{self._root_uri}/{path}"

    @contextmanager
    def write(self, path: str) -> Iterator[pa.NativeFile]:
        """See `DeepStore.write`."""
        final = self._full(path)
        with _translated(path):
            self._check_free(path)
            _make_directories(Path(final).parent)
            temporary = make_temporary(final)
        try:
            with _translated(path):
                opened = self._fs.open_output_stream(temporary)
            with _translated_no_space(path), opened as stream:
                yield stream
            with _translated(path):
                _publish(temporary, final, path)
        finally:
            self._remove(temporary)

    def put(self, path: str, content: bytes) -> None:
        """See `DeepStore.put`."""
        try:
            with self.write(path) as stream:
                stream.write(content)
        except Refused:
            if self.get(path) != content:
                raise

    def open(self, path: str) -> pa.NativeFile:
        """See `DeepStore.open`."""
        with _translated(path):
            return self._fs.open_input_file(self._full(path))

    def get(self, path: str) -> bytes:
        """See `DeepStore.get`."""
        with self.open(path) as file, _translated(path):
            content: bytes = file.readall()
        return content

    def stat(self, path: str) -> StoredFile | None:
        """See `DeepStore.stat`."""
        with _translated(path):
            info = self._fs.get_file_info(self._full(path))
        return self._stored(info) if info.type == fs.FileType.File else None

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """See `DeepStore.list`; an empty prefix means the whole store."""
        found = (self._stored(info) for info in self._infos(prefix) if info.type == fs.FileType.File)
        return iter(sorted((file for file in found if not is_temporary(file.path)), key=lambda file: file.path))

    def checksum(self, path: str) -> str:
        """See `DeepStore.checksum`."""
        digest = hashlib.sha256()
        for chunk in self._chunks(path):
            digest.update(chunk)
        return digest.hexdigest()

    def download(self, path: str, target: Path, expected_checksum: str) -> None:
        """See `DeepStore.download`. Local errors of the target are raised as they are."""
        copy_checked(path, self._chunks(path), target, expected_checksum)

    def delete(self, path: str) -> None:
        """See `DeepStore.delete`."""
        full = self._full(path)
        with _translated(path):
            if self._fs.get_file_info(full).type == fs.FileType.File:
                self._remove(full)

    def delete_tree(self, prefix: str) -> int:
        """See `DeepStore.delete_tree`; files that are being written there go too, uncounted."""
        full = self._full(prefix)
        count = sum(1 for _ in self.list(prefix))
        with _translated(prefix):
            try:
                self._fs.delete_dir(full)
            except FileNotFoundError:
                return 0  # nothing there, or somebody else was faster
        return count

    def _full(self, path: str) -> str:
        check_path(path)
        return f"{self._root}/{path}"

    def _infos(self, prefix: str) -> Any:
        base = self._full(prefix.rstrip("/")) if prefix else self._root
        with _translated(prefix):
            return self._fs.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))

    def _stored(self, info: fs.FileInfo) -> StoredFile:
        relative = info.path.removeprefix(f"{self._root}/")
        return StoredFile(relative, int(info.size or 0), int(info.mtime_ns or 0) // 1_000_000)

    def _chunks(self, path: str) -> Iterator[bytes]:
        with _translated(path):
            file = self._fs.open_input_stream(self._full(path))
        with file:
            while True:
                with _translated(path):
                    chunk: bytes = file.read(_CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk

    def _check_free(self, path: str) -> None:
        if self._fs.get_file_info(self._full(path)).type != fs.FileType.NotFound:
            raise path_taken(path)

    def _remove(self, full: str) -> None:
        try:
            self._fs.delete_file(full)
        except FileNotFoundError:
            return


def _make_directories(directory: Path) -> None:
    """Make a directory and those above it so that a power cut does not take them back."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync(path.parent)


def _publish(temporary: str, final: str, path: str) -> None:
    sync(Path(temporary))
    try:
        Path(final).hardlink_to(temporary)
    except FileExistsError as error:
        raise path_taken(path) from error
    sync(Path(final).parent)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise file_missing(path) from error
    except OSError as error:
        raise _from_system(path, error) from error
    except pa.ArrowException as error:
        raise InvalidRequest("bad_path", "the deep store cannot take this path", found=f"{path}: {error}") from error


@contextmanager
def _translated_no_space(path: str) -> Iterator[None]:
    """Name a full disk; any other error may be of the caller's own making and is left alone."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise _from_system(path, error) from error


def _from_system(path: str, error: OSError) -> AnewError:
    if error.errno in _NO_SPACE:
        return Unreachable(
            "deep_store_full", "the deep store is full", found=f"{path}: {error}", hint="free some space"
        )
    return Unreachable("deep_store_unreachable", "the deep store does not answer", found=f"{path}: {error}")
