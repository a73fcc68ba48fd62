"""The segments that a node holds: works towards the desired state, level-triggered (design 2.4).

One thread decides; files are fetched and made in the loader's process. What a crash leaves behind: a copy counts only
once its record is written, so that half a file is fetched again; a copy of an older build is served until the wanted
one is there; what is neither served nor wanted is swept.

One rule says whether a copy is made again with the newest configuration, on all ways in (start, download, refresh,
reload; case E6): it was made with another one, and the table does not say ``skip_segment_preprocess``.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from anew.api.models import DesiredState
from anew.api.segments import DesiredSegment, DesiredTable, SegmentReport, SegmentState
from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Unreachable
from anew.node.loader import Submits
from anew.node.tables.copies import Copy, read_copy
from anew.node.tables.fetchjob import SegmentJob

_IDLE_SECONDS = 0.1
_RETRY_SECONDS = (0.5, 60.0)

_log = structlog.get_logger("anew.node.segments")
_Key = tuple[str, str]


@dataclass(slots=True)
class Hosted:
    """A segment that the node is to hold.

    Attributes:
        copy: What it serves, of whichever build; None before the first.
        job: The copy that is being made.
        checked: Whether the copy was judged against the configuration since the process began.
    """

    table: DesiredTable
    segment: DesiredSegment
    copy: Copy | None = None
    job: Future[Copy] | None = None
    checked: bool = False
    failures: int = 0
    retry_at: float = 0.0
    error: str | None = None

    @property
    def state(self) -> SegmentState:
        """How far it is."""
        if self.copy is not None and self.copy.build == self.segment.build.id and self.error is None:
            return SegmentState.SERVING
        if self.error is not None:
            return SegmentState.ERROR
        return SegmentState.PENDING if self.job is None else SegmentState.LOADING


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file that can be queried in the place of a segment; ``path`` None: it is not here and has to be fetched."""

    segment: DesiredSegment
    path: Path | None
    copy: Copy | None


