"""The streams demo's writer process: lets December's flights depart, one after another.

``python -m anew.demo.departing EVERY PER_SECOND``. It ends when all have left, or when its standard input closes, after
what it began was acknowledged; then it prints how many that were.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable

from anew.demo.delays import Flight, departures
from anew.demo.flights import typed_key
from anew.demo.writer import stop_with_input
from anew.runtime.connect import Cluster, connect

TOPIC = "departures"
_BATCH = 200


def write_flights(cluster: Cluster, flights: Iterable[Flight]) -> int:
    """Append flights to the topic; how many were acknowledged."""
    count = 0
    with cluster.topic(TOPIC).writer() as writer:
        for key, delay in flights:
            writer.put(typed_key(key), {"dep_delay": delay})
            count += 1
    return count


def main(arguments: list[str]) -> int:
    """Write until December is over, or standard input closes."""
    every, per_second = int(arguments[0]), float(arguments[1])
    stopped = threading.Event()
    stop_with_input(stopped)
    _, december = departures(every)
    written = 0
    with connect() as cluster:
        while written < len(december) and not stopped.is_set():
            written += write_flights(cluster, december[written : written + _BATCH])
            stopped.wait(_BATCH / per_second)
    sys.stdout.write(f"{written}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
