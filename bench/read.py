"""Reads over HTTP from one node's process: idle, while it loads versions and applies writes, and during a swap.

The generator is a compiled program (`loadgen.c`) that asks at a steady rate; a latency counts from when the request was
due, so that a stall cannot hide itself by slowing the generator down. It looks at every answer: the status, and the
bytes by which a key's values are told from others'. Generator, node, loader and writer share the machine's cores; what
generator and node took is in the figures. Beside it, in a closed loop: as many gets as 16 connections make, and
get_many of 100 keys over 4.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from anew.api.stores.node_wire import decode_answer, encode_keys
from anew.core.arrow import bytes_list
from bench.loadgen import Answered, Load, compiled, finished, start_load, write_asked
from bench.measuring import Bench, Claim, Measured, Repeats
from bench.serving import (
    PREFIX_BYTES,
    STORE,
    ServedStore,
    ServingNode,
    make_served_store,
    serving_node,
    updates_of,
    wait_until,
)
from bench.synthetic import KEY_BYTES, SEED, VALUE_BYTES, taken

WRITES_PER_SECOND = 20_000
_KEYS, _QUICK_KEYS = 1_000_000, 4_000
_QUICK_RATE = 1_000
_ASKED_KEYS, _ASKED_BATCHES, _BATCH_KEYS = 20_000, 200, 100
_PACED_CONNECTIONS, _CLOSED_CONNECTIONS, _BATCH_CONNECTIONS = 32, 16, 4
_TICK_SECONDS = 0.05
_BUNDLES = 20
_PATH = f"/v1/stores/{STORE}/versions/current"


@dataclass(frozen=True, slots=True)
class _Bed:
    """What is measured and with what; ``seconds`` is how long the short phases take, the one of loading twice that."""

    node: ServingNode
    program: Path
    gets: Path
    batches: Path
    seconds: float

    def ask(self, load: Load) -> Answered:
        """Run the generator to its end."""
        return finished(start_load(self.program, self.node.port, load))


@dataclass(slots=True)
class _Phases:
    """What was answered in each phase, one per repetition, and the node's processor seconds per second there."""

    answered: dict[str, list[Answered]] = field(default_factory=dict)
    node_share: dict[str, list[float]] = field(default_factory=dict)
    loads: int = 0
    writes: int = 0


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many requests per second.

    Raises:
        InvalidRequest: ``no_compiler``.
    """
    quick = max(sizes) <= _QUICK_RATE
    folder.mkdir(exist_ok=True)
    program = compiled(folder)
    store = make_served_store(folder / "store", _QUICK_KEYS if quick else _KEYS)
    gets, batches = _write_gets(store, folder / "gets"), _write_batches(store, folder / "batches")
    with serving_node(store) as node:
        bed = _Bed(node, program, gets, batches, 0.2 if quick else 1.0)
        found = [_measure(bed, size, repeats) for size in sizes]
        _check_batch(node)
    shutil.rmtree(folder / "store")
    for path in (program, gets, batches):
        path.unlink()
    return found


def _write_gets(store: ServedStore, path: Path) -> Path:
    chosen = np.random.default_rng(SEED).integers(0, len(store.keys), _ASKED_KEYS)
    keys, values = bytes_list(taken(store.keys, chosen)), bytes_list(taken(store.values, chosen))
    lines = (f"GET {_PATH}/keys/{base64.urlsafe_b64encode(key).decode().rstrip('=')} HTTP/1.1" for key in keys)
    requests = (f"{line}\r\nhost: localhost\r\n\r\n".encode() for line in lines)
    return write_asked(path, zip(requests, (value[:PREFIX_BYTES] for value in values), strict=True))


def _write_batches(store: ServedStore, path: Path) -> Path:
    random = np.random.default_rng(SEED)
    entries = []
    for _ in range(_ASKED_BATCHES):
        chosen = random.integers(0, len(store.keys), _BATCH_KEYS)
        body = encode_keys(bytes_list(taken(store.keys, chosen)))
        head = f"POST {_PATH}/keys:batch HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        entries.append((head.encode() + body, b""))
    return write_asked(path, entries)


def _measure(bed: _Bed, rate: int, repeats: Repeats) -> Measured:
    for _ in range(repeats.warm_ups):
        # The blocks that are read most come into the cache; the other phases have nothing to get warm.
        bed.ask(Load(_PACED_CONNECTIONS, rate, bed.seconds, bed.gets))
    phases = _Phases()
    for _ in range(repeats.repetitions):
        _all_phases(bed, rate, phases)
    every = [answered for found in phases.answered.values() for answered in found]
    values: dict[str, float] = {}
    for name in ("idle", "loading", "swap", "get_many of 100"):
        values[f"{name}, p50 ms"] = _median(phases, name, lambda found: found.p50_us / 1000)
        values[f"{name}, p99 ms"] = _median(phases, name, lambda found: found.p99_us / 1000)
    values["closed loop, gets/s"] = _median(phases, "closed loop", lambda found: found.rate)
    values["get_many of 100, keys/s"] = _median(phases, "get_many of 100", lambda found: found.rate * _BATCH_KEYS)
    seconds = sum(found.seconds for found in every)
    figures = {
        "failed": sum(found.failed for found in every),
        "wrong": sum(found.wrong for found in every),
        "not asked, for the node was behind": sum(found.unasked for found in every),
        "first failure": next((found.first_failure for found in every if found.first_failure), "none"),
        "answers": sum(found.requests for found in every),
        "longest ms": round(max(found.max_us for found in every) / 1000, 1),
        "versions loaded": phases.loads,
        "writes": phases.writes,
        "generator's share of a core": round(sum(found.processor_seconds for found in every) / seconds, 2),
        **{f"node's share, {name}": round(float(np.median(s)), 2) for name, s in phases.node_share.items()},
        "connections": _PACED_CONNECTIONS,
        "keys": len(bed.node.store.keys),
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
    }
    return Measured(rate, values=values, figures=figures)


def _median(phases: _Phases, name: str, of: Callable[[Answered], float]) -> float:
    return round(float(np.median([of(found) for found in phases.answered[name]])), 3)


def _all_phases(bed: _Bed, rate: int, phases: _Phases) -> None:
    node = bed.node
    paced = Load(_PACED_CONNECTIONS, rate, bed.seconds, bed.gets)
    # The repetition before left a version to be dropped, and cells to be compacted.
    node.await_quiet()
    _note(phases, "idle", node, lambda: bed.ask(paced))
    _note(phases, "closed loop", node, lambda: bed.ask(Load(_CLOSED_CONNECTIONS, 0, bed.seconds / 2, bed.gets)))
    batches = Load(_BATCH_CONNECTIONS, 0, bed.seconds / 2, bed.batches)
    _note(phases, "get_many of 100", node, lambda: bed.ask(batches))
    with _writing(node.store, phases):
        with _loading(node, phases):
            longer = Load(_PACED_CONNECTIONS, rate, 2 * bed.seconds, bed.gets)
            _note(phases, "loading", node, lambda: bed.ask(longer))
        number = node.add_version()
        wait_until(lambda: node.is_serving(number))
        _note(phases, "swap", node, lambda: _swapped(bed, paced, number))
    ends = node.store.ends()
    wait_until(lambda: all(node.position().get(at, 0) >= end for at, end in ends.items()))


def _note(phases: _Phases, name: str, node: ServingNode, work: Callable[[], Answered]) -> None:
    before = node.processor_seconds()
    found = work()
    phases.answered.setdefault(name, []).append(found)
    phases.node_share.setdefault(name, []).append((node.processor_seconds() - before) / found.seconds)


def _swapped(bed: _Bed, load: Load, number: int) -> Answered:
    """Another version becomes the current one in the middle."""
    running = start_load(bed.program, bed.node.port, load)
    threading.Event().wait(load.seconds / 2)
    bed.node.swap_to(number)
    return finished(running)


@contextmanager
def _writing(store: ServedStore, phases: _Phases) -> Iterator[None]:
    """Append `WRITES_PER_SECOND` updates while the block runs; what is due late is appended late."""
    random, size = np.random.default_rng(SEED), int(WRITES_PER_SECOND * _TICK_SECONDS)
    bundles = [updates_of(store, random.integers(0, len(store.keys), size), random) for _ in range(_BUNDLES)]
    ended, begin = threading.Event(), time.monotonic()

    def write() -> None:
        number = 0
        with contextlib.closing(store.open_log()) as log:
            while not ended.wait(max(0.0, begin + number * _TICK_SECONDS - time.monotonic())):
                for partition, records in bundles[number % _BUNDLES].items():
                    log.append(store.topic(partition), records)
                    phases.writes += records.num_rows
                number += 1

    with _in_thread(write, ended):
        yield


@contextmanager
def _loading(node: ServingNode, phases: _Phases) -> Iterator[None]:
    """Load one version after another while the block runs; each goes again once it serves."""
    ended = threading.Event()

    def load_one() -> None:
        number = node.add_version()
        wait_until(lambda: ended.is_set() or node.is_serving(number))
        phases.loads += node.is_serving(number)
        node.drop_others()

    def load() -> None:
        while not ended.is_set():
            load_one()

    with _in_thread(load, ended):
        yield


@contextmanager
def _in_thread(work: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    failed: list[BaseException] = []

    def run_it() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # raised where the block ends
            failed.append(error)

    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]


def _check_batch(node: ServingNode) -> None:
    """A get_many answers with the values of its keys, in their order."""
    store = node.store
    keys, values = (bytes_list(column.slice(0, _BATCH_KEYS)) for column in (store.keys, store.values))
    with node.client() as client:
        answer = client.post(f"{_PATH}/keys:batch", content=encode_keys(keys))
    results = decode_answer(answer.content).results
    if [result.value[:PREFIX_BYTES] for result in results] != [value[:PREFIX_BYTES] for value in values]:
        raise AssertionError("a batch was answered with other values")


def _worst(name: str) -> Callable[[Sequence[Measured]], float]:
    return lambda found: float(found[-1].values[f"{name}, p99 ms"])


def _failed(found: Sequence[Measured]) -> float:
    """Failed and wrong answers, over all sizes and phases."""
    return float(sum(size.figures["failed"] + size.figures["wrong"] for size in found))


BENCHES = (
    Bench(
        "read",
        "gets over HTTP from one node: idle, while it loads versions and applies 20,000 writes/s, during a swap",
        "requests/s",
        (2_500, 5_000, 10_000),
        (250, 500),
        (
            Claim("idle, p99 ms", _worst("idle"), most=2.0),
            Claim("while loading and applying, p99 ms", _worst("loading"), most=5.0),
            Claim("around a swap while applying, p99 ms", _worst("swap"), most=5.0),
            Claim("failed or wrong answers", _failed, most=0.0),
        ),
        run,
        SEED,
    ),
)
