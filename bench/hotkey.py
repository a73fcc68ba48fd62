"""The memory of the task that de-duplicates, while one key is updated again and again.

A fresh process does what Spark's Python worker does: it takes the shuffle's batches from a stream and runs the merge
task on them. It says itself how much memory it held at most, before its first batch and at the end.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anew.codec.compression import compressor
from anew.core.arrow import replaced
from anew.core.hashing import row_hashes
from anew.core.rows import ROWS
from anew.spark.stores.frames import Kind, as_scanned
from anew.spark.stores.mergewrite import MergeTask, _Merge
from anew.spark.stores.outputs import BaseTarget
from anew.spark.stores.shuffle import Destination, packed
from anew.spark.stores.sources import Sources
from anew.testing.builders import ORIGIN, a_config, a_feed
from bench.machine import peak_rss_bytes
from bench.measuring import Bench, Claim, Measured, Repeats, timed
from bench.synthetic import SEED, VALUE_BYTES, random_bytes

_BATCH_ROWS = 10_000


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many updates of one key, each in a fresh process."""
    found = []
    for size in sizes:
        told = [_child(folder, size) for _ in range(repeats.repetitions)]
        values = {
            "peak_bytes": statistics.median(one["peak_bytes"] for one in told),
            "peak_above_start_bytes": statistics.median(one["peak_bytes"] - one["before_bytes"] for one in told),
        }
        seconds = {"task": [one["milliseconds"] / 1_000 for one in told]}
        found.append(Measured(size, seconds, values, {"value_bytes": VALUE_BYTES}))
    return found


def _child(folder: Path, updates: int) -> dict[str, int]:
    arguments = [sys.executable, "-m", "bench.hotkey", str(folder / f"{updates}-{os.urandom(4).hex()}")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        batches = _blocks(updates)
        first = next(batches)
        sink: Any = child.stdin
        with pa.ipc.new_stream(sink, first.schema) as stream:
            stream.write_batch(first)
            for batch in batches:
                stream.write_batch(batch)
        child.stdin.close()
        answer: dict[str, int] = json.loads(child.stdout.read())
    if answer["read"] != updates or answer["written"] != 1:
        raise AssertionError(f"the task did something else: {answer}")
    return answer


def _blocks(updates: int) -> Iterator[pa.RecordBatch]:
    """What the shuffle brings to the task: all updates of one key, in blocks."""
    random = np.random.default_rng(SEED)
    destination = Destination.of(a_config(partitions=1).frozen, None, runs=1)
    scans = (_updates(first, min(_BATCH_ROWS, updates - first), random) for first in range(0, updates, _BATCH_ROWS))
    return packed(scans, destination)


def _updates(first: int, count: int, random: np.random.Generator) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "key": [b"hot"] * count,
        "value": random_bytes(random, count, VALUE_BYTES),
        "schema_id": np.ones(count, np.int32),
        "time": np.arange(first, first + count) + 1,
        "origin": [ORIGIN] * count,
        "append_timed": [True] * count,
        "incarnation": np.ones(count, np.int32),
        "feed_partition": np.zeros(count, np.int32),
        "offset": np.arange(first, first + count),
        "hash": np.zeros(count, np.int64),
    }
    rows = pa.RecordBatch.from_pydict(columns, schema=ROWS)
    return as_scanned(replaced(rows, "hash", pa.array(row_hashes(rows).view(np.int64))), Kind.RAW)


def _worker(deep_store: str) -> None:
    """The process that is measured."""
    plain = compressor("none")
    config = a_config(partitions=1).frozen
    task = MergeTask(BaseTarget(deep_store, "v2"), config, plain, plain, Sources.of([a_feed()]))
    reports = []
    source: Any = sys.stdin.buffer
    with pa.ipc.open_stream(source) as batches:
        before = peak_rss_bytes(os.getpid())
        took = timed(lambda: reports.append(_Merge(task, 0, "t0").run(iter(batches))))
    ledger = reports[0].ledger
    told = {
        "milliseconds": round(took * 1_000),
        "before_bytes": before,
        "peak_bytes": peak_rss_bytes(os.getpid()),
        "read": ledger.read.count,
        "written": ledger.written.count,
    }
    print(json.dumps(told))


BENCHES = (
    Bench(
        "hotkey",
        "peak memory of the task that de-duplicates, a fresh worker for each size: updates of one key",
        "updates",
        (100_000, 300_000, 1_000_000),
        (1_000, 3_000),
        (
            Claim(
                "peak at the largest ÷ at the smallest size",
                lambda found: found[-1].values["peak_bytes"] / found[0].values["peak_bytes"],
                most=1.1,
            ),
        ),
        run,
        SEED,
    ),
)

if __name__ == "__main__":
    _worker(sys.argv[1])
