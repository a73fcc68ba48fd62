"""Processes of stream jobs that die, or stand still, at each step of a batch."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anew.core.errors import Unreachable
from tests.cluster.commands import wait_until
from tests.crash.crashing import Crashing
from tests.crash.halts import APPENDED, ASK, FLUSH, PUT_BATCH, RECORD, When
from tests.processes import gone

pytestmark = pytest.mark.timeout(700)

_TEXT = '"string"'
_EVENT = '{"type": "record", "name": "Event", "fields": [{"name": "delay", "type": "int"}]}'
_CODE = """
def copied(events):
    return events.select("key", "value", "deleted", "timestamp")
"""


class _Job:
    """A job that copies one topic, ``NAME_in``, into another."""

    def __init__(self, crashing: Crashing, folder: Path, name: str) -> None:
        """Make the topics, and let the job run."""
        self.anew, self.name = crashing.anew, name
        code = folder / "copying.py"
        code.write_text(_CODE, encoding="utf-8")
        for topic in (f"{name}_in", f"{name}_out"):
            schemas = ("--key-schema", _TEXT, "--value-schema", _EVENT)
            self.anew.here("topic", "create", topic, "--partitions", "2", *schemas)
        where = ("--input", f"events={name}_in", "--output", f"topic:{name}_out")
        self.anew.done("job", "submit", name, f"{code}:copied", *where)
        self.anew.here("job", "run", f"{name}@1")

    def write(self, first: int, count: int) -> None:
        """Events of these numbers."""
        lines = (json.dumps({"key": f"e{n}", "value": {"delay": n}}) for n in range(first, first + count))
        assert self.anew.here("topic", "write", f"{self.name}_in", stdin="\n".join(lines))["accepted"] == count

    def plain(self) -> Counter[str]:
        """How often each key lies in the output."""
        found = self.anew.here("topic", "read", f"{self.name}_out_g1", "--limit", "10000")
        return Counter(row["key"] for row in found)

    def committed(self) -> tuple[Counter[str], list[Any]]:
        """How often each key is given that counts; and where the read waits. Nothing while no controller answers."""
        answer = self.anew.run_here("topic", "read", f"{self.name}_out_g1", "--limit", "10000", "--committed")
        if answer.code == Unreachable.exit_code:
            return Counter(), []
        assert answer.code == 0, answer.out
        return Counter(row["key"] for row in answer.json["records"]), answer.json["waiting"]

    def await_committed(self, count: int) -> None:
        """Wait until so many events count, each of them once, and nothing is waited for."""
        wanted = Counter(f"e{n}" for n in range(count))
        wait_until(lambda: self.committed() == (wanted, []), f"{count} events that count", 180)

    def delete(self) -> None:
        """Stop the job, and delete it."""
        self.anew.here("job", "stop", f"{self.name}@1")

        def driven() -> bool:
            (generation,) = self.anew.here("job", "show", self.name)["generations"]
            return bool(generation["driver"])

        wait_until(lambda: not driven(), "the driver to stop")
        self.anew.here("job", "delete", self.name, "--yes")


@pytest.mark.case("streams:C7", "streams:N8")
def test_a_reader_of_committed_records_gets_each_once(crashing: Crashing, tmp_path: Path) -> None:
    """One driver dies behind its append, another stands still there and wakes up late: a plain reader gets twice."""
    job = _Job(crashing, tmp_path, "copying")
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
    job.delete()


_STEPS: tuple[tuple[str, When], ...] = (
    (ASK, "before"),
    (FLUSH, "before"),
    (APPENDED, "after"),
    (RECORD, "after"),
    (PUT_BATCH, "before"),
    (PUT_BATCH, "after"),
)
"""Where a process of a batch is killed: the driver, a Python worker of Spark, the controller."""


@pytest.mark.case("streams:B2", "streams:C7")
def test_whatever_dies_in_a_batch_nothing_is_lost_and_nothing_counts_twice(crashing: Crashing, tmp_path: Path) -> None:
    """SIGKILL of driver, worker and controller, one after another, before and after each step of a batch."""
    job = _Job(crashing, tmp_path, "killed")
    job.write(0, 20)
    job.await_committed(20)
    for number, (point, when) in enumerate(_STEPS, 1):
        killed = crashing.halts.arm(point, when)
        job.write(20 * number, 20)
        killed.kill()
        job.await_committed(20 * number + 20)
    job.delete()
