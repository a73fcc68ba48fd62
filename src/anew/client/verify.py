"""Proof of equality: the replicas of a version compared with each other and with base ⊕ feeds, at one position (R19).

(1) All nodes let the version's replicas stand; (2) the ends of the log are read, which no standing replica can have
passed, cut off at the version's ``stop``; (3) each replica goes on to exactly there, keeps a checkpoint and is free
again; (4) the nodes scan their checkpoints while the expectation is computed here; (5) where buckets differ, keys and
row hashes are compared and the keys are named; (6) the nodes forget it. Whatever ends it in between, a node lets go of
replicas and checkpoints by itself after a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from anew.api.node_http import Address, NodeClient
from anew.api.stores.verifying import (
    MAX_WAIT_SECONDS,
    ExportedReplica,
    ExportReplica,
    PartState,
    VerifiedReplica,
    VerifyStage,
    VerifyView,
)
from anew.client.differences import Differences, Scan
from anew.client.expectation import Expectation, Place, expectation_of
from anew.client.verdict import DEFAULT_TIMEOUT_SECONDS, Expected, ReplicaVerdict, Verification, verdict_error
from anew.core.errors import AnewError, Failed, Refused, Unreachable
from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.fingerprint import Fingerprint
from anew.core.stores.feedreads import start_of, stop_of
from anew.core.stores.store import Store, Version, VersionInFabric
from anew.deepstore.interface import DeepStore
from anew.log.interface import Log, topic_partition

_ATTEMPTS = 3
_KEEP_ALIVE_SECONDS = 30.0
_STAND_SECONDS = 5.0
_NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is verified: the version that a fabric serves, as the catalog has it, and where its nodes are."""

    store: Store
    fabric: str
    urls: Mapping[str, str]

    @property
    def version(self) -> Version:
        """The fabric's current version.

        Raises:
            Refused: ``no_current_version``.
        """
        version = self.store.version(self.store.current.get(self.fabric, 0))
        if version is None:
            raise Refused(
                "no_current_version",
                f"{self.store.name} has no current version in {self.fabric}",
                found=self.store.current,
                expected="a version that serves",
                hint=f"push to it first: anew push {self.store.name} FILE --key …",
            )
        return version

    @property
    def there(self) -> VersionInFabric:
        """The version's life in the fabric."""
        return self.version.fabrics[self.fabric]

    @property
    def address(self) -> Address:
        """How nodes are asked about it."""
        return Address(self.store.name, self.store.uid, self.version.number)

    @property
    def holders(self) -> Mapping[int, tuple[str, ...]]:
        """Partition → nodes that hold a replica of it."""
        return self.there.assignment

    @property
    def nodes(self) -> list[str]:
        """All nodes that hold something of it."""
        return sorted({node for nodes in self.holders.values() for node in nodes})

    def feed_partitions(self) -> Iterator[tuple[Feed, FeedPartition]]:
        """What the version applies."""
        for feed in self.store.feeds_of(self.version):
            if feed.ready:
                yield from ((feed, at) for at in feed.feed_partitions())


@dataclass(frozen=True, slots=True)
class Sources:
    """What a verification asks.

    Attributes:
        subject: Says what is verified, as it is when it is called.
        nodes: The nodes' client.
        log: The fabric's log.
        deep_store: The fabric's deep store.
        clock_seconds: A monotonic clock.
    """

    subject: Callable[[], Subject]
    nodes: NodeClient
    log: Log
    deep_store: DeepStore
    clock_seconds: Callable[[], float] = time.monotonic


