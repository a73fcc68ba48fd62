"""``anew kafka up|down|status``: brokers come, go, die, come back with what they hold, and are nobody else's."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.commands import Anew, wait_until
from tests.kafka.topics import make_topic, read, write
from tests.processes import gone

_VALUES = [b"one", b"two", b"three"]


def _pids(anew: Anew) -> list[int]:
    return [broker["pid"] for broker in anew.run("kafka", "status").json["brokers"]]


@pytest.mark.parametrize("count", [1, 3])
def test_brokers_come_answer_and_go(anew: Anew, count: int) -> None:
    """``up`` returns when all answer, a second one changes nothing, ``status`` tells each, ``down`` leaves none."""
    made = anew.done("kafka", "up", "--brokers", str(count))
    assert [broker["id"] for broker in made["brokers"]] == made["started"] == [*range(1, count + 1)]
    assert made["bootstrap"] == ",".join(f"127.0.0.1:{broker['port']}" for broker in made["brokers"])
    found = anew.done("kafka", "status")
    assert (found["healthy"], found["cluster_id"], found["bootstrap"]) == (True, made["cluster_id"], made["bootstrap"])
    assert [(b["id"], b["port"], b["alive"], b["answers"]) for b in found["brokers"]] == [
        (b["id"], b["port"], True, True) for b in made["brokers"]
    ]
    pids = [broker["pid"] for broker in found["brokers"]]
    make_topic(made["bootstrap"], "kept", count)
    write(made["bootstrap"], "kept", _VALUES)
    assert anew.done("kafka", "up") == {**made, "started": []}
    assert _pids(anew) == pids
    assert anew.done("kafka", "down") == {"stopped": True}
    wait_until(lambda: all(map(gone, pids)), "the brokers' ends")
    assert anew.done("kafka", "down") == {"stopped": False}
    answer = anew.run("kafka", "status")
    assert (answer.code, answer.error["code"], answer.error["found"]) == (4, "no_brokers", "they were stopped")
    assert anew.done("kafka", "up") == made, "on the same ports"
    assert read(made["bootstrap"], "kept", 3) == _VALUES


def test_what_people_are_told(anew: Anew) -> None:
    """Without ``--json``: the address, how to use it, a line for each broker."""
    first, again, shown = (_text(anew, "up"), _text(anew, "up"), _text(anew, "status"))
    address = _record(anew)["brokers"]["1"]["client"]
    assert first.stdout == f"up: 1 broker, 127.0.0.1:{address}\n"
    assert f"ANEW_LOG=kafka://127.0.0.1:{address} anew up" in first.stderr
    assert again.stdout == f"already up: 1 broker, 127.0.0.1:{address}\n"
    assert shown.stdout.startswith("healthy\n")
    assert f"127.0.0.1:{address}" in shown.stdout
    os.kill(_pids(anew)[0], signal.SIGKILL)
    wait_until(lambda: _text(anew, "status").returncode == 6, "the broker's end to be seen")
    assert "anew kafka up" in _text(anew, "status").stdout
    assert (_text(anew, "down").stdout, _text(anew, "down").stdout) == ("nothing was running\n",) * 2


def test_brokers_outlive_whoever_started_them(anew: Anew) -> None:
    """SIGKILL of the process that called ``up``, and of all its group, touches no broker; ``down`` ends them."""
    script = "import sys; from anew.cli.main import run_command; run_command(['kafka', 'up']); sys.stdin.read()"
    starter = subprocess.Popen(
        [sys.executable, "-c", script],
        env=anew.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().startswith(b"up: 1 broker")
        os.killpg(starter.pid, signal.SIGKILL)
    (pid,) = _pids(anew)
    assert anew.run("kafka", "status").code == 0
    assert os.getsid(pid) != starter.pid
    assert anew.done("kafka", "down") == {"stopped": True}
    wait_until(lambda: gone(pid), "the broker's end")


def test_a_killed_broker_is_told_and_healed(anew: Anew) -> None:
    """After SIGKILL ``status`` exits 6 and says which; ``up`` starts that one, with all that it held."""
    made = anew.done("kafka", "up")
    make_topic(made["bootstrap"], "kept")
    write(made["bootstrap"], "kept", _VALUES)
    (pid,) = _pids(anew)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), "the broker's end")
    answer = anew.run("kafka", "status")
    (broker,) = answer.json["brokers"]
    assert (answer.code, answer.json["healthy"]) == (6, False)
    assert (broker["pid"], broker["alive"], broker["answers"]) == (None, False, False)
    assert anew.done("kafka", "up") == made
    assert read(made["bootstrap"], "kept", 3) == _VALUES


def test_a_broker_that_stands_still_is_told(anew: Anew) -> None:
    """It lives and does not answer: exit 6; ``down`` ends it all the same."""
    anew.done("kafka", "up")
    (pid,) = _pids(anew)
    os.kill(pid, signal.SIGSTOP)
    answer = anew.run("kafka", "status")
    (broker,) = answer.json["brokers"]
    assert (answer.code, broker["pid"], broker["alive"], broker["answers"]) == (6, pid, True, False)
    assert anew.done("kafka", "down") == {"stopped": True}
    wait_until(lambda: gone(pid), "the broker's end")


def test_another_process_is_never_taken_for_a_broker(anew: Anew) -> None:
    """A broker died and its pid is somebody else's by now: that one is neither shown nor ended."""
    anew.done("kafka", "up")
    (pid,) = _pids(anew)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), "the broker's end")
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            (anew.home / "kafka" / "broker-1" / "process").write_text(f"{stranger.pid}\n", encoding="ascii")
            assert anew.run("kafka", "status").json["brokers"][0]["pid"] is None
            assert anew.done("kafka", "down") == {"stopped": False}
            anew.done("kafka", "up")
            assert _pids(anew) != [stranger.pid]
            assert anew.done("kafka", "down") == {"stopped": True}
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_port_that_somebody_took_is_named(anew: Anew) -> None:
    """Exit 3 with the port, and nothing runs: clients know the recorded one, so that no other is taken in silence."""
    made = anew.done("kafka", "up")
    anew.done("kafka", "down")
    for port in _record(anew)["brokers"]["1"].values():
        with socket.create_server(("127.0.0.1", port)):
            answer = anew.run("kafka", "up")
            assert (answer.code, answer.error["code"]) == (3, "port_in_use")
            assert str(port) in answer.error["message"]
            assert anew.run("kafka", "status").error["code"] == "no_brokers"
    assert anew.done("kafka", "up") == made


