"""The memory of every process during a repush, with 1 GB for Spark.

A process of its own runs the repushes, smallest first, so that its JVM begins with the limit. After each it says how
much memory every process held at most: its own, the JVM's, those of the Python workers.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anew.codec.compression import compressor
from anew.spark.session import session_for_queries, spark_session
from anew.spark.stores.build import Codecs, Place, build_repush
from anew.spark.stores.outputs import BaseTarget
from bench.machine import forget_peak, peak_rss_bytes
from bench.measuring import Bench, Claim, Measured, Repeats, timed
from bench.synthetic import KEY_BYTES, PARTITIONS, SEED, VALUE_BYTES, BenchStore, make_bench_store

_LIMIT = "1g"


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure repushes of so many records, one of each: memory, unlike time, wants no repetition."""
    stores = []
    for size in sizes:
        store = make_bench_store(folder / str(size), size)
        stores.append(folder / f"{size}.pickle")
        stores[-1].write_bytes(pickle.dumps(store))
    asked = [sys.executable, "-m", "bench.memory", *map(str, stores)]
    child = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True)
    told = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    figures = {"spark_driver_memory": _LIMIT, "key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES}
    found = []
    for size, one in zip(sizes, told, strict=True):
        written = {**figures, "written": one["written"]}
        found.append(Measured(size, {"repush": [one["seconds"]]}, one["peaks"], written))
        shutil.rmtree(folder / str(size))
    return found


def _repush_each(stores: Sequence[Path]) -> None:
    """The process whose memory counts, and that of its children."""
    with spark_session("local[2]", {"spark.driver.memory": _LIMIT}) as started:
        spark = session_for_queries(started)
        for path in stores:
            bench: BenchStore = pickle.loads(path.read_bytes())
            place = Place(bench.deep_store, bench.log, BaseTarget(bench.deep_store, "v2"))
            plan, codec, written = bench.plan("general", PARTITIONS), compressor("none"), list[int]()
            for process in _family():
                forget_peak(process)

            def build() -> None:
                built = build_repush(spark, plan, place, Codecs(codec, codec), bench.manifest, bench.feeds)  # noqa: B023  # called at once
                written.append(built.ledger.written.count)  # noqa: B023  # called at once

            took = timed(build)
            told: dict[str, Any] = {"seconds": took, "peaks": _peaks(), "written": written[0]}
            print(json.dumps(told), flush=True)


def _peaks() -> dict[str, float]:
    """The peak of each kind of process, bytes: of the Python workers the largest, and the sum of all."""
    peaks: dict[str, list[int]] = {"jvm": [], "driver": [], "worker": []}
    for process in _family():
        kind = "driver" if process == os.getpid() else "jvm" if _command(process).startswith("java") else "worker"
        peaks[kind].append(peak_rss_bytes(process))
    known = {f"{kind}_peak_bytes": float(max(found, default=0)) for kind, found in peaks.items()}
    return {**known, "sum_of_peaks_bytes": float(sum(sum(found) for found in peaks.values()))}


def _family() -> list[int]:
    """This process and all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        stat = entry / "stat"
        if entry.name.isdigit() and stat.exists():
            parents[int(entry.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _command(process: int) -> str:
    return Path(Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]).name


BENCHES = (
    Bench(
        "memory",
        f"peak memory of every process during a repush, general path, with spark.driver.memory={_LIMIT}",
        "records",
        (2_500_000, 5_000_000, 10_000_000),
        (1_000,),
        (Claim("all processes together, GiB", lambda found: found[-1].values["sum_of_peaks_bytes"] / 2**30),),
        run,
        SEED,
    ),
)

if __name__ == "__main__":
    _repush_each([Path(text) for text in sys.argv[1:]])
