"""The segments that a node holds: works towards the desired state, level-triggered (`Nodes` in docs/architecture.md).

One thread decides; files are fetched and made in the loader's process. What a crash leaves behind: a copy counts only
once its record is written, so that half a file is fetched again; a copy of an older build is served until the wanted
one is there; what is neither served nor wanted is swept when the process begins.

Files go by one rule (`SegmentHost._tidy`): whatever is neither served, nor read, nor the beginning of what is wanted;
and never while something is made in their place.

One rule says whether a copy is made again with the newest configuration, on all ways in (start, download, refresh,
reload; case E6): it was made with another one, and the table does not say ``skip_segment_preprocess``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from anew.api.models import DesiredState
from anew.api.tables.segments import DesiredSegment, DesiredTable, SegmentReport, SegmentState
from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Unreachable
from anew.core.tables.segment import may_be_the_same_rows
from anew.loops.guarded import Loops
from anew.loops.threads import LoopThread
from anew.node.faults import fault_of
from anew.node.loader import Submits
from anew.node.tables.copies import Copy, files_of, read_copy
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
        asked: What the loader was asked for last.
        job: The copy that is being made of it.
        checked: Whether the copy was judged against the configuration since the process began, and what came of that
            is done.
    """

    table: DesiredTable
    segment: DesiredSegment
    copy: Copy | None = None
    asked: SegmentJob | None = None
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


def _has_its_rows(hosted: Hosted, segment: DesiredSegment) -> bool:
    """Whether a copy can be answered in the place of a segment's build, which may be newer or older."""
    copy, build = hosted.copy, segment.build
    if copy is None or copy.build == build.id or not (segment.redealt or hosted.segment.redealt):
        return True
    return may_be_the_same_rows(copy.contents, build.contents)