def test_the_number_of_brokers_is_fixed_by_the_home(anew: Anew) -> None:
    """Neither one nor three: exit 2. Another number than the home has: exit 3. Nothing is changed."""
    answer = anew.run("kafka", "up", "--brokers", "2")
    assert (answer.code, answer.error["code"]) == (2, "bad_brokers")
    assert not (anew.home / "kafka").exists()
    anew.done("kafka", "up")
    pids = _pids(anew)
    answer = anew.run("kafka", "up", "--brokers", "3")
    assert (answer.code, answer.error["code"], answer.error["found"]) == (3, "brokers_fixed", "1 brokers")
    assert _pids(anew) == pids


def test_without_brokers_status_says_how_to_start_them(anew: Anew) -> None:
    """Exit 4 and a hint; nothing is made."""
    answer = anew.run("kafka", "status")
    assert (answer.code, answer.error["code"], answer.error["hint"]) == (4, "no_brokers", "anew kafka up")
    assert anew.done("kafka", "down") == {"stopped": False}
    assert not (anew.home / "kafka").exists()


def test_everything_is_the_user_s_own_and_on_this_machine_alone(anew: Anew) -> None:
    """Nobody else may look into the files, and no broker listens on another address than 127.0.0.1."""
    anew.done("kafka", "up")
    home = anew.home / "kafka"
    open_to_others = [path for path in [home, *home.rglob("*")] if stat.S_IMODE(path.lstat().st_mode) & 0o077]
    assert open_to_others == []
    (pid,) = _pids(anew)
    listening = [c.laddr for c in psutil.Process(pid).net_connections("tcp") if c.status == "LISTEN"]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert {address.port for address in listening} == set(_record(anew)["brokers"]["1"].values())


def test_a_home_may_be_called_anything(anew: Anew) -> None:
    """Spaces, commas and signs of XML in its path reach neither Kafka's settings nor its log's."""
    strange = Anew(anew.home / "kafka, & <so> on" / "$x%i", anew.extra)
    try:
        strange.done("kafka", "up")
        log = strange.home / "kafka" / "logs" / "broker-1.log"
        # It answers a moment before it says so.
        wait_until(lambda: "Kafka Server started" in log.read_text(encoding="utf-8"), "the broker's own log")
        assert {path.name for path in (strange.home / "kafka").iterdir()} == {"broker-1", "kafka.json", "lock", "logs"}
    finally:
        strange.done("kafka", "down")


def test_two_at_once_start_one_cluster(anew: Anew) -> None:
    """Each of two ``up`` at the same time is told the same address, and one of them started it."""
    both = [anew.start("kafka", "up", "--json") for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    assert len({answer["bootstrap"] for answer in answers}) == 1
    assert sorted(answer["started"] for answer in answers) == [[], [1]]


def _record(anew: Anew) -> Any:
    return json.loads(Path(anew.home, "kafka", "kafka.json").read_text(encoding="utf-8"))


def _text(anew: Anew, verb: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anew.cli", "kafka", verb]
    return subprocess.run(command, env=anew.environment, capture_output=True, text=True, timeout=120, check=False)