@dataclass(slots=True)
class _Use:
    """Which files are read now, and which are to go when nobody reads them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    readers: Counter[Path] = field(default_factory=Counter)


class SegmentHost:
    """Holds the node's segments. `accept`, `report`, `table` and `reading` may be called by any thread."""

    def __init__(
        self,
        directory: Path,
        loader: Submits,
        changed: Callable[[], None] = lambda: None,
        clock_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is held yet.

        Args:
            directory: Where copies are kept.
            loader: Who fetches and makes them.
            changed: Called when a report would say something new.
            clock_seconds: A monotonic clock.
        """
        self._directory, self._loader, self._changed, self._now = directory, loader, changed, clock_seconds
        self._accepted: DesiredState | None = None
        self._adopted: DesiredState | None = None
        self._hosted: dict[_Key, Hosted] = {}
        self._use = _Use()
        self._leaving: set[Path] = set()
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- any thread ------------------------------------------------------------------------------------------------

    def accept(self, desired: DesiredState) -> None:
        """Take a desired state."""
        self._accepted = desired
        self._wake.set()

    def tables(self) -> dict[str, DesiredTable]:
        """The tables that the node knows, by name."""
        desired = self._accepted
        return {} if desired is None else {table.name: table for table in desired.tables}

    @property
    def deep_store(self) -> str | None:
        """The root of the fabric's deep store, once it is known."""
        return None if self._accepted is None else self._accepted.deep_store

    def files_of(self, table: DesiredTable) -> list[ServedFile]:
        """What can be queried in the place of each of the table's segments now.

        A hosted segment is served as the node has it, also while a newer build is fetched; another one as the deep
        store has it.
        """
        found = []
        for segment in table.segments:
            hosted = self._hosted.get((table.uid, segment.name))
            copy = None if hosted is None else hosted.copy
            path = None if copy is None else self._directory_of(table.uid, segment.name, copy.build) / copy.file
            found.append(ServedFile(segment, path, copy))
        return found

    @contextlib.contextmanager
    def reading(self, paths: list[Path]) -> Iterator[None]:
        """Keep files from going while they are read (case E1)."""
        with self._use.lock:
            self._use.readers.update(paths)
        try:
            yield
        finally:
            with self._use.lock:
                self._use.readers.subtract(paths)
                self._use.readers = +self._use.readers

    def is_read(self, path: Path) -> bool:
        """Whether somebody reads a file now."""
        with self._use.lock:
            return self._use.readers[path] > 0

    def report(self) -> tuple[SegmentReport, ...]:
        """What the node holds."""
        return tuple(
            SegmentReport(
                table_uid=uid,
                segment=name,
                state=hosted.state,
                build=None if hosted.copy is None else hosted.copy.build,
                config_hash=None if hosted.copy is None else hosted.copy.config_hash,
                reload=0 if hosted.copy is None else hosted.copy.reload,
                rebuilt_rows=0 if hosted.copy is None else hosted.copy.rebuilt_rows,
                error=hosted.error,
            )
            for (uid, name), hosted in sorted(self._hosted.copy().items())
        )

    def start(self) -> None:
        """Begin to work, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="segments", daemon=True)
        self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End the thread; what is under way in the loader is left behind."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    # -- the segments thread ---------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One round of everything; whether there was something to do."""
        desired = self._accepted
        if desired is None:
            return False
        moved = False
        if desired is not self._adopted:
            self._adopt(desired)
            moved = True
        for key, hosted in list(self._hosted.items()):
            try:
                moved |= self._work_on(key, hosted, desired.deep_store)
            except AnewError as error:
                self._put_off(hosted, error)
                moved = True
        self._let_go()
        if moved:
            self._changed()
        return moved

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.step()
            except OSError as error:
                _log.error("segments_round_failed", error=str(error))
            self._wake.wait(_IDLE_SECONDS)
            self._wake.clear()

    def _adopt(self, desired: DesiredState) -> None:
        wanted = {(t.uid, s.name): (t, s) for t in desired.tables for s in t.segments if s.hosted}
        for key, (table, segment) in wanted.items():
            hosted = self._hosted.get(key)
            if hosted is None:
                self._hosted[key] = Hosted(table, segment, self._found(table.uid, segment))
                continue
            if hosted.segment.build.id != segment.build.id or hosted.segment.reload != segment.reload:
                # What was wrong with the build before says nothing about this one.
                hosted.failures, hosted.retry_at, hosted.error = 0, 0.0, None
            hosted.table, hosted.segment = table, segment
        for key in self._hosted.keys() - wanted.keys():
            del self._hosted[key]
        self._adopted = desired
        self._sweep()

    def _found(self, uid: str, segment: DesiredSegment) -> Copy | None:
        """What the run before left: the wanted build's copy, else one of an older build."""
        copy = read_copy(self._directory_of(uid, segment.name, segment.build.id))
        if copy is not None:
            return copy
        others = sorted(self._directory_of(uid, segment.name, "").glob("*"), key=lambda path: path.stat().st_mtime)
        found = (read_copy(directory) for directory in reversed(others))
        return next((copy for copy in found if copy is not None), None)

    def _work_on(self, key: _Key, hosted: Hosted, deep_store: str) -> bool:
        """The next thing to do for one segment; whether something was done.

        Raises:
            AnewError: It did not work; it is put off.
        """
        if hosted.job is not None:
            return hosted.job.done() and self._take_in(key, hosted)
        if hosted.retry_at > self._now() or not self._lacks(hosted):
            return False
        segment, table = hosted.segment, hosted.table
        directory = self._directory_of(key[0], key[1], segment.build.id)
        wanted = None if table.skip_segment_preprocess else table.config
        job = SegmentJob(deep_store, segment.build, str(directory), wanted, segment.reload)
        hosted.job = self._loader.submit(job)
        hosted.checked = True
        _log.info("segment_begins", table=table.name, segment=segment.name, build=segment.build.id)
        return True

    def _lacks(self, hosted: Hosted) -> bool:
        """Whether a copy has to be made, or to follow a reload."""
        copy = hosted.copy
        if copy is None or copy.build != hosted.segment.build.id or copy.reload < hosted.segment.reload:
            return True
        behind = copy.config_hash != hosted.table.config_hash and not hosted.table.skip_segment_preprocess
        started, hosted.checked = not hosted.checked, True
        return started and behind

    def _take_in(self, key: _Key, hosted: Hosted) -> bool:
        job, hosted.job = hosted.job, None
        assert job is not None
        before, copy = hosted.copy, job.result()
        hosted.copy, hosted.error, hosted.failures = copy, None, 0
        if before is not None and (before.build, before.file) != (copy.build, copy.file):
            self._leaving.add(self._directory_of(*key, before.build) / before.file)
        _log.info("segment_served", segment=key[1], build=copy.build, config=copy.config_hash)
        return True

    def _put_off(self, hosted: Hosted, error: AnewError) -> None:
        hosted.job = None
        first, longest = _RETRY_SECONDS
        hosted.error = str(error)
        hosted.retry_at = self._now() + backoff_seconds(hosted.failures, first, longest)
        hosted.failures += 1
        said = "segment_waits" if isinstance(error, Unreachable) else "segment_failed"
        _log.warning(said, segment=hosted.segment.name, code=error.code, error=str(error), tries=hosted.failures)

    def _let_go(self) -> None:
        """Remove what was replaced, once nobody reads it."""
        for path in list(self._leaving):
            with self._use.lock:
                if self._use.readers[path]:
                    continue
                self._leaving.discard(path)
                path.unlink(missing_ok=True)
            if not any(hosted.copy is not None and hosted.copy.build == path.parent.name for hosted in self._of(path)):
                shutil.rmtree(path.parent, ignore_errors=True)

    def _of(self, path: Path) -> list[Hosted]:
        key = (path.parents[2].name, path.parents[1].name)
        return [self._hosted[key]] if key in self._hosted else []

    def _sweep(self) -> None:
        """Remove segments that are not to be held, and builds that are neither served nor wanted."""
        for directory in self._directory.glob("*/*/*"):
            uid, name, build = directory.parts[-3:]
            hosted = self._hosted.get((uid, name))
            served = None if hosted is None or hosted.copy is None else hosted.copy.build
            if hosted is not None and build in (served, hosted.segment.build.id):
                continue
            with self._use.lock:
                read = any(path.parent == directory for path in self._use.readers)
            if not read:
                shutil.rmtree(directory, ignore_errors=True)

    def _directory_of(self, uid: str, segment: str, build: str) -> Path:
        return self._directory / uid / segment / build
