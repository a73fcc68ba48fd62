"""Starting, stopping and losing the processes of a cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import psutil

from tests.cluster.commands import Anew, wait_until
from tests.ports import port_of

_ELSEWHERE = str(port_of("elsewhere"))
"""Not the port of the home's own settings."""


def _pids(anew: Anew) -> dict[str, int]:
    cluster = json.loads((anew.home / "cluster.json").read_text(encoding="utf-8"))
    return {**cluster["pids"], "supervisor": cluster["supervisor"]}


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def test_without_a_cluster_commands_say_how_to_start_one(lone: Anew) -> None:
    """Exit 4 and a hint."""
    answer = lone.run("store", "list")
    assert (answer.code, answer.error["code"]) == (4, "no_cluster")
    assert "anew up" in answer.error["hint"]


def test_a_second_cluster_on_the_same_home_is_refused(anew: Anew) -> None:
    """Exit 3, and the first one goes on."""
    answer = anew.run("up", "--detach", "--port", _ELSEWHERE)
    assert (answer.code, answer.error["code"]) == (3, "already_up")
    assert anew.run("status").code in (0, 6)


def test_a_port_in_use_is_refused_and_named(lone: Anew) -> None:
    """Exit 3, the port is named, nothing runs afterwards."""
    taken = int(_ELSEWHERE) + 1
    with socket.create_server(("127.0.0.1", taken)):
        answer = lone.run("up", "--detach", "--port", _ELSEWHERE)
    assert (answer.code, answer.error["code"]) == (3, "port_in_use")
    assert str(taken) in answer.error["message"]
    assert lone.run("store", "list").code == 4


def test_a_missing_java_is_named_before_anything_is_made(anew: Anew, people: Path) -> None:
    """Exit 4 with what to install; no version exists afterwards."""
    anew.create("nojava")
    answer = anew.run("push", "nojava", str(people), "--key", "id", environment={"JAVA_HOME": "/no/java"})
    assert (answer.code, answer.error["code"]) == (4, "java_missing")
    assert "openjdk-17" in answer.error["hint"]
    assert anew.done("store", "show", "nojava")["fabrics"]["dc-0"]["versions"] == []


def test_down_ends_every_process_and_up_serves_the_same_data_again(lone: Anew, people: Path) -> None:
    """No orphan is left, and after a restart the store is there, version and all."""
    lone.done("up", "--detach", "--nodes", "1", "--port", _ELSEWHERE)
    lone.create("kept", "hybrid=true", "rt_partitions=2", "replicas=1")
    lone.push("kept", people)
    lone.write("kept", {"key": "p1", "value": {"name": "written", "age": 1}})
    before = lone.scan("kept")
    alive = [process for pid in _pids(lone).values() for process in _family(pid)]
    assert lone.done("down") == {"stopped": True}
    assert [process for process in alive if process.is_running() and process.status() != "zombie"] == []
    assert lone.done("down") == {"stopped": False}
    lone.done("up", "--detach")
    wait_until(lambda: lone.run("status").code == 0, "the replica to be open again")
    assert lone.scan("kept") == before


def test_a_killed_supervisor_takes_its_processes_along(lone: Anew) -> None:
    """After SIGKILL of the supervisor nothing of the cluster lives on, and the home can be taken again."""
    lone.done("up", "--detach", "--nodes", "1", "--port", _ELSEWHERE)
    pids = _pids(lone)
    alive = [process for pid in pids.values() for process in _family(pid)]
    os.kill(pids["supervisor"], signal.SIGKILL)
    wait_until(
        lambda: not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], "all processes to end"
    )
    lone.done("up", "--detach")


def test_reads_go_on_while_the_controller_and_one_node_are_gone(lone: Anew, people: Path) -> None:
    """With two replicas a client that knows the routing reads on; both processes come back by themselves."""
    lone.done("up", "--detach", "--nodes", "2", "--port", _ELSEWHERE)
    lone.create("lasting", "hybrid=true", "rt_partitions=2", "replicas=2")
    lone.push("lasting", people)
    pids = _pids(lone)
    os.kill(pids["node-1"], signal.SIGKILL)
    assert lone.value("lasting", "p1") == {"name": "name 1", "age": 21}
    os.kill(pids["controller"], signal.SIGKILL)
    wait_until(lambda: lone.run("status").code == 0, "controller and node to be back")
    assert lone.value("lasting", "p1") == {"name": "name 1", "age": 21}
    assert len(lone.scan("lasting")) == 20
