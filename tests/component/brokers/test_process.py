"""A broker's process is known by its lock: it is never lost, and never another one. Here it is any program."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from anew.brokers import process as process_module
from anew.brokers.configuration import BrokerFolder
from anew.brokers.process import BrokerProcess
from anew.core.errors import Failed
from tests.cluster.commands import wait_until
from tests.processes import gone

pytestmark = pytest.mark.processes

_SLEEP = ["sleep", "600"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that does not run; what a test starts ends with it."""
    folder = BrokerFolder(tmp_path, 1)
    folder.home.mkdir()
    folder.printed.parent.mkdir()
    made = BrokerProcess(folder)
    yield made
    made.send(signal.SIGKILL)


def _variables_of(program: psutil.Process) -> dict[str, str]:
    """A pid is known a moment before it becomes the program, whose name is another one before its variables are."""
    wait_until(lambda: program.name() == "sleep" and bool(program.environ()), "the program to begin")
    found: dict[str, str] = program.environ()
    return found


def test_it_lives_from_its_launch_to_its_end(broker: BrokerProcess) -> None:
    """With the pid that it wrote itself, in a session of its own, as nobody's child."""
    assert (broker.lives, broker.pid, broker.send(signal.SIGTERM), broker.await_end(0)) == (False, None, False, True)
    assert broker.launch(_SLEEP, {"COLOUR": "blue"})
    pid = broker.pid
    assert pid is not None
    assert broker.lives
    seen = psutil.Process(pid)
    assert _variables_of(seen)["COLOUR"] == "blue"
    assert os.getsid(pid) != os.getsid(0)
    assert seen.ppid() != os.getpid()
    assert not broker.await_end(0)
    assert broker.send(signal.SIGTERM)
    assert broker.await_end(10)
    assert gone(pid)
    assert broker.pid is None


def test_it_is_launched_once(broker: BrokerProcess) -> None:
    """A second launch starts nothing, and says so."""
    assert broker.launch(_SLEEP, {})
    pid = broker.pid
    assert not broker.launch(_SLEEP, {})
    assert broker.pid == pid


def test_it_is_not_given_the_user_s_token(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is no business of a server."""
    monkeypatch.setenv("ANEW_TOKEN", "secret")
    monkeypatch.setenv("ANEW_TOKEN_FILE", "/some/file")
    broker.launch(_SLEEP, {})
    pid = broker.pid
    assert pid is not None
    assert not [name for name in _variables_of(psutil.Process(pid)) if name.startswith("ANEW_TOKEN")]


def test_whoever_launches_it_may_die_at_once(broker: BrokerProcess, tmp_path: Path) -> None:
    """Also before the broker has said its pid: it says it, and is found."""
    code = (
        "import os, signal, sys; from pathlib import Path; from anew.brokers.configuration import BrokerFolder\n"
        "from anew.brokers.process import BrokerProcess\n"
        f"BrokerProcess(BrokerFolder(Path(sys.argv[1]), 1)).launch({_SLEEP!r}, {{}})\n"
        "os.killpg(0, signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], start_new_session=True, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = broker.pid
    assert pid is not None
    assert psutil.Process(pid).name() in ("sleep", "sh", "env")


def test_a_pid_without_the_lock_is_somebody_else_s(broker: BrokerProcess) -> None:
    """What was noted of one that has died is worth nothing: whoever has its pid gets no signal."""
    with subprocess.Popen(_SLEEP) as stranger:
        broker.folder.lock.write_text(f"{stranger.pid}\n", encoding="ascii")
        assert (broker.lives, broker.pid, broker.send(signal.SIGKILL)) == (False, None, False)
        assert broker.launch(_SLEEP, {})
        assert broker.pid not in (None, stranger.pid)
        assert stranger.poll() is None
        stranger.kill()


def test_a_pid_that_changes_hands_meanwhile_gets_no_signal(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker dies between the look at its pid and the signal: it is looked at again, with the process in hand."""
    broker.launch(_SLEEP, {})
    first, opened = broker.pid, os.pidfd_open
    assert first is not None
    with subprocess.Popen(_SLEEP) as stranger:

        def opens_the_next(pid: int) -> int:
            os.kill(pid, signal.SIGKILL)
            assert broker.await_end(10)
            return opened(stranger.pid)

        monkeypatch.setattr(os, "pidfd_open", opens_the_next)
        assert not broker.send(signal.SIGTERM)
        assert stranger.poll() is None
        stranger.kill()


def test_one_that_never_says_its_pid_is_told(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds the lock and says nothing: an error names the file, instead of a wait without end."""
    monkeypatch.setattr(process_module, "_LAUNCH_SECONDS", 0.1)
    with broker.folder.lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Failed) as caught:
            broker.send(signal.SIGTERM)
    assert (caught.value.code, str(broker.folder.lock) in str(caught.value.hint)) == ("broker_unknown", True)


def test_who_looks_does_not_keep_it_from_starting(broker: BrokerProcess) -> None:
    """A look holds the lock for a moment: a launch waits for that."""
    with broker.folder.lock.open("w") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        released = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE, stdout=look)
    with released:
        assert released.stdin is not None
        released.stdin.close()
        assert broker.launch(_SLEEP, {})


def test_a_program_that_is_missing_says_so(broker: BrokerProcess) -> None:
    """In what was printed, where a failed start looks."""
    broker.launch(["/no/such/java"], {})
    assert broker.await_end(10)
    assert "/no/such/java" in broker.folder.printed.read_text(encoding="utf-8")
