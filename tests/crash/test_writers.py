"""SIGKILL of a writer before and after an append, while a push and a repush are under way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.account import KEYS, change_of
from tests.cluster.commands import wait_until
from tests.crash.crashing import Crashing
from tests.crash.halts import APPEND, Halts, When
from tests.crash.writing import BATCH

pytestmark = pytest.mark.timeout(600)

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["push", "repush"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_dead_writer_had_acknowledged_is_in_every_version(
    crashing: Crashing, people: Path, tmp_path: Path, kind: str, when: When
) -> None:
    """Killed in an append while a rebuild runs: what was acknowledged is there, and nothing else but the last batch."""
    store = crashing.store(f"w_{kind}_{when}")
    halts = Halts(tmp_path)
    rebuild = ("repush", store) if kind == "repush" else ("push", store, str(people), "--key", "id")
    writer = _writer(crashing, halts, store)
    acknowledged = [0]
    listener = threading.Thread(target=_listen, args=(writer, acknowledged))
    listener.start()
    try:
        wait_until(lambda: acknowledged[0] >= KEYS, "the writer to have written all its keys")
        done: list[Any] = []
        driver = threading.Thread(target=lambda: done.append(crashing.anew.run_here(*rebuild)))
        driver.start()
        wait_until(lambda: crashing.status(store, 2) is not None, "the rebuild to begin")
        halts.arm(APPEND, when).kill()
    finally:
        writer.kill()
        writer.communicate()
        listener.join()
    driver.join(240)
    assert [answer.code for answer in done] == [0], done
    crashing.anew.here("store", "wait", store)
    both = [_matches(crashing.anew.scan(store, "--version", number), acknowledged[0]) for number in "12"]
    assert both[0] == both[1]
    if when == "after":
        assert both[0] > acknowledged[0], "what was appended is there, although the writer never heard of it"


def _matches(scanned: dict[Any, Any], acknowledged: int) -> int:
    """How many of the writer's changes a version has: those that were acknowledged, and perhaps some of a batch more.

    The feed's partitions are appended to one after another, so that a batch may be there in part, each key's change
    whole; what this returns counts the changes beyond those acknowledged as one batch.
    """
    found = {key.strip('"'): value for key, value in scanned.items() if key.startswith('"a')}
    before, after = _state(acknowledged), _state(acknowledged + BATCH)
    wrong = {k: found.get(k) for k in before if found.get(k) not in (before[k], after[k])}
    assert not wrong, wrong
    assert set(found) <= set(before)
    return acknowledged if all(found.get(k) == before[k] for k in before) else acknowledged + BATCH


def _state(count: int) -> dict[str, Any]:
    return dict(change_of("a", number) for number in range(count))


def _writer(crashing: Crashing, halts: Halts, store: str) -> subprocess.Popen[str]:
    environment = {**crashing.anew.environment, **halts.environment}
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(_ROOT)])
    command = [sys.executable, "-m", "tests.crash.writing", str(crashing.anew.home), store, "a"]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _listen(writer: subprocess.Popen[str], acknowledged: list[int]) -> None:
    assert writer.stdout is not None
    for line in writer.stdout:
        acknowledged[0] = int(line)
