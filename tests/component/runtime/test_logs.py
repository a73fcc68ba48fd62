"""What a process writes down of itself, also when that cannot be written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from anew.runtime.logs import log_to_file
from tests.disks import filled, small_disk

_WITH_A_DYING_THREAD = """
import sys, threading
from pathlib import Path
from anew.runtime.logs import log_to_file
from anew.runtime.serve import end_with_any_thread
log_to_file(Path(sys.argv[1]), "node-1", "info")
end_with_any_thread()
threading.Thread(target=lambda: 1 / 0, name="applier").start()
threading.Event().wait()
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    with small_disk(tmp_path / "disk", 1):
        yield tmp_path / "disk"


def _events(path: Path) -> list[dict[str, object]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


@pytest.mark.processes
def test_a_full_disk_costs_lines_and_nothing_else(disk: Path) -> None:
    """Whoever logs goes on; with room again the log says how many lines are missing."""
    path = disk / "logs" / "node-1.log"
    log_to_file(path, "node-1", "info")
    logger = structlog.get_logger("test")
    logger.info("before", filling="x" * 5_000)
    with filled(disk):
        for _ in range(3):
            try:
                raise OSError("no space left on device")
            except OSError:
                logger.exception("crashed", filling="x" * 5_000)
    logger.info("after")
    logger.info("later")
    events = _events(path)
    assert [event["event"] for event in events] == ["before", "log_lines_lost", "after", "later"]
    assert events[1]["count"] == 3


@pytest.mark.processes
def test_a_thread_that_ends_by_an_error_ends_its_process(tmp_path: Path) -> None:
    """The process says which thread and why, and its exit lets the supervisor start it again."""
    path = tmp_path / "node-1.log"
    command = [sys.executable, "-c", _WITH_A_DYING_THREAD, str(path)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    (event,) = _events(path)
    assert (event["event"], event["thread"]) == ("thread_ended", "applier")
    assert "ZeroDivisionError" in str(event["exception"])
