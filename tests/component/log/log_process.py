"""Programs that the process tests of the log run: ``python log_process.py append|read DIRECTORY …``."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from anew.core.arrow import bytes_list
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicPartition, TopicSpec
from anew.testing.builders import some_records
from anew.testing.clock import ManualClock

TOPIC = TopicSpec("flights_rt", "uid-1", 1)
AT = TopicPartition("flights_rt", "uid-1", 0)


def append(log: EmbeddedLog, name: str, batches: int, batch_records: int) -> None:
    """Append batches, endlessly for 0; each acknowledgement is a line ``[first, next]`` on stdout."""
    for number in itertools.count() if batches == 0 else range(batches):
        appended = log.append(AT, some_records(batch_records, f"{name}-{number}"))
        print(json.dumps([appended.first_offset, appended.next_offset]), flush=True)


def read(log: EmbeddedLog, until: int) -> None:
    """Read from the start until an offset, while others write; all keys in one line on stdout."""
    keys: list[str] = []
    while len(keys) < until:
        found = log.read(AT, len(keys), 50).records
        assert found.column("offset").to_pylist() == list(range(len(keys), len(keys) + found.num_rows))
        keys += [key.decode() for key in bytes_list(found.column("key"))]
    print(json.dumps(keys), flush=True)


def main(what: str, directory: str, *rest: str) -> None:
    """Run one program."""
    log = EmbeddedLog(Path(directory), clock=ManualClock())
    if what == "append":
        append(log, rest[0], int(rest[1]), int(rest[2]))
    else:
        read(log, int(rest[0]))
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
