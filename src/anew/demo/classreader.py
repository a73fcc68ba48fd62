"""The streams demo's reader process: reads classes of flights all the time until it is told to stop.

``python -m anew.demo.classreader EVERY``. It stops when its standard input closes and prints its account as JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from typing import Any

from anew.core.errors import AnewError
from anew.demo.delays import FAULTY_MINUTES, RIGHT_MINUTES, classes, departures
from anew.demo.flights import KEY, Plain, typed_key
from anew.demo.writer import stop_with_input
from anew.runtime.connect import connect

STORE = "delay_classes"
_KEYS_PER_BATCH = 20
_SAMPLE = 20_000
_BATCH_SECONDS = 0.1
_STRIDE = 7_919


def main(arguments: list[str]) -> int:
    """Read until standard input closes."""
    every = int(arguments[0])
    keys = [key for key, _ in departures(every)[0][:_SAMPLE]]
    allowed = [classes(every, minutes) for minutes in (FAULTY_MINUTES, RIGHT_MINUTES)]
    stopped = threading.Event()
    stop_with_input(stopped)
    places, seen = itertools.count(), dict[str, int]()
    account = {"batches": 0, "keys": 0, "failed": 0, "missing": 0, "mixed": 0, "wrong": 0}
    slowest, errors, versions = 0.0, list[str](), list[int]()
    next_at = time.monotonic()
    with connect() as cluster:
        store = cluster.store(STORE)
        while not stopped.is_set():
            stopped.wait(next_at - time.monotonic())
            next_at = max(next_at, time.monotonic()) + _BATCH_SECONDS
            chosen = [keys[(next(places) * _STRIDE) % len(keys)] for _ in range(_KEYS_PER_BATCH)]
            began = time.monotonic()
            try:
                found = store.get_many([typed_key(key) for key in chosen])
            except AnewError as error:
                account["failed"] += 1
                errors.append(str(error))
                continue
            slowest = max(slowest, time.monotonic() - began)
            there = [(key, cell) for key, cell in zip(chosen, found, strict=True) if cell is not None]
            numbers = {cell.version for _, cell in there}
            account["batches"], account["keys"] = account["batches"] + 1, account["keys"] + len(found)
            account["missing"] += len(found) - len(there)
            account["mixed"] += len(numbers) > 1
            account["wrong"] += sum(not _is_allowed(key, cell.value, allowed) for key, cell in there)
            if len(numbers) == 1 and (not versions or versions[-1] not in numbers):
                versions += numbers
            seen.update({str(cell.value): 1 for _, cell in there})
    told = {**account, "slowest_ms": round(slowest * 1000, 1), "errors": errors[:3], "versions": versions}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


def _is_allowed(key: Plain, value: Any, allowed: list[dict[tuple[Any, ...], str]]) -> bool:
    place = tuple(key[name] for name in KEY)
    return value["class"] in {by[place] for by in allowed}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
