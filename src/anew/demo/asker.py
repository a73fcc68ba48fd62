"""The tables demo's reader process: asks all the time until it is told to stop, and checks what it gets.

``python -m anew.demo.asker TRIPS``. It knows each answer from the CSV file; it stops when its standard input closes and
prints its account as JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from pathlib import Path

from anew.core.errors import AnewError
from anew.demo.trips import TABLE, months
from anew.demo.writer import stop_with_input
from anew.runtime.connect import connect

_SUMS = f"SELECT count(*)::BIGINT AS trips, sum(distance)::BIGINT AS miles FROM {TABLE}"  # noqa: S608 - a constant
_PAUSE_SECONDS = 0.2
"""What is rebuilt meanwhile needs the processors too."""


def main(arguments: list[str]) -> int:
    """Ask until standard input closes."""
    known = list(months(Path(arguments[0])).items())
    stopped = threading.Event()
    stop_with_input(stopped)
    asked = failed = wrong = 0
    slowest = 0.0
    errors: list[str] = []
    with connect() as cluster:
        for month, expected in itertools.cycle(known):
            if stopped.is_set():
                break
            first = f"TIMESTAMP '{month}-01'"
            sql = f"{_SUMS} WHERE left_at >= {first} AND left_at < {first} + INTERVAL 1 MONTH"
            began = time.monotonic()
            try:
                row = cluster.query(sql).table.to_pylist()[0]
            except AnewError as error:
                failed += 1
                errors.append(str(error))
            else:
                asked += 1
                wrong += (row["trips"], row["miles"]) != expected
                slowest = max(slowest, time.monotonic() - began)
            stopped.wait(_PAUSE_SECONDS)
    account = {"asked": asked, "failed": failed, "wrong": wrong, "slowest_ms": round(slowest * 1000)}
    sys.stdout.write(json.dumps(account | {"errors": errors[:3]}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
