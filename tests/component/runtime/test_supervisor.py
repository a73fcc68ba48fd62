"""What a supervisor leaves behind: nothing, also of what its processes had at their side."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from anew.core.errors import Unreachable
from anew.runtime.driverprocesses import end_job_drivers
from anew.runtime.home import ClusterFile, Home
from anew.runtime.processgroups import end_group
from anew.runtime.settings import resolve
from anew.runtime.supervisor import Supervisor
from tests.component.node.harness import wait_for
from tests.component.node.test_node import free_port

pytestmark = pytest.mark.processes

_LEADER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.read(1)
print(child.pid, flush=True)
sys.stdin.read()
"""
_SLOW = "import sys, time; print(flush=True); sys.stdin.read(); time.sleep(0.5)"
_DEAF = "import threading; print(flush=True); threading.Event().wait()"


@pytest.mark.parametrize(("helper", "seconds", "is_killed"), [(_SLOW, 30.0, False), (_DEAF, 0.2, True)])
def test_what_ended_processes_had_at_their_side_ends_too(helper: str, seconds: float, *, is_killed: bool) -> None:
    """It is waited for, and killed when it stays."""
    leader = subprocess.Popen(
        [sys.executable, "-c", _LEADER, helper],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with leader:
        assert leader.stdout is not None
        at_side = psutil.Process(int(leader.stdout.readline()))
        assert leader.stdin is not None
        leader.stdin.close()
        leader.wait()
        begun = time.monotonic()
        end_group(leader.pid, begun + seconds)
        assert (time.monotonic() - begun >= seconds) is is_killed
        gone, _ = psutil.wait_procs([at_side], timeout=5 if is_killed else 0)
        assert gone == [at_side]


def test_drivers_of_jobs_end_with_their_cluster(tmp_path: Path) -> None:
    """Those of this home alone, and no other rebuild's: that one goes on when the cluster is up again."""
    mine, other = tmp_path / "mine" / "logs", tmp_path / "other" / "logs"

    def started(kind: str, logs: Path) -> subprocess.Popen[bytes]:
        words = ("-m", "anew.runtime.scheduled", "http://url", kind, "j@1", "r-e1", str(logs / "r-e1.log"))
        return subprocess.Popen([sys.executable, "-c", _DEAF, *words], stdout=subprocess.PIPE, start_new_session=True)

    processes = [started("job", mine), started("job", mine), started("store", mine), started("job", other)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.read(1)
        ended = end_job_drivers(mine)
        assert sorted(ended) == sorted(process.pid for process in processes[:2])
        for process in processes[:2]:
            process.wait(5)
        assert [process.poll() for process in processes[2:]] == [None, None]
        assert end_job_drivers(mine) == []
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.mark.parametrize("is_asked", [True, False], ids=["stopped", "broken"])
def test_only_who_was_asked_to_stop_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_asked: bool
) -> None:
    """A supervisor that ends as it was asked to leaves that in the home; one that ends otherwise leaves its pid."""
    home = Home(tmp_path / "home")

    def spawned(_self: Supervisor, _child: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "1000"], start_new_session=True)

    def turned(self: Supervisor) -> None:
        turn(self)
        if not is_asked:
            raise MemoryError
        self.stop()

    turn = Supervisor._turn
    monkeypatch.setattr(Supervisor, "_turn", turned)
    monkeypatch.setattr(Supervisor, "_spawn", spawned)
    supervisor = Supervisor(resolve({}, {}), ClusterFile("dc-0", "127.0.0.1", free_port(), {}, 0, {}), home)
    with nullcontext() if is_asked else pytest.raises(MemoryError):
        supervisor.run()
    with pytest.raises(Unreachable) as caught:
        home.running()
    assert (caught.value.found == "it was stopped") is is_asked
    assert is_asked or f"process {os.getpid()} ended" in str(caught.value.found)


def test_a_full_disk_ends_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process dies while nothing can be written: the others live on, it is started again, and the file comes late."""
    full = threading.Event()
    write, home = Home.write_cluster, Home(tmp_path / "home")

    def written(self: Home, cluster: ClusterFile) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, cluster)

    def spawned(_self: Supervisor, _child: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "1000"], start_new_session=True)

    monkeypatch.setattr(Home, "write_cluster", written)
    monkeypatch.setattr(Supervisor, "_spawn", spawned)
    supervisor = Supervisor(resolve({}, {}), ClusterFile("dc-0", "127.0.0.1", 1, {}, 0, {}), home)
    supervisor.cluster = replace(supervisor.cluster, port=free_port(), nodes={"node-1": free_port()})
    running = threading.Thread(target=supervisor.run)
    running.start()
    try:
        wait_for("both", lambda: len(_pids(home)) == 2)
        before = _pids(home)
        full.set()
        psutil.Process(before["node-1"]).kill()
        fresh = wait_for("it runs again", lambda: _child(supervisor, "node-1", before["node-1"]))
        assert running.is_alive()
        assert psutil.pid_exists(before["controller"])
        full.clear()
        wait_for("the file", lambda: _pids(home) == {**before, "node-1": fresh})
    finally:
        supervisor.stop()
        running.join(20)


def _pids(home: Home) -> dict[str, int]:
    cluster = home.read_cluster()
    return {} if cluster is None else dict(cluster.pids)


def _child(supervisor: Supervisor, name: str, before: int) -> int | None:
    """The pid of a process that was started again."""
    found = [child.process for child in supervisor._children if child.name == name]
    return next((process.pid for process in found if process is not None and process.pid != before), None)
