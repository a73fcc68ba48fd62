"""A store as a program sees it: get, get_many, scan, writer. A batch is of one version, whatever is swapped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeVar

from anew.api.node_http import Address, NodeClient, Seen
from anew.api.stores.node_wire import KeyResult, KeyState, ScanItem, ScanPage
from anew.api.stores.routing import RoutedVersion, Routing
from anew.api.waiting import wait_seconds
from anew.client.routing import RoutingCache
from anew.client.writer import Writer
from anew.codec.avro import AvroSchema, decode_datum, encode_datum, parse_schema
from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Failed, Refused, Unreachable
from anew.core.partitioning import partitioner_of
from anew.core.stores.store import newest_schema_id
from anew.log.interface import Log

_T = TypeVar("_T")
_RETRY_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_SUSPECT_SECONDS = 2.0
_LONGEST_SUSPECT_SECONDS = 30.0
_BATCH_KEYS = 2_000
_HOLD_SECONDS = 120
_MOVED = frozenset(
    {"not_here", "version_gone", "unknown_store", "other_store", "node_unreachable", "not_ready", "unknown_schema"}
)
"""Answers after which another replica, or newer routing, may do better."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value, when it was written (ms since the epoch; 0: by a push without times), and the version that held it."""

    value: Any
    written_at: int
    version: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """One record of a scan."""

    key: Any
    value: Any
    written_at: int


class _NodeFailed(Exception):
    """A node failed over a request: its block is bad, its memory is gone, or it is of another release."""

    def __init__(self, node: str, error: Failed) -> None:
        super().__init__(str(error))
        self.node, self.error = node, error


