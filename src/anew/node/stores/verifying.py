"""Verifications: what replicas hold at exactly one position, found out while reads and, almost always, writes go on.

The steps of one, and what a crash leaves: (1) the replicas of a version stand still; (2) told the position, each goes
on to it; (3) there it keeps a checkpoint (hard links, swept at the next start) and applies on; (4) the loader scans the
checkpoint; (5) the caller ends it, or it is given up some time after the caller asked last, and the checkpoint goes.
Standing still has a deadline, so that a caller that went away costs some freshness and nothing else.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from anew.api.stores.replicas import ReplicaState
from anew.api.stores.verifying import (
    MAX_ENTRIES,
    Buckets,
    ExportReplica,
    PartState,
    VerifiedReplica,
    VerifyStage,
    VerifyView,
)
from anew.core.errors import AnewError, InvalidRequest, NotFound, Refused
from anew.core.feed import PositionMap
from anew.node.faults import fault_of, is_damage
from anew.node.loader import Submits
from anew.node.stores.holding import Hold, Holding, ReplicaKey
from anew.node.stores.verifyjob import Entries, EntriesJob, Exported, ExportJob, Fed, FingerprintJob, Scanned
from anew.segments.layout import store_path
from anew.storage.replica import Replica

HOLD_SECONDS = 20.0
KEEP_SECONDS = 120.0
MOST_AT_ONCE = 4
_HOLDING = frozenset({PartState.HELD, PartState.REACHING})
_PLACES_SHOWN = 3

_log = structlog.get_logger("anew.node.stores.verifying")


@dataclass(slots=True)
class _Part:
    """One replica of a verification. Changed by the applier thread alone; others read single fields."""

    holding: Holding
    replica: Replica | None
    state: PartState
    directory: Path
    error: str | None = None
    scan: Future[Scanned] | None = None

    def release(self, state: PartState, error: str | None = None) -> None:
        """Let the replica apply again."""
        self.state, self.error, self.holding.hold = state, error, None

    def judge(self, error: AnewError) -> None:
        """It could not be verified: where its files are damaged it is loaded again."""
        if is_damage(error):
            self.state = PartState.DAMAGED
            self.holding.damaged = str(error)

    def view(self) -> VerifiedReplica:
        """What is said of it."""
        key, scan = self.holding.key, self.scan
        if self.state is not PartState.DONE or scan is None:
            return VerifiedReplica(
                partition=key.partition, sub_partition=key.sub_partition, state=self.state, error=self.error
            )
        scanned = scan.result()
        found = scanned.fingerprint
        return VerifiedReplica(
            partition=key.partition,
            sub_partition=key.sub_partition,
            state=self.state,
            position=scanned.position,
            rows=found.rows,
            tombstones=found.tombstones,
            buckets=Buckets(counts=found.counts, sums=found.sums),
        )


@dataclass(slots=True)
class _Job:
    """A verification. ``parts`` are the applier thread's (None: not taken up yet), the rest is the callers'."""

    id: str
    store_uid: str
    version: int
    begun_at: float
    touched_at: float
    position: PositionMap | None = None
    ended: bool = False
    parts: tuple[_Part, ...] | None = None
    beside: set[Future[Any]] = field(default_factory=set)

    @property
    def stage(self) -> VerifyStage:
        """How far it is."""
        if self.parts is None:
            return VerifyStage.ASKED
        states = {part.state for part in self.parts}
        if not states.isdisjoint(_HOLDING):
            return VerifyStage.HELD if self.position is None else VerifyStage.REACHING
        return VerifyStage.SCANNING if PartState.SCANNING in states else VerifyStage.DONE

    @property
    def stands(self) -> bool:
        """Whether it keeps, or is about to keep, replicas from applying."""
        return self.parts is None or any(part.state in _HOLDING for part in self.parts)

    @property
    def asked(self) -> list[Future[Any]]:
        """What the loader was asked to do for it."""
        futures = [*(part.scan for part in self.known_parts), *self.beside.copy()]
        return [future for future in futures if future is not None]

    def beside_scans(self, asked: Future[Any]) -> None:
        """The loader has more to do for it; what it answers is the caller's alone and is not kept here."""
        self.beside.add(asked)
        asked.add_done_callback(self.beside.discard)

    @property
    def at_work(self) -> bool:
        """Whether the loader has something to do for it."""
        return not all(future.done() for future in self.asked)

    @property
    def known_parts(self) -> tuple[_Part, ...]:
        """The parts, none before it is taken up."""
        return () if self.parts is None else self.parts


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a verification may take (seconds): for replicas to reach the position, and after it was asked about."""

    hold_seconds: float = HOLD_SECONDS
    keep_seconds: float = KEEP_SECONDS


@dataclass(slots=True)
class Verifications:
    """The verifications of a node. `step` and `close` are the applier thread's; all else may be called by any thread.

    Attributes:
        folder: Where checkpoints lie; emptied at the start.
        loader: Who scans them.
        node: The node's name; ``started_at_ms`` keeps job ids of different runs of the node apart.
        wake: Called when there is something for `step` to do.
        limits: See `Limits`.
        deep_store: Where exports go; None: nobody has said it yet.
    """

    folder: Path
    loader: Submits
    node: str
    started_at_ms: int
    wake: Callable[[], None]
    limits: Limits = Limits()
    deep_store: str | None = None
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _listeners: set[Callable[[], None]] = field(default_factory=set)
    _leaving: list[_Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- any thread ------------------------------------------------------------------------------------------------

    def begin(self, store_uid: str, version: int) -> VerifyView:
        """Let the replicas of a version stand still.

        Raises:
            Refused: ``verification_running``: another one stands on the version, or there are many.
        """
        jobs = list(self._jobs.values())
        standing = [job for job in jobs if job.stands and (job.store_uid, job.version) == (store_uid, version)]
        if standing or len(jobs) >= MOST_AT_ONCE:
            raise Refused(
                "verification_running",
                "another verification is under way",
                found=", ".join(job.id for job in (standing if standing else jobs)),
                expected=f"at most {MOST_AT_ONCE} at once, and one at a time that lets a version's replicas stand",
                hint="verify again when it is over",
            )
        now = time.monotonic()
        job = _Job(f"{self.started_at_ms:x}-{next(self._numbers)}", store_uid, version, now, now)
        self._jobs[job.id] = job
        self.wake()
        return self._view(job)

    def check_store(self, job_id: str, store_uid: str) -> None:
        """Raise when a verification is there and of another store.

        Raises:
            NotFound: ``unknown_verification``.
        """
        job = self._jobs.get(job_id)
        if job is not None and job.store_uid != store_uid:
            raise _unknown(job_id)

    def aim(self, job_id: str, position: PositionMap) -> VerifyView:
        """Say up to where the standing replicas go; the same again changes nothing.

        Raises:
            NotFound: ``unknown_verification``.
            Refused: ``verification_aimed``: at another position.
        """
        job = self._touched(job_id)
        if job.position not in (None, position):
            raise Refused(
                "verification_aimed",
                "the verification has a position already",
                found=position.to_json(),
                expected=job.position,
                hint="begin another one",
            )
        job.position = position
        self.wake()
        return self._view(job)

    def view(self, job_id: str) -> VerifyView:
        """How far it is.

        Raises:
            NotFound: ``unknown_verification``.
        """
        return self._view(self._touched(job_id))

    def entries(
        self, job_id: str, place: tuple[int, int], buckets: frozenset[int], after: bytes | None
    ) -> Future[Entries]:
        """Keys and row hashes of some buckets of one replica: the next `MAX_ENTRIES` behind a key.

        Raises:
            NotFound: ``unknown_verification``.
            Refused: ``not_verified``: there is no finished scan of that replica.
        """
        job, part = self._scanned(job_id, place)
        compression = part.holding.version.config.compression
        listing = self.loader.submit(EntriesJob(str(part.directory), compression, buckets, after, MAX_ENTRIES))
        job.beside_scans(listing)
        return listing

    def export(self, job_id: str, wanted: ExportReplica) -> Future[Exported]:
        """Write one replica into the deep store.

        Raises:
            NotFound: ``unknown_verification``.
            InvalidRequest: ``bad_path``: it is not below the store's own directory.
            Refused: ``not_verified``: there is no finished scan of that replica.
        """
        job, part = self._scanned(job_id, (wanted.partition, wanted.sub_partition))
        below = f"{store_path(job.store_uid)}/"
        if not wanted.path.startswith(below) or self.deep_store is None:
            message = "a replica is exported below the directory of its store"
            raise InvalidRequest("bad_path", message, found=wanted.path, expected=f"{below}…")
        start = part.holding.version.start
        fed = [Fed.of(feed, at.partition, start) for feed, at in part.holding.feed_partitions()]
        compression = part.holding.version.config.compression
        left_out = tuple(fed) if wanted.base_only else ()
        exporting = self.loader.submit(
            ExportJob(str(part.directory), compression, self.deep_store, wanted.path, left_out)
        )
        job.beside_scans(exporting)
        return exporting

    def _scanned(self, job_id: str, place: tuple[int, int]) -> tuple[_Job, _Part]:
        """A verification, and its part of that place once it was scanned.

        Raises:
            NotFound: ``unknown_verification``.
            Refused: ``not_verified``.
        """
        job = self._touched(job_id)
        for part in job.known_parts:
            if part.holding.place == place and part.state is PartState.DONE:
                return job, part
        raise Refused(
            "not_verified",
            f"there is no finished scan of partition {place[0]}, sub-partition {place[1]}",
            found={f"{p.holding.key.partition}.{p.holding.key.sub_partition}": p.state.value for p in job.known_parts},
            expected=PartState.DONE.value,
        )

    def end(self, job_id: str) -> None:
        """Give it up; the checkpoints go. Nothing happens when there is none."""
        job = self._jobs.get(job_id)
        if job is not None:
            job.ended = True
            self.wake()

    @contextmanager
    def heard(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call the listener, from any thread and without blocking, whenever a stage has changed."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    # -- the applier thread ----------------------------------------------------------------------------------------

    def step(self, holdings: Mapping[ReplicaKey, Holding]) -> bool:
        """The next thing to do for each verification, one checkpoint at most; whether something was done."""
        moved = False
        self._clear()
        for job in list(self._jobs.values()):
            before = job.stage
            forgotten = time.monotonic() - job.touched_at > self.limits.keep_seconds and not job.at_work
            if job.ended or forgotten:
                self._remove(job)
                return True
            if job.parts is None:
                job.parts = tuple(self._parts_of(job, holdings))
            moved |= self._advance(job, job.parts, holdings)
            if job.stage is not before:
                moved = True
                self._tell()
        return moved

    def close(self) -> None:
        """Give all up."""
        for job in list(self._jobs.values()):
            self._remove(job)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _parts_of(self, job: _Job, holdings: Mapping[ReplicaKey, Holding]) -> Iterator[_Part]:
        for key, holding in sorted(holdings.items()):
            if (key.store_uid, key.version) != (job.store_uid, job.version) or holding.leaving_at is not None:
                continue
            directory = self.folder / job.id / f"p{key.partition}-s{key.sub_partition}"
            part = _Part(holding, holding.replica, PartState.NOT_APPLYING, directory, _why_not(holding))
            if part.error is None:
                part.state, holding.hold = PartState.HELD, Hold()
            yield part

    def _advance(self, job: _Job, parts: tuple[_Part, ...], holdings: Mapping[ReplicaKey, Holding]) -> bool:
        late = time.monotonic() - job.begun_at > self.limits.hold_seconds
        moved = False
        for part in parts:
            if part.scan is not None:
                moved |= _finish(part, part.scan)
            elif part.state in _HOLDING:
                gone = holdings.get(part.holding.key) is not part.holding or part.holding.replica is not part.replica
                why = "the node just gave it up" if gone else _why_not(part.holding)
                if why is not None:
                    part.release(PartState.NOT_APPLYING, why)
                elif self._tried(part, job.position):
                    return True
                elif late and part.state in _HOLDING:
                    part.release(PartState.NOT_REACHED, _how_far(part, job.position, self.limits.hold_seconds))
        return moved

    def _tried(self, part: _Part, position: PositionMap | None) -> bool:
        """`_go_on`; a replica that fails at it is let go, whatever it fails with: the others go on."""
        if position is None or part.replica is None:
            return False
        try:
            return self._go_on(part, part.replica, position)
        except Exception as error:  # noqa: BLE001 - of this replica alone
            fault = fault_of(error)
            part.release(PartState.FAILED, str(fault))
            part.judge(fault)
            _log.warning("replica_not_verified", replica=part.holding.name, **fault.to_json())
            return True

    def _go_on(self, part: _Part, replica: Replica, position: PositionMap) -> bool:
        """Bring a replica nearer to its checkpoint; whether one was made."""
        offsets = {at: replica.offset(at) for _, at in part.holding.feed_partitions()}
        past = [f"{at}@{offset}" for at, offset in offsets.items() if (offset or 0) > position.get(at, -1)]
        if past:
            part.release(PartState.PAST_POSITION, f"it stands at {', '.join(past[:_PLACES_SHOWN])}")
            return False
        part.state, part.holding.hold = PartState.REACHING, Hold(position)
        if any(offset != position[at] for at, offset in offsets.items()):
            return False
        part.directory.parent.mkdir(parents=True, exist_ok=True)
        replica.checkpoint(part.directory)
        part.scan = self.loader.submit(FingerprintJob(str(part.directory), part.holding.version.config.compression))
        part.scan.add_done_callback(lambda _: self.wake())
        part.release(PartState.SCANNING)
        return True

    def _remove(self, job: _Job) -> None:
        for part in job.known_parts:
            if part.state in _HOLDING:
                part.holding.hold = None
        for future in job.asked:
            future.cancel()  # what waits at the loader; what it has begun runs to its end
        del self._jobs[job.id]
        self._leaving.append(job)
        self._clear()
        self._tell()
        _log.info("verification_over", job=job.id, ended=job.ended)

    def _clear(self) -> None:
        """Delete the checkpoints of verifications that are over, once the loader has none of them open.

        RocksDB writes files of its own where it opens something, also while that is being deleted.
        """
        for job in [job for job in self._leaving if not job.at_work]:
            shutil.rmtree(self.folder / job.id, ignore_errors=True)
            self._leaving.remove(job)

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()

    def _touched(self, job_id: str) -> _Job:
        job = self._jobs.get(job_id)
        if job is None or job.ended:
            raise _unknown(job_id)
        job.touched_at = time.monotonic()
        return job

    def _view(self, job: _Job) -> VerifyView:
        stage = job.stage
        return VerifyView(
            job=job.id, node=self.node, stage=stage, replicas=tuple(part.view() for part in job.known_parts)
        )


def _finish(part: _Part, scan: Future[Scanned]) -> bool:
    """Note that a scan is over; whether it is news."""
    if part.state is not PartState.SCANNING or not scan.done():
        return False
    error = scan.exception()
    part.error = None if error is None else str(error)
    part.state = PartState.DONE if error is None else PartState.FAILED
    if isinstance(error, Exception):
        part.judge(fault_of(error))
    return True


def _why_not(holding: Holding) -> str | None:
    """Why a replica cannot be verified now; None when it can."""
    if holding.state is ReplicaState.APPLYING and holding.replica is not None and holding.reload is None:
        return None
    return holding.state.value if holding.error is None else f"{holding.state.value}: {holding.error}"


def _how_far(part: _Part, position: PositionMap | None, seconds: float) -> str:
    if position is None or part.replica is None:
        return f"no position was given within {seconds:g} s"
    wanted = {at for _, at in part.holding.feed_partitions()}
    left = PositionMap({at: offset for at, offset in position.items() if at in wanted})
    records = part.replica.position.records_to(left)
    notes = "; ".join(part.holding.waiting.copy().values())
    return f"{records} records were left after {seconds:g} s" + (f"; {notes}" if notes else "")


def _unknown(job_id: str) -> NotFound:
    return NotFound(
        "unknown_verification",
        "there is no such verification",
        found=job_id,
        expected="one of this store that is under way",
        hint="it was ended, was not asked about for too long, or the node was restarted: verify again",
    )
