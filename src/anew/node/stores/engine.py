"""The engine: works towards the desired state, level-triggered (`Nodes` in docs/architecture.md).

One thread does everything that changes replicas: opening, loading, applying, closing (`anew.node.stores.opening` has
the steps of a load). A replica that is no longer desired is closed and removed after a grace.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from anew.api.location import LogLocation
from anew.api.models import DesiredState, LoopTrouble, NodeReport
from anew.api.stores.replicas import ReplicaState
from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Unreachable
from anew.core.integrity import NOT_AS_PROMISED
from anew.log.interface import Log
from anew.loops.guarded import Loops
from anew.loops.threads import LoopThread
from anew.node.disk import DiskWatch
from anew.node.faults import OF_THE_MACHINE, fault_of
from anew.node.loader import Submits
from anew.node.stores.directories import Directories
from anew.node.stores.feeds import FeedApplier
from anew.node.stores.holding import DeadLetters, Holding, ReplicaKey, keys_of, unknown_schemas
from anew.node.stores.opening import Opening
from anew.node.stores.serving import Picture, picture_of
from anew.node.stores.verifying import Verifications
from anew.storage.memory import NodeMemory
from anew.storage.replica import Replica

REST_SECONDS = 0.02
"""After a round that caught up: the next one costs the same for a record as for hundreds, and reads wait for it."""
SAVE_SECONDS = 1.0
_RETRY_SECONDS = (0.5, 60.0)

_log = structlog.get_logger("anew.node.stores.engine")


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who the node is and where it keeps its replicas.

    ``removal_grace_seconds``: how long a replica outlives its place in the desired state.
    """

    node: str
    fabric: str
    url: str
    directory: Path
    started_at_ms: int
    removal_grace_seconds: float = 3.0

    @property
    def replicas(self) -> Path:
        """Where the instances are."""
        return self.directory / "replicas"

    @property
    def loading(self) -> Path:
        """Where files under way are; nothing in it outlives the process."""
        return self.directory / "loading"

    @property
    def verifying(self) -> Path:
        """Where checkpoints are that are verified; nothing in it outlives the process."""
        return self.directory / "verifying"


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What the engine works with.

    Attributes:
        clock: The time in ms since the epoch.
        clock_seconds: A monotonic clock.
        loops: The loops of the node's process; None: the engine is all of it.
    """

    memory: NodeMemory
    loader: Submits
    open_log: Callable[[LogLocation], Log]
    clock: Callable[[], int]
    clock_seconds: Callable[[], float] = time.monotonic
    loops: Loops | None = None


class Engine:
    """Holds the node's replicas. `accept`, `report` and `picture` may be called by any thread.

    Attributes:
        picture: What can be read now.
        changed: Set when the report would say something new.
        dead_letters: What no version applied.
        loops: The loops of the node's process.
        verifications: What is verified now.
    """

    def __init__(self, identity: NodeIdentity, collaborators: Collaborators) -> None:
        self.picture = Picture()
        self.changed = threading.Event()
        self.dead_letters = DeadLetters(identity.directory / "dead-letters.jsonl")
        own = collaborators.loops
        self.loops = Loops(collaborators.clock, clock_seconds=collaborators.clock_seconds) if own is None else own
        self.loops.changed = self.changed.set
        self._applier = self.loops.loop("applier")
        self._identity = identity
        self._directories = Directories(identity.replicas)
        self._collaborators = collaborators
        self._opening = Opening(
            self._directories,
            identity.loading,
            collaborators.memory,
            collaborators.loader,
            self._check_may_go,
            self._check_room,
            self._repaint_now,
            collaborators.clock_seconds,
        )
        self._holdings: dict[ReplicaKey, Holding] = {}
        self._desired: DesiredState | None = None
        self._accepted: DesiredState | None = None
        self._gone: set[tuple[str, int]] = set()
        self._log: Log | None = None
        self._feeds: FeedApplier | None = None
        self._applied_before = 0
        self._saved_at = collaborators.clock_seconds()
        self._rates: dict[ReplicaKey, tuple[float, int]] = {}
        self._hurries = False
        self._unpainted = False
        self._wake = threading.Event()
        self._working = LoopThread(self._applier, self._round, self._wake)
        self._disk = DiskWatch(identity.directory, collaborators.clock)
        self.verifications = Verifications(
            identity.verifying, collaborators.loader, identity.node, identity.started_at_ms, self._wake.set
        )
        shutil.rmtree(identity.loading, ignore_errors=True)

    # -- any thread ------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The revision of the newest desired state that was accepted; -1 before the first."""
        return -1 if self._accepted is None else self._accepted.revision

    def accept(self, desired: DesiredState) -> bool:
        """Take a desired state, unless it is older than the one there is; whether it was taken."""
        if desired.revision < self.revision:
            _log.warning("desired_state_went_back", found=desired.revision, expected=f">= {self.revision}")
            return False
        self._accepted = desired
        self.verifications.deep_store = desired.deep_store
        self._wake.set()
        return True

    def report(self) -> NodeReport:
        """What the node holds."""
        return NodeReport(
            node=self._identity.node,
            fabric=self._identity.fabric,
            url=self._identity.url,
            started_at_ms=self._identity.started_at_ms,
            replicas=tuple(holding.report(self._now()) for _, holding in sorted(self._holdings.copy().items())),
            dead_letters=self.dead_letters.waiting(),
            unknown_schemas=unknown_schemas(self._of_disk()),
            loops=tuple(LoopTrouble(**asdict(trouble)) for trouble in self.loops.troubles()),
            faults=self._disk.faults(),
        )

    def why_not_ready(self) -> str | None:
        """What keeps the node from serving all that it is to serve, for ``/readyz``; None when nothing does."""
        if self.revision < 0:
            return "it has not heard yet what it is to hold"
        report = self.report()
        of_node = [fault.what for fault in report.faults]
        of_loops = [f"{trouble.loop}: {trouble.error}" for trouble in report.loops]
        of_replicas = [replica.error for replica in report.replicas if replica.error_code in OF_THE_MACHINE]
        return next((why for why in (*of_node, *of_loops, *of_replicas) if why), None)

    def holdings(self) -> list[Holding]:
        """The replicas as they are, to be looked at."""
        return list(self._holdings.copy().values())

    @property
    def applied(self) -> int:
        """How many records were applied so far."""
        return self._applied_before + (0 if self._feeds is None else self._feeds.applied)

    def start(self) -> None:
        """Begin to work, in a thread of its own."""
        self._working.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End the thread, save positions, close everything."""
        self._working.stop(timeout_seconds)
        self.picture = Picture()
        self.verifications.close()
        for holding in self._of_disk():
            replica, holding.replica = holding.replica, None
            if replica is not None:
                self._close(holding, replica)
        if self._log is not None:
            self._log.close()

    def _close(self, holding: Holding, replica: Replica) -> None:
        """A replica that cannot save where it stands goes on from further back; the others are closed all the same."""
        try:
            replica.close()
        except Exception as error:  # noqa: BLE001 - of this replica alone
            _log.warning("replica_not_closed", replica=holding.name, error=str(fault_of(error)))

    # -- the applier thread ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One round of everything; whether there was something to do."""
        moved, applied, behind = self._reconcile(), False, False
        if self._feeds is not None:
            applied = self._feeds.round(list(self._of_disk()))
            behind = self._feeds.behind
            if [holding for holding in self._holdings.values() if holding.arrives()]:
                # A version waits for this to go into service, and readers for a fresh replica.
                self._repaint_now()
        if self._now() - self._saved_at >= SAVE_SECONDS:
            self._save()
        moved |= self.verifications.step(self._holdings)
        self._hurries = moved or behind
        return moved or applied

    def _round(self) -> None:
        self._hurries = False
        self.step()
        if not self._hurries:
            self._wake.wait(REST_SECONDS)
            self._wake.clear()

    def _now(self) -> float:
        return self._collaborators.clock_seconds()

    def _save(self) -> None:
        now = self._saved_at = self._now()
        for holding in self._of_disk():
            if holding.replica is not None:
                self._save_position(holding, holding.replica)
        for key, holding in self._holdings.items():
            since, before = self._rates.get(key, (now - SAVE_SECONDS, 0))
            holding.records_per_s = (holding.applied - before) / max(now - since, 1e-3)
            self._rates[key] = (now, holding.applied)

    def _save_position(self, holding: Holding, replica: Replica) -> None:
        """A replica that cannot save is read again from where it did; it says so when it cannot apply either."""
        try:
            replica.save_positions()
        except Exception as error:  # noqa: BLE001 - of this replica alone
            if holding.apply_failures == 0:
                _log.warning("position_not_saved", replica=holding.name, error=str(fault_of(error)))

    def _reconcile(self) -> bool:
        desired = self._accepted
        if desired is None:
            return False
        moved = False
        if desired is not self._desired:
            self._adopt(desired)
            moved = True
        for holding in list(self._holdings.values()):
            self._applier.progressed()
            try:
                moved |= self._work_on(holding, desired)
            except Exception as error:  # noqa: BLE001 - of this replica alone: the others are worked on all the same
                self._put_off(holding, fault_of(error))
                moved = True
        self._unpainted |= moved
        if self._unpainted:
            self._repaint(desired)
        return moved

    def _adopt(self, desired: DesiredState) -> None:
        """Note what is new, what goes, and what changed about the rest."""
        if self._desired is None or self._desired.log != desired.log:
            self._use_log(desired.log)
        before = set() if self._desired is None else _versions_of(self._desired)
        self._gone = (self._gone | before) - _versions_of(desired)
        wanted = {k: (s, v) for s in desired.stores for v in s.versions for k in keys_of(s, v)}
        for key, (store, version) in wanted.items():
            holding = self._holdings.get(key)
            if holding is None:
                self._holdings[key] = Holding(key, store, version)
            else:
                holding.store, holding.version, holding.leaving_at = store, version, None
        stores = {store.uid: store for store in desired.stores}
        for key in self._holdings.keys() - wanted.keys():
            holding = self._holdings[key]
            # One that leaves shares its reads with those that stay: all go by the newest schemas and feeds.
            holding.store = stores.get(key.store_uid, holding.store)
            holding.leaving_at = self._now() if holding.leaving_at is None else holding.leaving_at
        for holding in self._holdings.values():
            if holding.beside is not None:
                holding.beside.store, holding.beside.version = holding.store, holding.version
        if self._desired is None:
            self._directories.tidy()
        self._directories.sweep(self._holdings)
        self._desired = desired

    def _use_log(self, location: LogLocation) -> None:
        """Read feeds there from now on: brokers get other addresses, and a home may be moved."""
        fresh = self._collaborators.open_log(location)
        if self._log is not None:
            self._log.close()
        if self._feeds is not None:
            self._applied_before += self._feeds.applied
        self._log = fresh
        self._feeds = FeedApplier(
            fresh, self.dead_letters, self._collaborators.clock, self._now, self._applier.progressed
        )

    def _work_on(self, holding: Holding, desired: DesiredState) -> bool:
        """The next thing to do for one replica; whether something was done.

        Raises:
            AnewError: It did not work; it is put off.
        """
        if holding.leaving_at is not None:
            if self._now() - holding.leaving_at < self._identity.removal_grace_seconds:
                return False
            return self._remove(holding)
        if holding.reload is not None and holding.replica is not None:
            return self._opening.replace(holding, desired)
        if holding.load is not None:
            return self._opening.take_in(holding)
        if holding.is_in_doubt and holding.replica is not None:
            return self._look_again(holding, holding.replica)
        if holding.replica is not None or holding.retry_at > self._now():
            # One that failed to apply is the feeds' to try again.
            return False
        # Not served without: what a partitioner of somebody's own does wrong is told here, of this version alone.
        _ = holding.partitioner
        self._check_room()
        return self._opening.open_or_load(holding, desired)

    def _look_again(self, holding: Holding, replica: Replica) -> bool:
        """Look again at what readers or a verification found damaged, unless it is too early; whether it was done."""
        if self._feeds is None or holding.retry_at > self._now():
            return False
        self._feeds.look_again(holding, replica)
        return True

    def _of_disk(self) -> Iterator[Holding]:
        """All that there is, also what is to take the place of another one and is not served yet."""
        for holding in self._holdings.copy().values():
            yield holding
            beside = holding.beside
            if beside is not None:
                yield beside

    def _check_room(self) -> None:
        """Raise unless one more may be open."""
        self._collaborators.memory.check_room(sum(holding.replica is not None for holding in self._of_disk()) + 1)

    def _check_may_go(self, holding: Holding, why: str) -> None:
        """See `anew.node.stores.replacing.Replacements.check_may_go`."""
        if self._feeds is not None:
            self._feeds.replacements.check_may_go(holding, why)

    def _put_off(self, holding: Holding, error: AnewError) -> None:
        first, longest = _RETRY_SECONDS
        holding.load = None
        if holding.replica is not None:
            self._keep(holding, error)
            return
        if error.code in NOT_AS_PROMISED:
            holding.integrity_failures += 1
            if holding.integrity_failures == 1:
                holding.state, holding.error = ReplicaState.LOADING, f"fetched again: {error}"
                holding.error_code = error.code
                _log.warning("base_fetched_again", replica=holding.name, code=error.code, error=str(error))
                return
            # Fetched twice, it is broken where it lies: somebody may mend that, but not soon.
            first = longest
        # What cannot be reached now may be reached soon: only an answer is a reason to give a version up.
        holding.state = ReplicaState.PENDING if isinstance(error, Unreachable) else ReplicaState.ERROR
        holding.error, holding.error_code = str(error), error.code
        holding.retry_at = self._now() + backoff_seconds(holding.failures, first, longest)
        holding.failures += 1
        _log.error("replica_failed", replica=holding.name, code=error.code, error=str(error), tries=holding.failures)

    def _keep(self, holding: Holding, error: AnewError) -> None:
        """A replica that is to be loaded again, and cannot be, serves on; it is tried again later."""
        holding.state, holding.error_code = ReplicaState.ERROR, error.code
        holding.error = f"{holding.reload}; it cannot be loaded again: {error}"
        holding.retry_at = self._now() + backoff_seconds(holding.failures, *_RETRY_SECONDS)
        holding.failures += 1
        _log.error("replica_kept", replica=holding.name, code=error.code, error=str(error), tries=holding.failures)

    def _remove(self, holding: Holding) -> bool:
        if holding.load is not None and not holding.load.done():
            return False
        replica, holding.replica = holding.replica, None
        beside, holding.beside = holding.beside, None
        del self._holdings[holding.key]
        self._rates.pop(holding.key, None)
        self._repaint_now()
        for each in (replica, None if beside is None else beside.replica):
            if each is not None:
                each.discard()
        for directory in self._directories.of(holding.key):
            self._directories.take_away(directory)
        shutil.rmtree(self._identity.loading / holding.key.path, ignore_errors=True)
        _log.info("replica_removed", replica=holding.name)
        return True

    def _repaint_now(self) -> None:
        if self._desired is not None:
            self._repaint(self._desired)

    def _repaint(self, desired: DesiredState) -> None:
        # Until it is done: what fails once is not forgotten with the move that asked for it.
        self._unpainted = True
        self.picture = picture_of(list(desired.stores), list(self._holdings.values()), self._gone, desired.revision)
        self._unpainted = False
        self.changed.set()


def _versions_of(desired: DesiredState) -> set[tuple[str, int]]:
    return {(store.uid, version.number) for store in desired.stores for version in store.versions}
