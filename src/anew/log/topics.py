"""Topics of the embedded log as directories: one per topic, there whole or not at all.

``<root>/<topic>/topic.json`` says name, uid and number of partitions; ``p-00000-<tag>.sqlite`` and so on are the
partitions. The tag comes from the uid: a topic that was deleted and made again lies at other paths, so that a
connection to the old one can never meet files of the new one (SQLite finds its write-ahead log by path).

Making a topic: (1) a directory under a temporary name gets all files, (2) everything is fsynced, (3) it is renamed into
place, (4) the root is fsynced. Removing: (1) renamed aside, (2) the root is fsynced, (3) the files go. A crash after
any step leaves the topic whole or gone, and at worst a directory with a leading dot, which the next change sweeps
away.

Adding partitions: (1) a directory under a temporary name gets their files and the new ``topic.json``, (2) everything is
fsynced, (3) the files are renamed into the topic's directory, (4) that is fsynced, (5) ``topic.json`` is renamed over
the old one, (6) the topic's directory is fsynced. A crash before (5) leaves the topic with the partitions that it had,
and at worst whole empty files, of which nobody knows and which the next attempt finds.

All of it happens under a lock on the root, so that no two processes do it at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from anew.core.errors import Failed, InvalidRequest, Unreachable
from anew.core.topics.topic import fewer_partitions
from anew.log.interface import Retention, TopicPartition, TopicSpec
from anew.log.refusals import check_name, check_spec, exists, lost, unknown_partition
from anew.log.sqlite_errors import translated

_POLL_SECONDS = 0.01
_DESCRIPTION = "topic.json"

MakePartition = Callable[[Path, str, int], None]
"""Makes the empty file of a partition: path, topic's uid, partition."""