class Store:
    """Reads and writes of one store. Made by ``Cluster.store``; safe to use from several threads."""

    def __init__(
        self,
        routing: RoutingCache,
        nodes: NodeClient,
        open_log: Callable[[Routing], Log],
        clock_seconds: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = wait_seconds,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        """Use the cluster's connections.

        Args:
            routing: What is known of the store.
            nodes: How nodes are asked.
            open_log: How the log that a routing names is opened.
            clock_seconds: A monotonic clock.
            pause: Waits for so many seconds.
            new_id: Gives scans ids of their own, by which they let go of their version when they end; None: it is kept
                for some time longer.
        """
        self._routing = routing
        self._nodes = nodes
        self._open_log = open_log
        self._clock_seconds = clock_seconds
        self._pause = pause
        self._new_id = new_id
        self._schemas: dict[str, AvroSchema] = {}
        self._turn = 0
        self._suspect_until: dict[tuple[str, int | None], float] = {}
        self._silences: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The store's name."""
        return self._routing.get().name

    @property
    def key_schema(self) -> AvroSchema:
        """The key schema."""
        return self._schema(self._routing.get().key_schema)

    @property
    def value_schema(self) -> AvroSchema:
        """The newest value schema."""
        schemas = self._routing.get().schemas
        return self._schema(schemas[newest_schema_id(schemas)])

    def get(self, key: Any, *, version: int | None = None) -> Found | None:
        """The value of a key, or None.

        Args:
            key: A datum of the key schema.
            version: A version that is still kept; None: the current one.

        Raises:
            InvalidRequest: ``value_misfit``: the key does not fit the key schema.
            Refused: ``no_current_version``, ``version_gone``, ``reads_disabled``.
            Unreachable: No replica answered in time.
        """
        return self.get_many([key], version=version)[0]

    def get_many(self, keys: Sequence[Any], *, version: int | None = None) -> list[Found | None]:
        """The values of many keys in their order, all of one version.

        Raises:
            As `get`.
        """

        def attempt(routing: Routing, number: int, failed: Set[str]) -> list[Found | None]:
            key_schema = self._schema(routing.key_schema)
            results = self._gather(routing, number, failed, [encode_datum(key_schema, key) for key in keys])
            return [self._found(routing, number, result) for result in results]

        return self._retrying(attempt, version)

    def scan(self, *, version: int | None = None) -> Generator[Scanned]:
        """All records of one version, partition by partition, each in key order.

        A page that cannot be had from one replica is asked of the next; a swap in the middle changes nothing, and the
        version is kept as long as the scan goes on, and let go of when it ends or is broken off.

        Raises:
            As `get`.
        """
        number = self._retrying(lambda _routing, chosen, _failed: chosen, version)
        hold = None if self._new_id is None else self._new_id()
        try:
            yield from self._scan(number, hold)
        finally:
            if hold is not None:
                self._routing.release(number, hold)

    def _scan(self, number: int, hold: str | None) -> Iterator[Scanned]:
        config = self._version(self._routing.get(), number).config
        hold_again_at = self._clock_seconds()
        for unit in range(config.sub_partitions):
            place = divmod(unit, config.amplification_factor)
            after: bytes | None = None
            while True:
                if self._clock_seconds() >= hold_again_at:
                    self._routing.hold(number, _HOLD_SECONDS, hold)
                    hold_again_at = self._clock_seconds() + _HOLD_SECONDS / 2
                page = self._page(number, place, after)
                yield from (self._scanned(item) for item in page.items)
                if page.next_after is None:
                    break
                after = page.next_after

    def explain(self, key: Any, *, version: int | None = None) -> dict[str, Any]:
        """What every replica of a key's partition holds of it: stamp, origin, tombstone, base or feed."""
        routing = self._routing.refresh()
        encoded = encode_datum(self._schema(routing.key_schema), key)
        number = _number(routing, version)
        routed = self._version(routing, number)
        partition = partitioner_of(routed.config).of(encoded)
        address = Address(routing.name, routing.uid, number)
        replicas = []
        for node in routed.replicas.get(partition, ()):
            try:
                replicas.append({"node": node, **self._nodes.cell(routing.nodes[node], address, encoded)})
            except (AnewError, KeyError) as error:
                replicas.append({"node": node, "error": str(error)})
        return {"version": number, "partition": partition, "replicas": replicas}

    def writer(self) -> Writer:
        """A writer of nearline records; a context manager.

        Raises:
            Refused: ``not_hybrid``, ``writes_disabled``.
        """
        routing = self._routing.refresh()
        log = self._open_log(routing)
        try:
            return Writer(routing, log)
        except Refused:
            log.close()
            raise

    def _retrying(self, attempt: Callable[[Routing, int, Set[str]], _T], version: int | None) -> _T:
        """Try until it works or the time is over: all of it again with newer routing, so that versions never mix.

        A node that fails over the request says nothing of the request: another replica is asked in its stead. Each
        node is asked once; when all that are to be had have failed, the error is the last one's.
        """
        failed: set[str] = set()
        deadline, routing = self._clock_seconds() + _RETRY_SECONDS, self._routing.get()
        if version is not None and version not in routing.versions:
            # It may be younger than what is known here.
            routing = self._routing.refresh()
        while True:
            try:
                return attempt(routing, _number(routing, version), failed)
            except _NodeFailed as sick:
                if sick.node in failed or self._clock_seconds() > deadline:
                    raise sick.error from None
                failed.add(sick.node)
                continue
            except AnewError as error:
                gone = error.code == "version_gone" and version is not None
                if error.code not in _MOVED or gone or self._clock_seconds() > deadline:
                    raise
            self._pause(_PAUSE_SECONDS)
            routing = self._routing.refresh()

    def _gather(self, routing: Routing, number: int, failed: Set[str], keys: list[bytes]) -> list[KeyResult]:
        routed = self._version(routing, number)
        partitioner = partitioner_of(routed.config)
        partitions = [partitioner.of(key) for key in keys]
        by_node: dict[str, list[int]] = {}
        for index, partition in enumerate(partitions):
            by_node.setdefault(self._choose(routing, routed, partition, failed), []).append(index)
        results: dict[int, KeyResult] = {}
        for node, indices in by_node.items():
            for begin in range(0, len(indices), _BATCH_KEYS):
                part = indices[begin : begin + _BATCH_KEYS]
                asked = [(partitions[index], keys[index]) for index in part]
                results.update(zip(part, self._batch(routing, number, node, asked), strict=True))
        return [results[index] for index in range(len(keys))]

    def _batch(self, routing: Routing, number: int, node: str, asked: list[tuple[int, bytes]]) -> tuple[KeyResult, ...]:
        """The answers of one node for keys with their partitions."""
        address, keys = Address(routing.name, routing.uid, number), [key for _, key in asked]
        every = self._version(routing, number).replicas.keys()
        answer = self._ask(routing, node, every, lambda url: self._nodes.batch(url, address, keys))
        pairs = zip(asked, answer.results, strict=True)
        missing = {partition for (partition, _), result in pairs if result.state is KeyState.ELSEWHERE}
        if missing or answer.version != number:
            self._avoid(node, missing)
            raise Refused("not_here", f"{node} does not hold all that was asked of it", found=answer.version)
        return answer.results

    def _choose(self, routing: Routing, routed: RoutedVersion, partition: int, failed: Set[str]) -> str:
        """A replica of the partition: one that has not failed over this request, and not one that just failed others.

        Of two evils it asks who was not asked yet.
        """
        nodes = [node for node in routed.replicas.get(partition, ()) if node in routing.nodes]
        if not nodes:
            raise Unreachable("node_unreachable", f"no node holds partition {partition}", found=routed.replicas)
        now = self._clock_seconds()
        nodes = [node for node in nodes if node not in failed] or nodes
        well = [
            node
            for node in nodes
            if all(self._suspect_until.get((node, part), -math.inf) <= now for part in (None, partition))
        ]
        chosen = well if well else nodes
        return chosen[(partition + self._turn) % len(chosen)]

    def _ask(
        self, routing: Routing, node: str, partitions: Collection[int], request: Callable[[str], tuple[_T, Seen]]
    ) -> _T:
        """Ask a node; one that does not answer is avoided for a while, one that says not_here for these partitions.

        One that failed to answer is asked again as soon as there is nobody else.

        Raises:
            _NodeFailed: The node failed over the request.
        """
        try:
            answer, seen = request(routing.nodes[node])
        except Failed as error:
            self._avoid_silent(node)
            raise _NodeFailed(node, error) from error
        except AnewError as error:
            if isinstance(error, Unreachable):
                self._avoid_silent(node)
            elif error.code == "not_here":
                self._avoid(node, partitions)
            raise
        self._silences.pop(node, None)
        self._routing.notice(seen.current, seen.revision)
        return answer

    def _avoid_silent(self, node: str) -> None:
        """Ask others in the node's stead, longer each time: one that hangs costs a reader the time of a request."""
        silences = self._silences[node] = self._silences.get(node, 0) + 1
        self._avoid(node, (None,), backoff_seconds(silences - 1, _SUSPECT_SECONDS, _LONGEST_SUSPECT_SECONDS))

    def _avoid(self, node: str, partitions: Collection[int | None], seconds: float = _SUSPECT_SECONDS) -> None:
        """Ask others of these partitions for a while; None stands for all that the node holds."""
        self._turn += 1
        until = self._clock_seconds() + seconds
        self._suspect_until.update({(node, partition): until for partition in partitions})

    def _page(self, number: int, place: tuple[int, int], after: bytes | None) -> ScanPage:
        def attempt(routing: Routing, chosen: int, failed: Set[str]) -> ScanPage:
            node = self._choose(routing, self._version(routing, chosen), place[0], failed)
            address = Address(routing.name, routing.uid, chosen)
            return self._ask(routing, node, (place[0],), lambda url: self._nodes.page(url, address, place, after))

        return self._retrying(attempt, number)

    def _version(self, routing: Routing, number: int) -> RoutedVersion:
        routed = routing.versions.get(number)
        if routed is None:
            raise Refused(
                "version_gone",
                f"{routing.name} does not serve version {number}",
                found=number,
                expected=sorted(routing.versions),
                hint=f"anew store show {routing.name}",
            )
        return routed

    def _found(self, routing: Routing, number: int, result: KeyResult) -> Found | None:
        if result.state is KeyState.ABSENT:
            return None
        return Found(self._value(routing, result.schema_id, result.value), result.written_at_ms, number)

    def _scanned(self, item: ScanItem) -> Scanned:
        routing = self._routing.get()
        if item.schema_id not in routing.schemas:
            routing = self._routing.refresh()
        value = self._value(routing, item.schema_id, item.value)
        return Scanned(decode_datum(self._schema(routing.key_schema), item.key), value, item.written_at_ms)

    def _value(self, routing: Routing, schema_id: int, body: bytes) -> Any:
        """The value as the newest schema reads it.

        Raises:
            Unreachable: ``unknown_schema``: newer than what is known here (rule R21: wait).
        """
        if schema_id not in routing.schemas:
            raise Unreachable(
                "unknown_schema",
                f"a value of {routing.name} was written by a schema that is not known here yet",
                found=schema_id,
                expected=sorted(routing.schemas),
                hint="is the controller reachable? anew status",
            )
        newest = routing.schemas[newest_schema_id(routing.schemas)]
        return decode_datum(self._schema(routing.schemas[schema_id]), body, self._schema(newest))

    def _schema(self, text: str) -> AvroSchema:
        if text not in self._schemas:
            self._schemas[text] = parse_schema(text)
        return self._schemas[text]


def _number(routing: Routing, version: int | None) -> int:
    if version is not None:
        return version
    if routing.current == 0:
        raise Refused(
            "no_current_version",
            f"{routing.name} has no version yet in {routing.fabric}",
            found=0,
            expected="a version that serves",
            hint=f"anew push {routing.name} FILE --key …",
        )
    return routing.current
