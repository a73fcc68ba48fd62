"""How a replica comes to serve: opened where it lies, loaded from the base, or put in the place of one that is broken.

The steps of a load, and what a crash after each leaves: (1) the loader fills a folder below ``loading`` (swept at the
next start); (2) a fresh instance takes the files in (no marker: discarded, loaded again; rule R4); (3) the marker is
written (complete). One that replaces another is loaded beside it, comes up to it there, and takes its place then: to
readers nothing goes back. A crash in between leaves two; the one that is further along serves, and the other one goes
on coming up to it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from anew.api.models import DesiredState, ReplicaState
from anew.codec.compression import compressor
from anew.core.errors import Failed
from anew.core.feed import PositionMap
from anew.node.directories import Directories, open_replica, unopened
from anew.node.holding import Holding
from anew.node.loader import Submits
from anew.node.loadjob import LoadJob
from anew.storage.applying import Floors
from anew.storage.memory import NodeMemory
from anew.storage.replica import Replica

NOTICE_SECONDS = 60.0
_OPEN_ATTEMPTS = 6
"""What RocksDB says of a file that it cannot open is of the machine, unless it stays so for half a minute."""
_TWO = "two of it lie here: one was being put in the place of the other"

_log = structlog.get_logger("anew.node.opening")


@dataclass(frozen=True, slots=True)
class Opening:
    """What opens and loads the replicas of a node, for its one applier thread.

    Attributes:
        directories: Where they lie.
        loading: Where files under way are.
        memory: The node's.
        loader: Makes replicas from bases.
        check_may_go: Raises where what a holding has may be the last copy (`anew.node.feeds.FeedApplier.check_may_go`).
        repaint: Called when another replica serves than before, while both are open.
        clock_seconds: A monotonic clock.
    """

    directories: Directories
    loading: Path
    memory: NodeMemory
    loader: Submits
    check_may_go: Callable[[Holding, str], None]
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
                shutil.rmtree(directory, ignore_errors=True)
        why = next(iter(broken.values()), None)
        if len(found) > 1:
            return self._take_up(holding, *found)
        if found:
            return self._use(holding, found[0], why)
        into = self.directories.of(key)[0]
        if why is not None:
            self.check_may_go(holding, why)
            # The one that is tried to be opened first may be the whole one, as soon as the machine is well.
            into = self.directories.other(key, next(iter(broken)))
            shutil.rmtree(into, ignore_errors=True)
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
        return self._use(holding, replica, str(other) if other.exists() else None)

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
            directory = self.directories.other(holding.key, replica.directory)
            self.check_may_go(holding, str(holding.reload))
            _log.error("replica_loads_again", replica=holding.name, why=holding.reload)
            shutil.rmtree(directory, ignore_errors=True)
            self._load(holding, desired, directory)
            return True
        if not holding.load.done():
            return False
        self._set_beside(holding, self._loaded(holding))
        return True

    def _come_up(self, holding: Holding, replica: Replica, beside: Holding) -> bool:
        fresh = beside.replica
        if fresh is None or beside.reload is not None:
            # It, too. The feeds have said that it is time for another one.
            holding.beside, holding.reload = None, beside.reload or holding.reload
            holding.reloads, holding.reloaded_at = beside.reloads, beside.reloaded_at
            _discard(fresh)
            return True
        beside.arrives()
        applied = {at: replica.position.get(at, -1) for _, at in beside.feed_partitions()}
        if not beside.gets_on or not (beside.arrived or fresh.position.reaches(applied)):
            return False
        holding.notice, holding.notice_until = f"loaded again: {holding.reload}", self.clock_seconds() + NOTICE_SECONDS
        holding.take_over(beside)
        try:
            self.repaint()
        finally:
            _discard(replica)
        _log.info("replica_replaced", replica=holding.name)
        return True

    def _take_up(self, holding: Holding, first: Replica, second: Replica) -> bool:
        """Of two that lie there one was to replace the other one when the process ended: go on with that."""
        old, fresh = (first, second) if _is_as_far(first.position, second.position) else (second, first)
        self._begin(holding, old)
        try:
            self.check_may_go(holding, _TWO)
        except Failed as error:
            # What the fresh one lacks may be nowhere else. It stays, too: what it has may be damaged in the other one.
            _log.warning("replica_beside_is_left", replica=holding.name, directory=str(fresh.directory), why=str(error))
            fresh.close()
            return True
        holding.reload, holding.error_code = _TWO, "storage_broken"
        self._set_beside(holding, fresh)
        return True

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
        if broken is not None:
            try:
                self.check_may_go(holding, broken)
            except Failed:
                replica.close()
                raise
        shutil.rmtree(self.directories.other(holding.key, replica.directory), ignore_errors=True)
        self._begin(holding, replica)
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


def _is_as_far(one: PositionMap, other: PositionMap) -> bool:
    """Whether one has come as far as another one; of two of which each is ahead somewhere the one that read more."""
    return one.reaches(other) or (not other.reaches(one) and sum(one.values()) >= sum(other.values()))


def _discard(replica: Replica | None) -> None:
    if replica is not None:
        replica.discard()


def _close_all(replicas: list[Replica]) -> None:
    for replica in replicas:
        replica.close()
