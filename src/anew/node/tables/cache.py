"""Segments that other nodes host, fetched from the deep store because a query asked for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Set
from pathlib import Path

import structlog

from anew.core.errors import Unreachable
from anew.core.tables.segment import Build
from anew.deepstore.open import open_deep_store

_log = structlog.get_logger("anew.node.segments")


class SegmentCache:
    """Files of builds on this node's disk, so many bytes of them; safe to use from several threads.

    Nothing of it outlives the process: what was fetched is checked by its checksum then, and not again. Whoever asks
    for a file says first that it reads it, so that none of the files of one query goes before the last is there.
    """

    def __init__(self, directory: Path, most_bytes: int, is_read: Callable[[Path], bool]) -> None:
        """Begin empty.

        Args:
            directory: Where files are; emptied.
            most_bytes: How much is kept, beside what is read just now.
            is_read: Whether a query reads a file now: then it stays.
        """
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.iterdir():
            left.unlink()
        self._directory, self._most_bytes, self._is_read = directory, most_bytes, is_read
        self._held: OrderedDict[str, int] = OrderedDict()
        self._wanted: Set[str] | None = None
        self._lock = threading.Lock()
        self._fetching: dict[str, threading.Lock] = {}

    def path_of(self, build: Build) -> Path:
        """Where a build's file is, or will be once it was fetched."""
        return self._directory / f"{build.id}.parquet"

    def fetch(self, deep_store: str, build: Build) -> Path:
        """The build's file, fetched unless it is there.

        Raises:
            Failed: ``checksum_mismatch``, ``file_missing``.
            Unreachable: The deep store does not answer; ``not_ready``: the disk takes no more.
        """
        path = self.path_of(build)
        with self._lock:
            lock = self._fetching.setdefault(build.id, threading.Lock())
        with lock:
            if not path.exists():
                self._download(deep_store, build, path)
        with self._lock:
            self._held[build.id] = build.bytes
            self._held.move_to_end(build.id)
        self.trim()
        return path

    def keep_only(self, wanted: Set[str]) -> None:
        """Let go of all builds but these, as soon as nobody reads them."""
        with self._lock:
            self._wanted = wanted
        self.trim()

    def trim(self) -> None:
        """Let go of what no table wants, and, while there is too much, of what was used longest ago."""
        with self._lock:
            total = sum(self._held.values())
            for build in list(self._held):
                unwanted = self._wanted is not None and build not in self._wanted
                path = self._directory / f"{build}.parquet"
                if (unwanted or total > self._most_bytes) and not self._is_read(path):
                    total -= self._held.pop(build)
                    self._fetching.pop(build, None)
                    path.unlink(missing_ok=True)

    def _download(self, deep_store: str, build: Build, path: Path) -> None:
        try:
            open_deep_store(deep_store).download(build.path, path, build.sha256)
            path.chmod(0o444)
        except OSError as error:
            raise Unreachable(
                "not_ready",
                "the node cannot keep a segment that the query reads",
                found=f"{path}: {error}",
                hint="free some space there, or ask another node",
            ) from error
        _log.debug("segment_fetched", build=build.id, bytes=build.bytes)
