"""Drivers of stream jobs that die, or stand still, between the append of a batch and its record."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import wait_until
from tests.crash.crashing import Crashing
from tests.crash.halts import RECORD
from tests.processes import gone

pytestmark = pytest.mark.timeout(700)

_TEXT = '"string"'
_EVENT = '{"type": "record", "name": "Event", "fields": [{"name": "delay", "type": "int"}]}'
_CODE = """
def copied(events):
    return events.select("key", "value", "deleted", "timestamp")
"""


class _Job:
    """A job that copies one topic into another."""

    def __init__(self, crashing: Crashing, folder: Path) -> None:
        """Make the topics, and let the job run."""
        self.anew = crashing.anew
        code = folder / "copying.py"
        code.write_text(_CODE, encoding="utf-8")
        for name in ("copy_in", "copy_out"):
            schemas = ("--key-schema", _TEXT, "--value-schema", _EVENT)
            self.anew.here("topic", "create", name, "--partitions", "2", *schemas)
        where = ("--input", "events=copy_in", "--output", "topic:copy_out")
        self.anew.done("job", "submit", "copying", "--code", f"{code}:copied", *where)
        self.anew.here("job", "run", "copying@1")

    def write(self, first: int, count: int) -> None:
        """Events of these numbers."""
        lines = (json.dumps({"key": f"e{n}", "value": {"delay": n}}) for n in range(first, first + count))
        assert self.anew.here("topic", "write", "copy_in", stdin="\n".join(lines))["accepted"] == count

    def plain(self) -> Counter[str]:
        """How often each key lies in the output."""
        found = self.anew.here("topic", "read", "copy_out_g1", "--limit", "10000")
        return Counter(row["key"] for row in found)

    def committed(self) -> tuple[Counter[str], list[Any]]:
        """How often each key is given that counts; and where the read waits."""
        found = self.anew.here("topic", "read", "copy_out_g1", "--limit", "10000", "--committed")
        return Counter(row["key"] for row in found["records"]), found["waiting"]

    def await_committed(self, count: int) -> None:
        """Wait until so many events count, each of them once, and nothing is waited for."""
        wanted = Counter(f"e{n}" for n in range(count))
        wait_until(lambda: self.committed() == (wanted, []), f"{count} events that count", 180)


@pytest.mark.case("streams:C7", "streams:N8")
def test_a_reader_of_committed_records_gets_each_once(crashing: Crashing, tmp_path: Path) -> None:
    """One driver dies behind its append, another stands still there and wakes up late: a plain reader gets twice."""
    job = _Job(crashing, tmp_path)
    job.write(0, 100)
    job.await_committed(100)
    assert job.plain() == Counter(f"e{n}" for n in range(100))
    killed = crashing.halts.arm(RECORD, "before")
    job.write(100, 50)
    killed.wait()
    # What was written arrives in one batch or in several: the one that is held has some of it.
    assert job.plain().total() > 100
    seen, waiting = job.committed()
    assert seen == Counter(f"e{n}" for n in range(100))
    assert {(each["writer"], each["batch"]) for each in waiting} == {("copying@1", waiting[0]["batch"])}
    killed.kill()
    job.await_committed(150)
    with_one = job.plain().total()
    assert with_one > 150
    still = crashing.halts.arm(RECORD, "before")
    job.write(150, 50)
    pid = still.wait()
    job.await_committed(200)
    assert job.plain().total() > with_one + 50
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: gone(pid), "the late driver to end", 120)
    job.write(200, 10)
    job.await_committed(210)
    job.anew.here("job", "stop", "copying@1")
    wait_until(lambda: not job.anew.here("job", "show", "copying")["generations"][0]["driver"], "the driver to stop")
    job.anew.here("job", "delete", "copying", "--yes")
