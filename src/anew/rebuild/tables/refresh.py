"""Refreshing: one Spark task per segment, each committed as soon as it is done."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

import structlog

from anew.api.models import ClusterInfo, FinishRebuild
from anew.api.rebuilds import RebuildView, TableRebuildView, view_as
from anew.api.tables.requests import CommitSegment, ReadSegments
from anew.core.errors import Failed, Unreachable
from anew.core.rebuild import Progress, Stage
from anew.core.tables.config import SegmentConfig
from anew.core.tables.plan import PlannedSegment
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild
from anew.core.tables.segment import Build, Segment
from anew.rebuild.lease import Lease
from anew.rebuild.tables.driving import TableRun
from anew.segments.layout import builds_path
from anew.spark.executors import Sights, check_executors
from anew.spark.progress import JobWatch
from anew.spark.session import SparkSession, session_for_queries
from anew.spark.tables.segmenttask import SegmentAnswer, SegmentTask, rebuild_on_spark

_TRIES = 3
_NOT_ITS_FAULT = frozenset({"checksum_mismatch", "file_missing", "build_failed"})
"""Failures that a repaired file, or another run, may not have: they are not held against the segment."""

_LOG = structlog.get_logger("anew.rebuild")


def refresh(spark: SparkSession, rebuild: TableRebuild, run: TableRun, lease: Lease) -> RebuildView:
    """Build and commit every segment of the plan that is not done; returns the ``rebuild`` shape.

    Raises:
        Failed: ``no_executors``, and what `check_executors` raises.
        Unreachable, OutcomeUnknown: The controller stopped answering.
    """
    session = session_for_queries(spark)
    cluster = run.patiently(lambda: run.controller.cluster(rebuild.plan.target.fabric))
    known = _done(rebuild, run)
    waiting = [planned for planned in rebuild.plan.segments if planned.segment not in known]
    began = time.monotonic()
    with JobWatch(session, run.executor_wait_seconds) as watch:
        directory = builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch)
        check_executors(session, Sights(target=cluster.deep_store, directory=directory, source=None))
        work = _Work(session, rebuild, run, cluster, watch, waiting)
        lease.enter(Stage.BUILD, work.measure, watch.cancel)
        work.run_all(min(len(waiting), _jobs(session.sparkContext.defaultParallelism)), lease)
    took_seconds = max(time.monotonic() - began, 1e-6)
    speed = round(work.rows / took_seconds, 1) if work.rows else None
    request = FinishRebuild(epoch=rebuild.epoch, records_per_s=speed)
    return run.patiently(lambda: run.controller.finish_rebuild(rebuild.id, request))


def _done(rebuild: TableRebuild, run: TableRun) -> set[str]:
    """What is done already: of an earlier driver of the same rebuild."""
    view = run.patiently(lambda: run.controller.rebuild(rebuild.id))
    refresh = view_as(view, TableRebuildView).refresh
    left = set(rebuild.plan.skipped)
    skipped = (each.segment for each in refresh.skipped if each.segment not in left)
    return {*refresh.refreshed, *refresh.stamped, *(each.segment for each in refresh.failed), *skipped}


def _jobs(cores: int) -> int:
    """How many jobs are under way at once: some wait in Spark, so that no core waits for a commit and the next job."""
    return cores + 1 + cores // 8


@dataclass(slots=True)
class _Work:
    """The segments of one driver, worked on by several threads: one Spark job each."""

    session: SparkSession
    rebuild: TableRebuild
    run: TableRun
    cluster: ClusterInfo
    watch: JobWatch
    waiting: list[PlannedSegment]
    rows: int = 0
    done: int = 0
    bytes: int = 0
    _configs: dict[str, SegmentConfig | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _errors: list[BaseException] = field(default_factory=list)

    def measure(self) -> Progress:
        """How many segments and rows are done."""
        self.watch.progress()
        progress = Progress(
            done=self.done,
            total=len(self.waiting),
            unit="segments",
            records=self.rows,
            bytes=self.bytes,
            total_bytes=sum(planned.bytes for planned in self.waiting),
        )
        self.run.observer.progress(Stage.BUILD, progress)
        return progress

    def run_all(self, threads: int, lease: Lease) -> None:
        """Work on all of them; the first error that is not a segment's own ends it."""
        line: queue.SimpleQueue[PlannedSegment] = queue.SimpleQueue()
        for planned in self.waiting:
            line.put(planned)
        workers = [threading.Thread(target=self._worker, args=(line, lease), daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self._errors:
            raise self._errors[0]
        if lease.lost:
            raise Failed("rebuild_ended", "the rebuild was ended from outside", found=self.rebuild.id)

    def _worker(self, line: queue.SimpleQueue[PlannedSegment], lease: Lease) -> None:
        self.watch.join()
        while not (self._errors or lease.lost):
            try:
                planned = line.get_nowait()
            except queue.Empty:
                return
            try:
                self._one(planned)
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for this one
                self._errors.append(error)
                self.watch.cancel()

    def _one(self, planned: PlannedSegment) -> None:
        """Build and commit one segment; what the catalog holds now is asked first (cases C1, C2)."""
        request = ReadSegments(epoch=self.rebuild.epoch, segments=(planned.segment,))
        present = self.run.patiently(lambda: self.run.controller.read_segments(self.rebuild.id, request))
        if not present or present[0].build.id != planned.build:
            # Nothing was fetched: the controller says why it is skipped.
            self._commit(planned, Done(segment=planned.segment, outcome=SegmentOutcome.SKIPPED), None)
            return
        try:
            answer = self._built(present[0])
        except (Failed, Unreachable) as error:
            if error.code in ("no_executors", "rebuild_ended") or self._errors:
                raise
            _LOG.warning("segment_failed", segment=planned.segment, **error.to_json())
            done = Done(segment=planned.segment, outcome=SegmentOutcome.FAILED, why=str(error))
            again = isinstance(error, Unreachable) or error.code in _NOT_ITS_FAULT
            self._commit(planned, done, None, try_again=again)
            return
        self._commit(planned, _outcome(planned, answer), self._build(present[0], answer))

    def _built(self, segment: Segment) -> SegmentAnswer:
        """Run the Spark job; a deep store that is away is asked again."""
        target, build = self.rebuild.plan.target, segment.build
        task = SegmentTask(
            deep_store=self.cluster.deep_store,
            directory=builds_path(self.rebuild.table_uid, self.rebuild.id, self.rebuild.epoch),
            segment=segment.name,
            source=build,
            source_config=self._config(build.config_hash),
            wanted=target.config,
        )
        for left in reversed(range(_TRIES)):
            try:
                return rebuild_on_spark(self.session, task)
            except Unreachable:
                if not left:
                    raise
        raise AssertionError("unreachable: the last try returns or raises")

    def _config(self, config_hash: str | None) -> SegmentConfig | None:
        if config_hash is None:
            return None
        with self._lock:
            if config_hash not in self._configs:
                self._configs[config_hash] = self.run.patiently(lambda: self.run.controller.config(config_hash))
            return self._configs[config_hash]

    def _build(self, segment: Segment, answer: SegmentAnswer) -> Build:
        target, kept = self.rebuild.plan.target, segment.build
        fresh = answer.path != kept.path
        return Build(
            id=f"{self.rebuild.id}-e{self.rebuild.epoch}-{answer.attempt}" if fresh else kept.id,
            path=answer.path,
            bytes=answer.bytes,
            sha256=answer.sha256,
            config_hash=target.config_hash,
            contents=answer.contents,
            rebuild=self.rebuild.id,
            built_at_ms=self.run.clock() if fresh else kept.built_at_ms,
        )

    def _commit(self, planned: PlannedSegment, done: Done, build: Build | None, *, try_again: bool = False) -> None:
        request = CommitSegment(
            epoch=self.rebuild.epoch, done=done, read=planned.build, build=build, try_again=try_again
        )
        committed = self.run.patiently(lambda: self.run.controller.commit_segment(self.rebuild.id, request))
        with self._lock:
            self.done += 1
            self.bytes += planned.bytes
            self.rows += committed.rows


def _outcome(planned: PlannedSegment, answer: SegmentAnswer) -> Done:
    fresh = bool(answer.attempt)
    return Done(
        segment=planned.segment,
        outcome=SegmentOutcome.REFRESHED if fresh else SegmentOutcome.STAMPED,
        rows=answer.contents.rows,
        bytes=answer.bytes,
        filtered=answer.rows_filtered,
        why="; ".join(answer.why) if answer.why else None,
    )