class TopicDirectories:
    """The topics below one root directory."""

    def __init__(self, root: Path, timeout_seconds: float) -> None:
        self._root = root
        self._timeout_seconds = timeout_seconds
        with translated(root):
            root.mkdir(parents=True, exist_ok=True)

    def path_of(self, at: TopicPartition) -> Path:
        """Where the partition's file lies if its topic exists with that uid."""
        check_name(at.topic)
        return self._root / at.topic / _file_name(at.uid, at.partition)

    def touch(self, name: str) -> None:
        """Note that something was appended to a topic; nothing depends on it but how soon others look."""
        with suppress(OSError):
            os.utime(self._root / name)

    def touched_ns(self, name: str) -> int:
        """When a topic was touched, by the clock of the file system; -1 when there is none of that name."""
        try:
            return (self._root / name).stat().st_mtime_ns
        except OSError:
            return -1

    def spec(self, name: str) -> TopicSpec | None:
        """The topic of that name, or None.

        Raises:
            Failed: ``log_corrupt``: its description cannot be read.
        """
        check_name(name)
        path = self._root / name / _DESCRIPTION
        with translated(path):
            try:
                text = path.read_text(encoding="utf-8")
            except (FileNotFoundError, NotADirectoryError):
                return None
        try:
            told = json.loads(text)
            retention = Retention(told.pop("retention_ms", None), told.pop("retention_bytes", None))
            return TopicSpec(**told, retention=retention)
        except (ValueError, TypeError) as error:
            raise Failed(
                "log_corrupt", f"the description of the topic {name} is damaged", found=f"{path}: {error}"
            ) from error

    def create(self, spec: TopicSpec, make_partition: MakePartition) -> None:
        """Make the topic; nothing when it exists alike.

        Raises:
            Refused: ``topic_exists``.
            InvalidRequest: ``bad_topic``.
        """
        check_spec(spec)
        with self._changing():
            present = self.spec(spec.name)
            if present is None:
                self._make(spec, make_partition)
            elif present != spec:
                raise exists(spec, present.uid, present.partitions)

    def present(self, name: str, uid: str) -> TopicSpec:
        """The topic of that name and uid.

        Raises:
            Failed: ``topic_lost``, ``log_corrupt``.
        """
        spec = self.spec(name)
        if spec is None or spec.uid != uid:
            raise lost(name, uid, "no such topic" if spec is None else f"uid {spec.uid}")
        return spec

    def grow(self, name: str, uid: str, partitions: int, make_partition: MakePartition) -> None:
        """Give the topic more partitions; nothing when it has as many.

        Raises:
            Failed: ``topic_lost``.
            Refused: ``fewer_partitions``.
            InvalidRequest: ``bad_topic``.
        """
        with self._changing():
            present = self.present(name, uid)
            if partitions < present.partitions:
                raise fewer_partitions(name, present.partitions, partitions)
            grown = replace(present, partitions=partitions)
            check_spec(grown)
            if grown != present:
                self._grow(grown, range(present.partitions, partitions), make_partition)

    def keep(self, name: str, uid: str, retention: Retention) -> None:
        """Describe the topic with another retention.

        Raises:
            Failed: ``topic_lost``.
        """
        with self._changing():
            present = self.present(name, uid)
            kept = replace(present, retention=retention)
            check_spec(kept)
            if kept.retention != present.retention:
                self._describe(self._prepared(kept, range(0), _no_partition), name)

    def delete(self, name: str, uid: str) -> None:
        """Remove the topic of that name and uid; nothing when there is none."""
        with self._changing():
            present = self.spec(name)
            if present is None or present.uid != uid:
                return
            aside = self._root / f".gone-{name}-{os.getpid()}"
            (self._root / name).rename(aside)
            _sync(self._root)
            shutil.rmtree(aside)

    def lost(self, at: TopicPartition) -> Failed | InvalidRequest:
        """The error for a partition whose file is not where it should be."""
        present = self.spec(at.topic)
        if present is not None and present.uid == at.uid and not 0 <= at.partition < present.partitions:
            return unknown_partition(at, present.partitions)
        return lost(at.topic, at.uid, "no such topic" if present is None else f"uid {present.uid}")

    def _make(self, spec: TopicSpec, make_partition: MakePartition) -> None:
        making = self._prepared(spec, range(spec.partitions), make_partition)
        making.rename(self._root / spec.name)
        _sync(self._root)

    def _grow(self, spec: TopicSpec, added: range, make_partition: MakePartition) -> None:
        making, home = self._prepared(spec, added, make_partition), self._root / spec.name
        for name in (_file_name(spec.uid, partition) for partition in added):
            # One that an attempt before this left there is whole, and stays.
            if not (home / name).exists():
                (making / name).rename(home / name)
        _sync(home)
        self._describe(making, spec.name)

    def _describe(self, making: Path, name: str) -> None:
        """Put the description of a directory under a temporary name in the place of the topic's."""
        home = self._root / name
        (making / _DESCRIPTION).rename(home / _DESCRIPTION)
        _sync(home)
        shutil.rmtree(making)

    def _prepared(self, spec: TopicSpec, partitions: range, make_partition: MakePartition) -> Path:
        """A directory under a temporary name with the files of partitions and the topic's description, all on disk."""
        making = self._root / f".new-{spec.name}-{os.getpid()}"
        making.mkdir()
        for partition in partitions:
            make_partition(making / _file_name(spec.uid, partition), spec.uid, partition)
        told: dict[str, str | int] = {"name": spec.name, "uid": spec.uid, "partitions": spec.partitions}
        kept = {"retention_ms": spec.retention.time_ms, "retention_bytes": spec.retention.partition_bytes}
        # A topic that is kept for ever is described as it was before there was retention.
        told |= {name: value for name, value in kept.items() if value is not None}
        (making / _DESCRIPTION).write_text(json.dumps(told), encoding="utf-8")
        for path in making.iterdir():
            _sync(path)
        _sync(making)
        return making

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with translated(self._root), (self._root / ".lock").open("w") as lock:
            self._lock(lock.fileno())
            for left_over in (*self._root.glob(".new-*"), *self._root.glob(".gone-*")):
                shutil.rmtree(left_over)
            yield

    def _lock(self, descriptor: int) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise Unreachable(
                        "log_unreachable",
                        "another program holds the lock on the embedded log's topics for too long",
                        found=str(self._root / ".lock"),
                        expected=f"free within {self._timeout_seconds} s",
                    ) from error
                threading.Event().wait(_POLL_SECONDS)
            else:
                return


def _no_partition(_path: Path, _uid: str, _partition: int) -> None:
    """Of a description alone there is none to make."""


def _file_name(uid: str, partition: int) -> str:
    tag = hashlib.sha256(uid.encode()).hexdigest()[:12]
    return f"p-{partition:05d}-{tag}.sqlite"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
