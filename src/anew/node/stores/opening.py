"""How a replica comes to serve: opened where it lies, loaded from the base, or put in the place of one that is broken.

The steps of a load, and what a crash after each leaves: (1) the loader fills a folder below ``loading`` (swept at the
next start); (2) a fresh instance takes the files in (no marker: discarded, loaded again; rule R4); (3) the marker is
written (complete). One that replaces another is loaded beside it, comes up to it there, and takes its place then: to
readers nothing goes back. A crash in between leaves two: the one that is to be replaced says so in its directory
(`anew.node.stores.directories.Verdict`) and serves, and the other one goes on coming up to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from anew.api.models import DesiredState
from anew.api.stores.replicas import ReplicaState
from anew.codec.compression import compressor
from anew.core.errors import AnewError, Failed
from anew.core.feed import FeedPartition
from anew.node.faults import fault_of
from anew.node.loader import Submits
from anew.node.stores.directories import (
    Directories,
    Verdict,
    forget_verdict,
    keep_verdict,
    open_replica,
    read_verdict,
    unopened,
)
from anew.node.stores.holding import Holding
from anew.node.stores.loadjob import LoadJob
from anew.storage.applying import Floors
from anew.storage.memory import NodeMemory
from anew.storage.replica import Replica, remove_replica

_NOTICE_SECONDS = 60.0
_OPEN_ATTEMPTS = 6
"""What RocksDB says of a file that it cannot open is of the machine, unless it stays so for half a minute."""
_STAYS_SECONDS = 5.0
"""Until a replica that is not replaced after all tries again to apply."""
_NOWHERE = frozenset({"offset_out_of_range", "topic_lost"})
"""What a fresh one says of a log that has no longer what it lacks."""
_TWO = "two of it lie here: one was being put in the place of the other"

_log = structlog.get_logger("anew.node.stores.opening")


@dataclass(frozen=True, slots=True)
class Opening:
    """What opens and loads the replicas of a node, for its one applier thread.

    Attributes:
        directories: Where they lie.
        loading: Where files under way are.
        memory: The node's.
        loader: Makes replicas from bases.
        check_may_go: Raises where what a holding has may be the last copy (`anew.node.stores.replacing`).
        check_room: Raises unless one more instance may be open.
        repaint: Called when another replica serves than before, while both are open.
        clock_seconds: A monotonic clock.
    """

    directories: Directories
    loading: Path
    memory: NodeMemory
    loader: Submits
    check_may_go: Callable[[Holding, str], None]
    check_room: Callable[[], None]
    repaint: Callable[[], None]
    clock_seconds: Callable[[], float]

    def open_or_load(self, holding: Holding, desired: DesiredState) -> bool:
        """Open what lies there, or ask for a load.

        Raises:
            AnewError: Neither works.
        """
        key, found, broken = holding.key, list[Replica](), dict[Path, str]()
        for directory in self.directories.of(key):
            try:
                replica = self._open_existing(holding, directory)
            except Failed as error:
                broken[directory] = str(error)
                continue
            except BaseException:
                _close_all(found)
                raise
            if replica is not None:
                found.append(replica)
            else:
                remove_replica(directory)
        why = next(iter(broken.values()), None)
        if len(found) > 1:
            return self._go_on_with(holding, *_roles(*found))
        if found:
            return self._use(holding, found[0], why)
        into = self.directories.of(key)[0]
        if why is not None:
            self.check_may_go(holding, why)
            # The one that is tried to be opened first may be the whole one, as soon as the machine is well.
            into = self.directories.other(key, next(iter(broken)))
            remove_replica(into)
        self._load(holding, desired, into)
        if holding.integrity_failures < 2:
            holding.state = ReplicaState.LOADING
        return True

    def take_in(self, holding: Holding) -> bool:
        """Serve what its load has made, once that is done; whether it was.

        Raises:
            AnewError: The load failed.
        """
        load = holding.load
        if load is None or not load.done():
            return False
        replica = self._loaded(holding)
        other = self.directories.other(holding.key, replica.directory)
        if not other.exists():
            return self._use(holding, replica, None)
        try:
            # It could not be opened when the load began. If it can be by now it has more than the base.
            before = self._open_existing(holding, other)
        except AnewError as error:
            return self._use(holding, replica, str(error))
        except BaseException:
            replica.close()
            raise
        return self._use(holding, replica, None) if before is None else self._go_on_with(holding, before, replica)

    def replace(self, holding: Holding, desired: DesiredState) -> bool:
        """Put another one in the place of a replica that is damaged, or whose position the log does not have (rule R3).

        The other one is loaded beside it and comes up to it there: until then the one before is the last that has all
        that was applied. Whether something was done.

        Raises:
            AnewError: It does not work now.
        """
        replica = holding.replica
        if replica is None or holding.retry_at > self.clock_seconds():
            return False
        if holding.beside is not None:
            return self._come_up(holding, replica, holding.beside)
        if holding.load is None:
            return self._begin_beside(holding, replica, desired)
        if not holding.load.done():
            return False
        self._set_beside(holding, self._loaded(holding))
        return True

    def _begin_beside(self, holding: Holding, replica: Replica, desired: DesiredState) -> bool:
        why = str(holding.reload)
        try:
            self.check_may_go(holding, why)
        except Failed as error:
            self._stay(holding, replica, error)
            return True
        self.check_room()
        directory = self.directories.other(holding.key, replica.directory)
        # Before there is another one: who of two is to go is told by this alone.
        self._keep_verdict(holding, replica, directory)
        _log.error("replica_loads_again", replica=holding.name, why=why)
        remove_replica(directory)
        self._load(holding, desired, directory)
        return True

    def _come_up(self, holding: Holding, replica: Replica, beside: Holding) -> bool:
        fresh = beside.replica
        if fresh is None or beside.reload is not None:
            # It, too. The feeds have said that it is time for another one.
            holding.beside = None
            holding.reloads, holding.reloaded_at = beside.reloads, beside.reloaded_at
            if fresh is not None:
                fresh.discard()
            return True
        beside.arrives()
        if not (beside.gets_on and beside.arrived) and not _has_all_of(holding, beside):
            lacking = [error for at, (error, _) in beside.broken.items() if at not in beside.lost]
            lost = next((error for error in lacking if error.code in _NOWHERE), None)
            if lost is not None:
                self._stay(holding, replica, lost)
            return lost is not None
        holding.notice, holding.notice_until = f"loaded again: {holding.reload}", self.clock_seconds() + _NOTICE_SECONDS
        holding.take_over(beside)
        try:
            self.repaint()
        finally:
            replica.discard()
        _log.info("replica_replaced", replica=holding.name)
        return True

    def _stay(self, holding: Holding, replica: Replica, error: AnewError) -> None:
        """What another one would lack is nowhere else: the one that is there goes on, as far as it can."""
        beside, holding.beside = holding.beside, None
        if beside is not None and beside.replica is not None:
            beside.replica.discard()
        holding.error, holding.reload = f"{holding.reload}; it is not replaced: {error}", None
        holding.retry_at = self.clock_seconds() + _STAYS_SECONDS
        if not holding.lost:
            forget_verdict(replica.directory)
        _log.error("replica_stays", replica=holding.name, why=holding.error)

    def _go_on_with(self, holding: Holding, old: Replica, fresh: Replica) -> bool:
        """Two lie there, of which one replaces the other one: go on with that, as far as it has come."""
        self._begin(holding, old)
        holding.reload = holding.reload or _TWO
        holding.error_code = "storage_broken"
        self._keep_verdict(holding, old, fresh.directory)
        self._set_beside(holding, fresh)
        return True

    def _keep_verdict(self, holding: Holding, replica: Replica, by: Path) -> None:
        lost = tuple(sorted(holding.lost))
        try:
            keep_verdict(replica.directory, Verdict(str(holding.reload), lost, by.name))
        except OSError as error:
            raise fault_of(error) from None

    def _set_beside(self, holding: Holding, fresh: Replica) -> None:
        holding.state = ReplicaState.ERROR
        holding.error = f"{holding.reload}; another one, which lies beside it, comes up to it"
        beside = Holding(holding.key, holding.store, holding.version)
        # What comes again after a load waits for longer each time, in whichever of the two it comes.
        beside.reloads, beside.reloaded_at = holding.reloads, holding.reloaded_at
        self._begin(beside, fresh)
        holding.beside, holding.failures = beside, 0

    def _use(self, holding: Holding, replica: Replica, broken: str | None) -> bool:
        """Let one serve; what lies in its other place goes, a broken one only where nothing would be lost with it."""
        other = self.directories.other(holding.key, replica.directory)
        self._begin(holding, replica)
        if broken is not None:
            try:
                self.check_may_go(holding, broken)
            except AnewError as error:
                _log.warning("replica_beside_is_left", replica=holding.name, directory=str(other), why=str(error))
                return True
        remove_replica(other)
        return True

    def _load(self, holding: Holding, desired: DesiredState, directory: Path) -> None:
        """Ask the loader for a replica in a directory."""
        version = holding.version
        holding.loads_into = directory
        job = LoadJob(
            desired.deep_store,
            desired.log,
            version.manifest,
            holding.key.partition,
            holding.key.sub_partition,
            version.start,
            str(self.loading / holding.key.path),
            str(directory),
        )
        holding.load = self.loader.submit(job)
        _log.info("load_begins", replica=holding.name, manifest=version.manifest.path)

    def _loaded(self, holding: Holding) -> Replica:
        """What a load that is done has made.

        Raises:
            AnewError: It failed, or what it made cannot be opened.
        """
        load, holding.load = holding.load, None
        directory = holding.loads_into
        if load is None or directory is None:
            raise RuntimeError(f"{holding.name}: nothing was loaded; expected a load that is done")
        loaded = load.result()
        replica = self._open_existing(holding, directory)
        if replica is None:
            raise unopened(directory, holding.version.manifest.path)
        _log.info("load_done", replica=holding.name, rows=loaded.rows, tombstones=loaded.tombstones)
        return replica

    def _open_existing(self, holding: Holding, directory: Path) -> Replica | None:
        """See `open_replica`."""
        manifest, is_patient = holding.version.manifest.checksum, holding.failures < _OPEN_ATTEMPTS
        return open_replica(directory, self.memory, manifest, is_patient=is_patient)

    def _begin(self, holding: Holding, replica: Replica) -> None:
        version = holding.version
        codec = compressor(version.config.compression, replica.base.dictionary)
        replica.use(codec, Floors(version.ttl_floor_ms, version.tombstone_floor_ms))
        holding.begin(replica)
        verdict = read_verdict(replica.directory)
        if verdict is not None:
            holding.state, holding.error, holding.error_code = ReplicaState.ERROR, verdict.why, "storage_broken"
            holding.reload = verdict.why
            holding.lost.update(verdict.lost)
            holding.broken.update({at: (_lost_before(at, verdict.why), 0.0) for at in verdict.lost})


def _roles(first: Replica, second: Replica) -> tuple[Replica, Replica]:
    """Of two that lie there the one that is replaced, and the one that replaces it."""
    verdicts = [read_verdict(replica.directory) for replica in (first, second)]
    replaced = [verdict is not None and verdict.by is not None for verdict in verdicts]
    if replaced[0] == replaced[1]:
        # Nobody wrote it down: a fresh one was read by nobody yet, and the one with less perhaps neither.
        fresh = [replica.is_fresh for replica in (first, second)]
        if fresh[0] != fresh[1]:
            return (second, first) if fresh[0] else (first, second)
        replaced[1] = second.position.reaches(first.position) and not first.position.reaches(second.position)
        replaced[0] = not replaced[1]
    return (first, second) if replaced[0] else (second, first)


def _has_all_of(holding: Holding, beside: Holding) -> bool:
    """Whether what lies beside it has applied all that it has; of what the log has lost, all that is left."""
    old, fresh = holding.replica, beside.replica
    if old is None or fresh is None:
        return False
    for _, at in beside.feed_partitions():
        wanted = old.offset(at)
        if at in holding.lost:
            if at not in beside.lags:
                return False
            wanted = beside.lags[at].end
        reached = fresh.offset(at)
        if wanted is not None and (reached is None or reached < wanted):
            return False
    return True


def _lost_before(at: FeedPartition, why: str) -> AnewError:
    return Failed("offset_out_of_range", f"the log has lost what was applied of {at}", found=why)


def _close_all(replicas: list[Replica]) -> None:
    for replica in replicas:
        replica.close()
