"""A node in a process of its own, as a cluster runs it, and a controller that says what a bench wants of it.

The controller is the two routes that a node asks, over HTTP, so that the node's process is `run_node`, unchanged.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from anew.api.location import LogLocation
from anew.api.models import DesiredState, NodeReport
from anew.api.stores.replicas import DesiredStore, DesiredVersion, ReplicaState
from anew.core.arrow import join_binary, take
from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.partition import XxHash64Partitioner
from anew.deepstore.open import open_deep_store
from anew.log.interface import APPEND_RECORDS, Log, TopicPartition, TopicSpec
from anew.log.open import open_log
from anew.node.process import NodeSettings, run_node
from anew.runtime.clock import new_id
from anew.segments.layout import manifest_path
from anew.segments.manifest import Manifest
from anew.segments.provenfile import read_proven
from anew.testing.builders import FABRIC, ORIGIN, a_feed
from bench.synthetic import (
    KEY_BYTES,
    SEED,
    VALUE_BYTES,
    bench_config,
    partitions_for,
    random_bytes,
    taken,
    write_base,
)

STORE, UID = "flights", "uid-flights"
PREFIX_BYTES = 16
"""So many bytes at the start of a value stay the same whatever is written: by them an answer is checked."""
PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.002
_QUIET_SECONDS, _QUIET_SHARE = 0.5, 0.1
_APPENDED_AT_ONCE = 50_000
_NODE = "n1"


def now_ms() -> int:
    """The time in ms since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ServedStore:
    """A store with one base and one feed, and desired states of it.

    Attributes:
        log: Where the feed is.
        keys: All keys, binary of shape (n,).
        values: Their values in the base.
    """

    folder: Path
    log: LogLocation
    manifest: Manifest
    feed: Feed
    keys: pa.BinaryArray
    values: pa.BinaryArray

    def open_log(self, *, durable: bool = True) -> Log:
        """The log; Kafka is as durable as its topics are."""
        return open_log(self.log, clock=now_ms, durable=durable)

    def ends(self) -> PositionMap:
        """Where the feed ends now."""
        with contextlib.closing(self.open_log()) as log:
            return PositionMap({at: log.offsets(self.topic(at.partition)).end for at in self.feed.feed_partitions()})

    def topic(self, partition: int) -> TopicPartition:
        """A partition of the feed's topic."""
        return TopicPartition(self.feed.topic, self.feed.topic_uid, partition)

    def version(self, number: int, start: PositionMap) -> DesiredVersion:
        """A version with the base, that applies the feed from a position."""
        return DesiredVersion(
            number=number,
            config=self.manifest.config,
            feeds=(self.feed.id,),
            start=start,
            stop=None,
            ttl_floor_ms=0,
            tombstone_floor_ms=0,
            manifest=self.manifest.ref(manifest_path("v1")),
            partitions=tuple(range(self.feed.partitions)),
        )

    def desired(self, revision: int, current: int, versions: Sequence[DesiredVersion]) -> DesiredState:
        """A desired state: these versions, one of them current."""
        store = DesiredStore(
            uid=UID,
            name=STORE,
            revision=revision,
            current=current,
            key_schema=self.manifest.key_schema,
            schemas=self.manifest.schemas,
            feeds=(self.feed,),
            reads=True,
            versions=tuple(versions),
        )
        return DesiredState(
            revision=revision,
            fabric=FABRIC,
            log=self.log,
            deep_store=str(self.folder / "deep"),
            stores=(store,),
        )


def make_served_store(
    folder: Path, records: int, log: LogLocation | None = None, partitions: int | None = None
) -> ServedStore:
    """Make a base of so many records below a fresh folder, and an empty feed with as many partitions as the base.

    Args:
        folder: It is made.
        records: How many the base has.
        log: Where the feed is to be; None: in an embedded log below the folder.
        partitions: How many; None: as fits the records.
    """
    folder.mkdir()
    partitions = partitions_for(records) if partitions is None else partitions
    random = np.random.default_rng(SEED)
    keys = random_bytes(random, records, KEY_BYTES)
    deep_store = open_deep_store(str(folder / "deep"))
    manifest = write_base(deep_store, keys, random, bench_config(partitions))
    location = LogLocation(kind="embedded", address=str(folder / "log")) if log is None else log
    with contextlib.closing(open_log(location, clock=now_ms)) as opened:
        # A name of its own: stores of several sizes may share brokers.
        made = opened.create_topic(TopicSpec(f"{STORE}-{new_id()}_rt", new_id(), partitions))
    feed = a_feed(STORE, partitions=partitions, topic=made.name, topic_uid=made.uid)
    rows = pa.Table.from_batches(
        batch.select(["key", "value"]) for file in manifest.files for batch in read_proven(deep_store, file)
    ).combine_chunks()
    columns: list[Any] = [rows.column(name).chunk(0) for name in ("key", "value")]
    return ServedStore(folder, location, manifest, feed, *columns)


def updates_of(
    store: ServedStore, chosen: npt.NDArray[np.int64], random: np.random.Generator
) -> dict[int, pa.RecordBatch]:
    """Records to append, by feed partition: the chosen keys, each with a fresh value that begins as the base's does."""
    count, keys = len(chosen), taken(store.keys, chosen)
    prefixes: Any = pc.binary_slice(taken(store.values, chosen), 0, PREFIX_BYTES)
    values = join_binary(prefixes, random_bytes(random, count, VALUE_BYTES - PREFIX_BYTES))
    columns: list[Any] = [
        pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(ORIGIN, pa.binary()), count),
        keys,
        pa.array(np.ones(count, np.int32)),
        values,
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS)
    places = XxHash64Partitioner(store.feed.partitions).of_all(keys)
    parts = {partition: (places == partition).nonzero()[0] for partition in range(store.feed.partitions)}
    return {partition: take(records, mine) for partition, mine in parts.items() if mine.size}


