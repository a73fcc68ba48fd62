"""How long after its acknowledgement a write can be read: the log, a node's process, and HTTP between.

One thread per feed partition appends, every 20 ms, what has become due: an open loop whose batches grow when the disk
is slow, and no write waits for a reader. The last record of each append is looked for until the node answers with
exactly it: all that are outstanding are asked for together, again and again. So a latency holds up to one such
question, some milliseconds, more than the write took. The clock is the machine's monotonic one, which processes share;
the reader is another process than the writers, so that they do not wait for one another's interpreter.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from anew.api.location import LogLocation
from anew.api.stores.node_wire import decode_answer, encode_keys
from anew.log.interface import Log, TopicPartition
from bench.measuring import Bench, Claim, Measured, Repeats
from bench.serving import STORE, ServingNode, make_served_store, serving_node, updates_of
from bench.synthetic import KEY_BYTES, SEED, VALUE_BYTES

_SECONDS, _QUICK_SECONDS = 5.0, 0.5
_QUICK_WRITES = 1_000
_TICK_SECONDS = 0.02
_POLL_SECONDS = 0.002
_IDLE_SECONDS = 0.05
_ASKED_AT_ONCE = 1_000
_PATIENCE_SECONDS = 30.0
P99 = "acknowledged → readable, p99 ms"
"""The value that the bench is about."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """A record whose way is followed: when it was acknowledged, in seconds."""

    key: bytes
    value: bytes
    acknowledged: float


@dataclass(frozen=True, slots=True)
class _Found:
    """One run: milliseconds from acknowledged to readable, and from due to acknowledged, of the samples."""

    fresh_ms: list[float]
    append_ms: list[float]
    written_per_second: float


def run(folder: Path, sizes: Sequence[int], repeats: Repeats, log: LogLocation | None = None) -> list[Measured]:
    """Measure at so many writes per second, on one node; None: through an embedded log."""
    quick = max(sizes) <= _QUICK_WRITES
    seconds = _QUICK_SECONDS if quick else _SECONDS
    keys = max(2 * int(max(sizes) * seconds), 1_000)
    store = make_served_store(folder / "store", keys, log)
    with serving_node(store) as node, _reader(node.port) as reading:
        found = [_measure(_Run(node, reading, size, seconds), repeats) for size in sizes]
    shutil.rmtree(folder / "store")
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """What takes part in a run, how many writes per second, and for how long."""

    node: ServingNode
    reading: Connection
    rate: int
    seconds: float


def _measure(run: _Run, repeats: Repeats) -> Measured:
    for number in range(repeats.warm_ups):
        _once(run, SEED + number)
    processor, began = run.node.processor_seconds(), time.monotonic()
    runs = [_once(run, SEED + repeats.warm_ups + number) for number in range(repeats.repetitions)]
    share = (run.node.processor_seconds() - processor) / (time.monotonic() - began)

    def median(kind: str, quantile: float) -> float:
        return round(float(np.median([np.quantile(getattr(found, kind), quantile) for found in runs])), 3)

    values = {
        "acknowledged → readable, p50 ms": median("fresh_ms", 0.5),
        P99: median("fresh_ms", 0.99),
        "due → acknowledged, p50 ms": median("append_ms", 0.5),
        "due → acknowledged, p99 ms": median("append_ms", 0.99),
    }
    figures = {
        "written/s": round(float(np.median([found.written_per_second for found in runs]))),
        "samples": sum(len(found.fresh_ms) for found in runs),
        "seconds of a run": run.seconds,
        "node's share of a core": round(share, 2),
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "partitions": run.node.store.feed.partitions,
    }
    return Measured(run.rate, values=values, figures=figures)


def _once(run: _Run, seed: int) -> _Found:
    random = np.random.default_rng(seed)
    store = run.node.store
    # No key twice, so that what is looked for is not overwritten before it is found.
    chosen = random.permutation(len(store.keys))[: int(run.rate * run.seconds)]
    parts = updates_of(store, chosen, random)
    lock, begin = threading.Lock(), time.monotonic() + _TICK_SECONDS
    with contextlib.closing(store.open_log()) as log:

        def write(partition: int) -> list[float]:
            times: list[float] = []
            for sample, append_ms in _written(log, store.topic(partition), parts[partition], (begin, run.seconds)):
                times.append(append_ms)
                with lock:
                    run.reading.send(sample)
            return times

        with ThreadPoolExecutor(len(parts)) as pool:
            appended = [ms for times in pool.map(write, parts) for ms in times]
    took = time.monotonic() - begin
    run.reading.send(None)
    if not run.reading.poll(_PATIENCE_SECONDS):
        raise AssertionError("acknowledged writes were not readable in time")
    fresh: list[float] = run.reading.recv()
    if len(fresh) != len(appended):
        raise AssertionError("an acknowledged write was lost")
    return _Found(fresh, appended, len(chosen) / took)


def _written(
    log: Log, at: TopicPartition, records: pa.RecordBatch, when: tuple[float, float]
) -> Iterator[tuple[_Sample, float]]:
    """Append records at an even pace, ``when`` is begin and seconds; each append's last, and ms since it was due."""
    begin, seconds = when
    pause, done, count = threading.Event(), 0, records.num_rows
    while done < count:
        pause.wait(_TICK_SECONDS)
        due = min(count, int((time.monotonic() - begin) / seconds * count))
        if due <= done:
            continue
        log.append(at, records.slice(done, due - done))
        acknowledged = time.monotonic()
        last = due - 1
        sample = _Sample(records.column("key")[last].as_py(), records.column("value")[last].as_py(), acknowledged)
        yield sample, (acknowledged - begin - last / count * seconds) * 1000
        done = due


@contextmanager
def _reader(port: int) -> Iterator[Connection]:
    """A process that takes samples, looks for them, and, asked with None, tells the milliseconds of each."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_look_for, args=(theirs, port), daemon=True)
    process.start()
    try:
        ours.recv()  # it has begun
        yield ours
    finally:
        process.terminate()
        process.join()


def _look_for(samples: Connection, port: int) -> None:
    outstanding: dict[bytes, _Sample] = {}
    took_ms: list[float] = []
    is_last = False
    samples.send(None)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE_SECONDS) as client:
        while True:
            while samples.poll(_POLL_SECONDS if outstanding else _IDLE_SECONDS):
                sample: _Sample | None = samples.recv()
                if sample is None:
                    is_last = True
                    break
                outstanding[sample.key] = sample
                if len(outstanding) >= _ASKED_AT_ONCE:
                    break
            took_ms += _found_of(client, outstanding) if outstanding else []
            if is_last and not outstanding:
                samples.send(took_ms)
                took_ms, is_last = [], False


def _found_of(client: httpx.Client, outstanding: dict[bytes, _Sample]) -> list[float]:
    """Ask for the outstanding ones once; takes those out that are readable."""
    keys = list(outstanding)
    answer = client.post(f"/v1/stores/{STORE}/versions/current/keys:batch", content=encode_keys(keys))
    answer.raise_for_status()
    now = time.monotonic()
    results = decode_answer(answer.content).results
    found = [key for key, result in zip(keys, results, strict=True) if result.value == outstanding[key].value]
    return [(now - outstanding.pop(key).acknowledged) * 1000 for key in found]


BENCHES = (
    Bench(
        "freshness",
        "acknowledged write → readable over HTTP on a node's process, at a steady rate of writes",
        "writes/s",
        (2_500, 5_000, 10_000),
        (250, 500),
        (Claim(P99, lambda found: found[-1].values[P99], most=150.0),),
        run,
        SEED,
    ),
)