def verify(sources: Sources, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Verification:
    """Compare all replicas of the current version; what differs and who did not answer is in the result.

    Raises:
        Refused: ``no_current_version``, ``verification_running``.
        Unreachable: Log or deep store does not answer.
        Failed: The base or the log is not what it was: see `Expectation.fingerprints`.
    """
    deadline = sources.clock_seconds() + timeout_seconds
    attempt = 0
    while True:
        attempt += 1
        with Round.begun(sources, sources.subject(), deadline) as under_way:
            found = under_way.result()
            if not under_way.overtaken or attempt == _ATTEMPTS:
                return found


@contextmanager
def standing(sources: Sources, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Iterator[Round]:
    """The replicas of the current version as they were at one position, kept for as long as the block runs.

    Raises:
        Refused: ``no_current_version``, ``verification_running``.
        Unreachable: The log does not answer.
    """
    with Round.begun(sources, sources.subject(), sources.clock_seconds() + timeout_seconds) as made:
        yield made


@dataclass(slots=True)
class Round:
    """One attempt: everything that is under way on the nodes.

    Attributes:
        position: Where the replicas are compared.
        jobs: Node → job there; ``failures``: node → why it does not take part any more.
        over: Set when the round ends.
        views: Node → what it says in the end.
        begun_jobs: All that was begun and is not ended yet, as (node, job).
    """

    sources: Sources
    subject: Subject
    deadline: float
    position: PositionMap = field(default_factory=PositionMap)
    jobs: dict[str, str] = field(default_factory=dict)
    failures: dict[str, AnewError] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    views: dict[str, Future[VerifyView]] = field(default_factory=dict)
    begun_jobs: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def begun(cls, sources: Sources, subject: Subject, deadline: float) -> Iterator[Round]:
        """Steps 1 to 3, and in the end 6.

        Raises:
            Refused: ``verification_running``.
            Unreachable: The log does not answer.
        """
        made = cls(sources, subject, deadline)
        # One for each node: what waits for another node would stand meanwhile.
        workers = ThreadPoolExecutor(len(subject.nodes) + 1, "verify")
        try:
            workers.submit(made._keep)
            made._stand(workers)
            made.position = _ends(subject, sources.log)
            made.views = {node: workers.submit(made._follow, node) for node in made.jobs}
            yield made
        finally:
            made.over.set()
            made._end_all()
            workers.shutdown()
            made._end_all()

    def export(self, place: Place, directory: str, *, base_only: bool) -> ExportedReplica:
        """Let a node that has scanned its replica of a place write it below a directory; see `ExportReplica`.

        Where the file is to stand for the base, whichever replica is taken, all that stand must hold the same.

        Raises:
            Unreachable: ``no_replica``.
            Failed: ``replicas_differ``.
        """
        if not base_only:
            self._check_agreed(place)
        failures = []
        for number, node in enumerate(self.subject.holders.get(place[0], ())):
            replica = self._replicas(node).get(place)
            if replica is None or replica.state is not PartState.DONE:
                why = self.failures.get(node, "not there" if replica is None else replica.error)
                failures.append(f"{node}: {why}")
                continue
            path = f"{directory}/p{place[0]:05d}-s{place[1]:02d}-{number}-{base_only:d}.parquet"
            wanted = ExportReplica(partition=place[0], sub_partition=place[1], path=path, base_only=base_only)
            try:
                return self.sources.nodes.export_replica(self._url(node), self.subject.address, self.jobs[node], wanted)
            except AnewError as error:
                failures.append(f"{node}: {error}")
        raise Unreachable(
            "no_replica",
            f"no node has a whole replica of partition {place[0]}, sub-partition {place[1]}",
            found="; ".join(failures) or "no node holds it",
            expected="one that can be read",
            hint="anew node list",
        )

    def _check_agreed(self, place: Place) -> None:
        """Raise unless all replicas of a place that were scanned hold the same rows.

        Raises:
            Failed: ``replicas_differ``.
        """
        scanned = {
            node: replica
            for node in self.subject.holders.get(place[0], ())
            if (replica := self._replicas(node).get(place)) is not None and replica.state is PartState.DONE
        }
        fingerprints = [_fingerprint(replica) for replica in scanned.values()]
        if any(found != fingerprints[0] for found in fingerprints[1:]):
            raise Failed(
                "replicas_differ",
                f"the replicas of partition {place[0]}, sub-partition {place[1]} differ: none can stand for the base",
                found=", ".join(f"{node}: {replica.rows} rows" for node, replica in sorted(scanned.items())),
                expected="the same rows on each node at one position",
                hint="anew store verify names the keys; drain the node that is wrong, and repair again",
            )

    @property
    def overtaken(self) -> bool:
        """Whether a replica stood beyond the position, or reads a feed that it does not name: it was made too early."""
        return any(
            replica.state is PartState.PAST_POSITION
            for node in self.jobs
            if (view := self._view(node)) is not None
            for replica in view.replicas
        )

    def result(self) -> Verification:
        """Steps 4 and 5."""
        subject, sources = self.subject, self.sources
        feeds = subject.store.feeds_with_schemas(subject.version.feeds)
        expectation = expectation_of(
            subject.version, subject.fabric, feeds, self.position, sources.deep_store, sources.log
        )
        expected = dict(expectation.fingerprints())
        found = {node: self._replicas(node) for node in subject.nodes}
        verdicts = [
            self._verdict(node, place, found.get(node, {}), expected[place], expectation)
            for place in expected
            for node in subject.holders.get(place[0], (_NOBODY,))
        ]
        differences = Differences(subject.store.key_schema)
        for index, verdict in enumerate(verdicts):
            if verdict.equal is False:
                place = (verdict.partition, verdict.sub_partition)
                buckets = frozenset(_fingerprint(found[verdict.node][place]).differing(expected[place]))
                scan = Scan(sources.nodes, self._url(verdict.node), subject.address, self.jobs[verdict.node], place)
                try:
                    differences.add(verdict.node, place, expectation.rows(place, buckets), scan.entries(buckets))
                except AnewError as error:
                    verdicts[index] = verdict.model_copy(update={"error": f"its keys were not compared: {error}"})
        return Verification(
            store=subject.store.name,
            version=subject.version.number,
            fabric=subject.fabric,
            position=self.position,
            equal=all(verdict.equal for verdict in verdicts),
            replicas=tuple(verdicts),
            expected=tuple(Expected.of(place, fingerprint) for place, fingerprint in expected.items()),
            differences=tuple(differences.named),
            difference_count=differences.count,
            error=verdict_error(subject.store.name, verdicts, differences.count),
        )

    def _verdict(
        self,
        node: str,
        place: Place,
        found: Mapping[Place, VerifiedReplica],
        expected: Fingerprint,
        expectation: Expectation,
    ) -> ReplicaVerdict:
        replica = found.get(place)
        if node in self.failures:
            return ReplicaVerdict.unverified(node, place, str(self.failures[node]))
        if replica is None:
            return ReplicaVerdict.unverified(node, place, "the node does not hold it")
        if replica.state is not PartState.DONE:
            is_damaged = replica.state is PartState.DAMAGED
            return ReplicaVerdict.unverified(
                node, place, f"{replica.state.value}: {replica.error}", is_damaged=is_damaged
            )
        at = expectation.position_of(place[0])
        if PositionMap({key: replica.position.get(key, -1) for key in at}) != at:
            return ReplicaVerdict.unverified(node, place, f"it was at another position: {replica.position.to_json()}")
        return ReplicaVerdict.of(node, place, _fingerprint(replica), expected)

    def _replicas(self, node: str) -> Mapping[Place, VerifiedReplica]:
        view = self._view(node)
        return {} if view is None else {(r.partition, r.sub_partition): r for r in view.replicas}

    def _view(self, node: str) -> VerifyView | None:
        """What the node says in the end; None when it does not answer."""
        following = self.views.get(node)
        try:
            return None if following is None else following.result()
        except AnewError as error:
            self.failures[node] = error
            return None

    def _stand(self, workers: ThreadPoolExecutor) -> None:
        """Let the replicas of all nodes stand; those that do not answer soon are done without, or all would wait."""
        asked = {node: workers.submit(self._begin, node) for node in self.subject.nodes}
        wait(asked.values(), _STAND_SECONDS)
        for node, standing in asked.items():
            try:
                self.jobs[node] = standing.result(timeout=0).job
            except TimeoutError:
                self.failures[node] = _late(node, VerifyStage.HELD)
            except AnewError as error:
                if error.code == "verification_running":
                    raise
                self.failures[node] = error

    def _begin(self, node: str) -> VerifyView:
        view = self.sources.nodes.begin_verify(self._url(node), self.subject.address)
        self.begun_jobs.append((node, view.job))
        return self._wait(node, view, VerifyStage.ASKED)

    def _follow(self, node: str) -> VerifyView:
        """Let a node's replicas go on to the position, and wait until all were scanned.

        Raises:
            AnewError: The node does not answer, or not in time.
        """
        aimed = self.sources.nodes.aim_verify(self._url(node), self.subject.address, self.jobs[node], self.position)
        return self._wait(node, aimed, VerifyStage.HELD, VerifyStage.REACHING, VerifyStage.SCANNING)

    def _wait(self, node: str, view: VerifyView, *before: VerifyStage) -> VerifyView:
        """The node's view once it is in none of these stages."""
        url, address = self._url(node), self.subject.address
        while view.stage in before:
            if self.over.is_set() or self.sources.clock_seconds() > self.deadline:
                raise _late(node, view.stage)
            seen = view.stage
            view = self.sources.nodes.verify_view(url, address, view.job, after=seen, wait_seconds=MAX_WAIT_SECONDS)
        return view

    def _keep(self) -> None:
        """Keep the nodes' checkpoints for as long as this round goes on."""
        while not self.over.wait(_KEEP_ALIVE_SECONDS):
            for node, job in self.jobs.copy().items():
                with suppress(AnewError):
                    self.sources.nodes.verify_view(self._url(node), self.subject.address, job)

    def _end_all(self) -> None:
        while self.begun_jobs:
            node, job = self.begun_jobs.pop()
            with suppress(AnewError):
                self.sources.nodes.end_verify(self._url(node), self.subject.address, job)

    def _url(self, node: str) -> str:
        url = self.subject.urls.get(node)
        if url is None:
            raise Unreachable("node_unreachable", f"nobody knows where {node} is", found=node, hint="anew node list")
        return url


def _late(node: str, stage: VerifyStage) -> Unreachable:
    return Unreachable(
        "node_unreachable",
        f"{node} was not done in time",
        found=stage.value,
        expected=VerifyStage.DONE.value,
        hint="is it busy or down? anew node list; or give it more time: --timeout",
    )


def _ends(subject: Subject, log: Log) -> PositionMap:
    """Where the log ends for each feed partition of the version, at most where the version stops."""
    ends = {}
    for feed, at in subject.feed_partitions():
        end = log.offsets(topic_partition(feed, at.partition)).end
        stop = stop_of(subject.version, at)
        ends[at] = max(end if stop is None else min(end, stop), start_of(subject.there.start, feed, at))
    return PositionMap(ends)


def _fingerprint(replica: VerifiedReplica) -> Fingerprint:
    buckets = replica.buckets
    if buckets is None or replica.rows is None or replica.tombstones is None:
        raise AssertionError("a replica that is done has its fingerprint")
    return Fingerprint(replica.rows, replica.tombstones, buckets.counts, buckets.sums)