def append_updates(store: ServedStore, log: Log, count: int, random: np.random.Generator) -> None:
    """Append so many updates of random keys."""
    for first in range(0, count, _APPENDED_AT_ONCE):
        chosen = random.integers(0, len(store.keys), min(_APPENDED_AT_ONCE, count - first))
        for partition, records in updates_of(store, chosen, random).items():
            log.append(store.topic(partition), records)


@dataclass
class _Wishes:
    """What the controller says and was told."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    state: DesiredState | None = None
    report: NodeReport | None = None

    def newer_than(self, revision: int) -> DesiredState | None:
        """The desired state, when it is newer."""
        return self.state if self.state is not None and self.state.revision > revision else None


class ServingNode:
    """A node's process and its controller; see `serving_node`."""

    def __init__(self, store: ServedStore, wishes: _Wishes, settings: NodeSettings, pid: int) -> None:
        self.store = store
        self.port, self.pid = settings.port, pid
        self._wishes = wishes
        self._revision = 0
        self._versions: dict[int, DesiredVersion] = {}
        self._current = self._newest = 0

    def add_version(self) -> int:
        """Want one more version, whose base is loaded and whose feed begins where it ends now; its number."""
        number = self._newest = self._newest + 1
        self._versions[number] = self.store.version(number, self.store.ends())
        self._want()
        return number

    def swap_to(self, number: int) -> None:
        """Want a version as the current one, and no other."""
        self._current = number
        self.drop_others()

    def drop_others(self) -> None:
        """Want no version but the current one."""
        self._versions = {self._current: self._versions[self._current]}
        self._want()

    def is_serving(self, number: int) -> bool:
        """Whether all replicas of a version are loaded and applied."""
        report = self._wishes.report
        replicas = [] if report is None else [r for r in report.replicas if r.version == number]
        applying = [r for r in replicas if r.state is ReplicaState.APPLYING]
        return len(applying) == len(replicas) == self.store.feed.partitions

    def position(self) -> PositionMap:
        """How far the current version's replicas were when the node reported last."""
        report = self._wishes.report
        replicas = () if report is None else report.replicas
        found: dict[FeedPartition, int] = {}
        for replica in replicas:
            if replica.version == self._current:
                found.update(replica.position.items())
        return PositionMap(found)

    def processor_seconds(self) -> float:
        """Of the node's process, without its loader's."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def await_quiet(self) -> None:
        """Wait until the node holds the current version alone and does nothing more for it."""

        def is_alone() -> bool:
            report = self._wishes.report
            return report is not None and {replica.version for replica in report.replicas} == {self._current}

        def is_quiet() -> bool:
            before = self.processor_seconds()
            threading.Event().wait(_QUIET_SECONDS)
            return self.processor_seconds() - before < _QUIET_SHARE * _QUIET_SECONDS

        wait_until(is_alone)
        wait_until(is_quiet)

    def client(self) -> httpx.Client:
        """A client of the node."""
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10.0)

    def _want(self) -> None:
        with self._wishes.changed:
            self._revision += 1
            self._wishes.state = self.store.desired(self._revision, self._current, list(self._versions.values()))
            self._wishes.changed.notify_all()


def run_quiet_node(settings: NodeSettings) -> None:
    """A node's process: `run_node`, without what it logs below errors."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    run_node(settings)


@contextmanager
def serving_node(store: ServedStore) -> Iterator[ServingNode]:
    """A node that serves version 1 of a store; it ends with the block."""
    wishes = _Wishes()
    with _controller(wishes) as url:
        settings = NodeSettings(_NODE, FABRIC, store.folder / "node", url, "127.0.0.1", _free_port(), now_ms)
        process = multiprocessing.get_context("spawn").Process(target=run_quiet_node, args=(settings,))
        process.start()
        try:
            assert process.pid is not None
            node = ServingNode(store, wishes, settings, process.pid)
            node.swap_to(node.add_version())
            wait_until(lambda: node.is_serving(1))
            yield node
        finally:
            process.terminate()
            process.join(PATIENCE_SECONDS)
            process.kill()
            process.join()
            process.close()


def wait_until(
    condition: Callable[[], bool], patience_seconds: float = PATIENCE_SECONDS, pause_seconds: float = _POLL_SECONDS
) -> None:
    """Look again and again until something is so.

    Raises:
        TimeoutError: It was not in time.
    """
    deadline, pause = time.monotonic() + patience_seconds, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience_seconds} s")
        pause.wait(pause_seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_request: Any) -> None:
        """Say nothing: a node that ends leaves its connections as they are."""


@contextmanager
def _controller(wishes: _Wishes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            after, wait_seconds = int(query["after"]), float(query["wait_seconds"])
            with wishes.changed:
                wishes.changed.wait_for(lambda: wishes.newer_than(after) is not None, wait_seconds)
                state = wishes.newer_than(after)
            self._answer(b"" if state is None else state.model_dump_json().encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            wishes.report = NodeReport.model_validate_json(body)
            self._answer(b"")

        def log_message(self, *_arguments: Any) -> None:
            """Say nothing."""

        def _answer(self, body: bytes) -> None:
            self.send_response(200 if body else 204)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
