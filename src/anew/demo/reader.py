"""The demo's reader process: reads all the time until it is told to stop, and checks what it gets.

``python -m anew.demo.reader BASE``. It reads flights that nobody writes to, so that it knows each answer; it stops when
its standard input closes and prints its account as JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

from anew.core.errors import AnewError
from anew.demo.flights import flights
from anew.demo.writer import STORE, is_touched, stop_with_input
from anew.runtime.connect import connect

_KEYS_PER_BATCH = 20
_SAMPLE = 20_000
_BATCH_SECONDS = 0.1
"""A batch begins so often, if the one before has been answered: what is rebuilt meanwhile needs the processors too."""
_STRIDE = 7_919
"""A prime, so that every flight of the sample has its turn."""


def main(arguments: list[str]) -> int:
    """Read until standard input closes."""
    untouched = [flight for index, flight in enumerate(flights(Path(arguments[0]))) if not is_touched(index)]
    rows = [
        ({**key, "time_hour": datetime.fromisoformat(key["time_hour"])}, value) for key, value in untouched[:_SAMPLE]
    ]
    stopped = threading.Event()
    stop_with_input(stopped)
    places = itertools.count()
    batches = keys = failed = mixed = wrong = 0
    versions: list[int] = []
    slowest = 0.0
    errors: list[str] = []
    next_at = time.monotonic()
    with connect() as cluster:
        store = cluster.store(STORE)
        while not stopped.is_set():
            stopped.wait(next_at - time.monotonic())
            next_at = max(next_at, time.monotonic()) + _BATCH_SECONDS
            chosen = [rows[(next(places) * _STRIDE) % len(rows)] for _ in range(_KEYS_PER_BATCH)]
            began = time.monotonic()
            try:
                found = store.get_many([key for key, _ in chosen])
            except AnewError as error:
                failed += 1
                errors.append(str(error))
                continue
            slowest = max(slowest, time.monotonic() - began)
            batches, keys = batches + 1, keys + len(found)
            seen = {cell.version for cell in found if cell is not None}
            mixed += len(seen) > 1
            wrong += sum(cell is None or cell.value != value for cell, (_, value) in zip(found, chosen, strict=True))
            if len(seen) == 1 and (not versions or versions[-1] not in seen):
                versions += seen
    summary = {
        "batches": batches,
        "keys": keys,
        "failed": failed,
        "mixed": mixed,
        "wrong": wrong,
        "versions": versions,
        "slowest_ms": round(slowest * 1000, 1),
        "errors": errors[:3],
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
