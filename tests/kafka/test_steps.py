"""``anew kafka up`` is killed at each of its steps: what is left, ``up`` and ``down`` put right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.brokers import ENVIRONMENT, broker_home
from tests.cluster.commands import Anew, wait_until
from tests.crash.halts import Halt, Halts, When
from tests.kafka.topics import make_topic, read, write
from tests.processes import gone

RECORD = "anew.brokers.record:write_record"
"""Cluster id and ports are recorded; and that the cluster is wanted."""
SETTINGS = "anew.brokers.configuration:write_configuration"
"""A broker's settings are written."""
FORMAT = "anew.brokers.java:_Formatting.finish"
"""Kafka's own tool formats a broker's data; it is waited for, and what it made is renamed."""
LAUNCH = "anew.brokers.process:BrokerProcess.launch"
"""A broker's process is started."""
ANSWERS = "anew.brokers.cluster:_await_answers"
"""All brokers are waited for."""

Step = tuple[int, str, When, str]
"""How many brokers are to be started; the point, and what must be in the call's arguments."""

STEPS: list[Step] = [
    (1, RECORD, "before", "wanted=False"),
    (1, RECORD, "after", "wanted=False"),
    (3, SETTINGS, "after", "id=2"),
    (1, FORMAT, "before", ""),
    (3, FORMAT, "after", ""),
    (1, RECORD, "before", "wanted=True"),
    (1, RECORD, "after", "wanted=True"),
    (1, LAUNCH, "after", "id=1"),
    (3, LAUNCH, "after", "id=2"),
    (1, ANSWERS, "after", ""),
]
"""Each leaves something else on the disk or running. Three brokers where some have come further than others."""
_LAUNCHED = STEPS[-3:]


@pytest.fixture
def halting(tmp_path: Path) -> Iterator[tuple[Anew, Halts]]:
    """Commands on a home without brokers, which stand still at armed steps."""
    armed = Halts(tmp_path)
    points = ",".join((RECORD, SETTINGS, FORMAT, LAUNCH, ANSWERS))
    with broker_home() as home:
        try:
            yield Anew(home.path, {**ENVIRONMENT, **armed.environment, "HALT_POINTS": points}), armed
        finally:
            armed.disarm()


@pytest.mark.parametrize("step", STEPS)
def test_an_up_that_was_killed_is_finished_by_the_next(halting: tuple[Anew, Halts], step: Step) -> None:
    """The next ``up`` ends with brokers that answer and take records, and with nothing else left over."""
    anew, armed = halting
    count = _kill_at(anew, armed, step)
    made = anew.done("kafka", "up", "--brokers", str(count))
    found = anew.done("kafka", "status")
    assert found["healthy"]
    assert list(Path(anew.home, "kafka").rglob("formatting.*")) == []
    make_topic(made["bootstrap"], "kept", count)
    write(made["bootstrap"], "kept", [b"one"])
    assert read(made["bootstrap"], "kept", 1) == [b"one"]
    assert _java_of(anew) == {broker["pid"] for broker in found["brokers"]}


@pytest.mark.parametrize("step", _LAUNCHED)
def test_what_an_up_that_was_killed_left_running_is_ended_by_down(halting: tuple[Anew, Halts], step: Step) -> None:
    """No broker is ever started that ``status`` does not show and ``down`` does not end."""
    anew, armed = halting
    _kill_at(anew, armed, step)
    left = _java_of(anew)
    assert left
    answer = anew.run("kafka", "status")
    assert {broker["pid"] for broker in answer.json["brokers"] if broker["alive"]} == left
    assert anew.done("kafka", "down") == {"stopped": True}
    wait_until(lambda: all(map(gone, left)), "the brokers' ends")
    assert anew.run("kafka", "status").error["code"] == "no_brokers"


@pytest.mark.parametrize("verb", ["up", "down"])
def test_a_down_that_was_killed_is_finished_by_the_next_command(halting: tuple[Anew, Halts], verb: str) -> None:
    """It has noted that no broker is wanted, and ended none: ``status`` exits 6 until ``up`` or ``down`` decides."""
    anew, armed = halting
    anew.done("kafka", "up")
    _kill(anew, armed.arm(RECORD, "after", "wanted=False"), "down")
    answer = anew.run("kafka", "status")
    assert (answer.code, answer.json["healthy"], answer.json["brokers"][0]["answers"]) == (6, False, True)
    anew.done("kafka", verb)
    assert anew.run("kafka", "status").code == (0 if verb == "up" else 4)
    assert len(_java_of(anew)) == (1 if verb == "up" else 0)


def _kill_at(anew: Anew, armed: Halts, step: Step) -> int:
    """SIGKILL to an ``up`` that comes to the step; returns how many brokers it was to start."""
    count, point, when, part = step
    _kill(anew, armed.arm(point, when, part), "up", "--brokers", str(count))
    return count


def _kill(anew: Anew, halt: Halt, *command: str) -> None:
    with anew.start("kafka", *command) as running:
        halt.kill()
        assert running.wait(60) < 0


def _java_of(anew: Anew) -> set[int]:
    """The processes of Java that work in a home, and have not ended."""
    found = psutil.process_iter(["pid", "name", "cmdline", "status"])
    return {
        process.info["pid"]
        for process in found
        if process.info["name"] == "java"
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and any(str(anew.home) in part for part in process.info["cmdline"] or ())
    }