@dataclass(slots=True)
class _Use:
    """Which files are read now; no file goes but under the lock."""

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
        loops: Loops | None = None,
    ) -> None:
        """Nothing is held yet.

        Args:
            directory: Where copies are kept.
            loader: Who fetches and makes them.
            changed: Called when a report would say something new.
            clock_seconds: A monotonic clock.
            loops: The loops of the process; None: nobody is told how this one is.
        """
        self._directory, self._loader, self._changed, self._now = directory, loader, changed, clock_seconds
        self._accepted: DesiredState | None = None
        self._adopted: DesiredState | None = None
        self._hosted: dict[_Key, Hosted] = {}
        self._use = _Use()
        self._untidy: dict[_Key, Future[Copy] | None] = {}
        self._on_builds: list[Callable[[Set[str]], None]] = []
        self._wake = threading.Event()
        loop = (Loops(lambda: 0) if loops is None else loops).loop("segments")
        self._working = LoopThread(loop, self._round, self._wake)

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

    def tell_builds(self, told: Callable[[Set[str]], None]) -> None:
        """Call something, in the segments thread, with the ids of all tables' builds whenever they may have changed."""
        self._on_builds.append(told)

    def files_of(self, table: DesiredTable) -> list[ServedFile]:
        """What can be queried in the place of each of the table's segments now.

        A hosted segment is served as the node has it, also while a newer build is fetched; another one as the deep
        store has it. So is one whose rows were dealt to segments otherwise than when the copy was made: of such a load
        a query is to see all rows, or none.
        """
        found, root = [], self._directory / table.uid
        for segment in table.segments:
            hosted = self._hosted.get((table.uid, segment.name))
            copy = None if hosted is None else hosted.copy
            if hosted is not None and copy is not None and not _has_its_rows(hosted, segment):
                copy = None
            # One path of one text: joining it part by part, for each segment and each query, shows.
            path = None if copy is None else Path(f"{root}/{segment.name}/{copy.build}/{copy.file}")
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
        self._working.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End the thread; what is under way in the loader is left behind."""
        self._working.stop(timeout_seconds)

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
            except Exception as error:  # noqa: BLE001 - of this segment alone
                self._put_off(hosted, fault_of(error), desired.deep_store)
                moved = True
        if moved:
            self._changed()
        for key in list(self._untidy):
            self._tidy(key)
        return moved

    def _round(self) -> None:
        self.step()
        self._wake.wait(_IDLE_SECONDS)
        self._wake.clear()

    def _adopt(self, desired: DesiredState) -> None:
        wanted = {(t.uid, s.name): (t, s) for t in desired.tables for s in t.segments if s.hosted}
        for key, (table, segment) in wanted.items():
            hosted = self._hosted.get(key)
            if hosted is None:
                self._hosted[key] = Hosted(table, segment, self._found(table.uid, segment))
                continue
            hosted.table, hosted.segment = table, segment
            if hosted.error is not None and hosted.asked != self._job_of(hosted, desired.deep_store):
                # What was wrong with another build, or with another configuration, says nothing about this one.
                hosted.failures, hosted.retry_at, hosted.error = 0, 0.0, None
        if self._adopted is None:
            self._untidy.update(((path.parts[-2], path.parts[-1]), None) for path in self._directory.glob("*/*"))
        for key in self._hosted.keys() - wanted.keys():
            self._untidy[key] = self._hosted.pop(key).job
        for told in self._on_builds:
            told({segment.build.id for table in desired.tables for segment in table.segments})
        self._adopted = desired

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
        hosted.asked = self._job_of(hosted, deep_store)
        hosted.job = self._loader.submit(hosted.asked)
        hosted.job.add_done_callback(lambda _: self._wake.set())
        hosted.checked = True
        table, segment = hosted.table, hosted.segment
        _log.info("segment_begins", table=table.name, segment=segment.name, build=segment.build.id)
        return True

    def _job_of(self, hosted: Hosted, deep_store: str) -> SegmentJob:
        """What makes the copy that is wanted."""
        segment, table = hosted.segment, hosted.table
        directory = self._directory_of(table.uid, segment.name, segment.build.id)
        wanted = None if table.skip_segment_preprocess else table.config
        return SegmentJob(deep_store, segment.build, str(directory), wanted, segment.reload)

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
        self._untidy[key] = None
        copy = job.result()
        hosted.copy, hosted.error, hosted.failures = copy, None, 0
        _log.info("segment_served", segment=key[1], build=copy.build, config=copy.config_hash)
        return True

    def _put_off(self, hosted: Hosted, error: AnewError, deep_store: str) -> None:
        hosted.job, hosted.checked = None, False
        if hosted.asked != self._job_of(hosted, deep_store):
            return
        first, longest = _RETRY_SECONDS
        hosted.error = str(error)
        hosted.retry_at = self._now() + backoff_seconds(hosted.failures, first, longest)
        hosted.failures += 1
        said = "segment_waits" if isinstance(error, Unreachable) else "segment_failed"
        _log.warning(said, segment=hosted.segment.name, code=error.code, error=str(error), tries=hosted.failures)

    def _tidy(self, key: _Key) -> None:
        """Remove what lies in a segment's place in vain; what is read, or may be being made, is looked at again."""
        hosted, left_behind = self._hosted.get(key), self._untidy[key]
        making = hosted is not None and hosted.job is not None
        if making or (left_behind is not None and not left_behind.done()):
            return
        folder = self._directory.joinpath(*key)
        builds = list(folder.iterdir()) if folder.is_dir() else []
        stay = self._to_stay(key, hosted)
        with self._use.lock:
            for path in [path for build in builds for path in build.iterdir()]:
                if path not in stay and not self._use.readers[path]:
                    path.unlink()
            empty = [build for build in builds if not any(build.iterdir())]
        for directory in empty:
            directory.rmdir()
        if not any(path not in stay for build in builds if build not in empty for path in build.iterdir()):
            del self._untidy[key]
        if len(empty) == len(builds):
            with contextlib.suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()

    def _to_stay(self, key: _Key, hosted: Hosted | None) -> set[Path]:
        """The files of the copy that is served, and of a copy that the wanted one can be made from."""
        if hosted is None:
            return set()
        stay = files_of(self._directory_of(*key, hosted.segment.build.id))
        if hosted.copy is not None:
            served = self._directory_of(*key, hosted.copy.build)
            stay |= {*files_of(served), served / hosted.copy.file}
        return stay

    def _directory_of(self, uid: str, segment: str, build: str) -> Path:
        return self._directory / uid / segment / build
