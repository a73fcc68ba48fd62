"""The demo's writer process: streams December in, corrects delays, deletes flights, until it is told to stop.

``python -m anew.demo.writer BASE DECEMBER JOURNAL``. Every write that was acknowledged is in the journal. It stops when
its standard input closes.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from anew.demo.flights import Plain, flights
from anew.runtime.connect import connect

STORE = "flights"
_RECORDS_PER_SECOND = 1_000
_BATCH = 500
_CORRECT_EVERY, _DELETE_EVERY = 5, 25
_CORRECTED_SHARE = 4
"""Every fourth flight of the base may be corrected or deleted; readers watch the others."""


def is_touched(index: int) -> bool:
    """Whether the writer may change the base's flight of that index."""
    return index % _CORRECTED_SHARE == 0


def writes(base: Path, december: Path) -> Iterator[tuple[Plain, Plain | None]]:
    """The endless sequence of writes: new flights, among them corrections and deletes, then only these."""
    old = [flight for index, flight in enumerate(flights(base)) if is_touched(index)]
    changes = _changes(old)
    for index, (key, value) in enumerate(flights(december)):
        yield key, value
        if index % _CORRECT_EVERY == 0:
            yield next(changes)
    yield from changes


def _changes(old: list[tuple[Plain, Plain]]) -> Iterator[tuple[Plain, Plain | None]]:
    for count in itertools.count():
        key, value = old[(count * 7_919) % len(old)]
        if count % _DELETE_EVERY == _DELETE_EVERY - 1:
            yield key, None
        else:
            yield key, {**value, "arr_delay": float(count % 600), "dep_delay": float(count % 480)}


def stop_with_input(stopped: threading.Event) -> None:
    """Set the event once standard input closes, which also happens when the parent dies."""

    def watch() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=watch, name="input", daemon=True).start()


def main(arguments: list[str]) -> int:
    """Write until standard input closes; the last line of standard output is the position that was reached."""
    base, december, journal = (Path(argument) for argument in arguments)
    stopped = threading.Event()
    stop_with_input(stopped)
    position: Any = {}
    with connect() as cluster, journal.open("w", encoding="utf-8") as account:
        writer = cluster.store(STORE).writer()
        began, count = time.monotonic(), 0
        stream = writes(base, december)
        while not stopped.is_set():
            batch = list(itertools.islice(stream, _BATCH))
            for key, value in batch:
                if value is None:
                    writer.delete(_datum(key))
                else:
                    writer.put(_datum(key), value)
            position = writer.flush().to_json()
            account.writelines(json.dumps({"key": key, "value": value}) + "\n" for key, value in batch)
            account.flush()
            count += len(batch)
            stopped.wait(max(0.0, began + count / _RECORDS_PER_SECOND - time.monotonic()))
        writer.close()
    sys.stdout.write(json.dumps(position) + "\n")
    return 0


def _datum(key: Plain) -> Plain:
    return {**key, "time_hour": datetime.fromisoformat(key["time_hour"])}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
