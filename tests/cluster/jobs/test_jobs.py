"""Stream jobs on a real cluster: drivers are processes, functions are files, readers read all the time."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anew.runtime.connect import connect
from tests.cluster.commands import Anew, wait_until

pytestmark = pytest.mark.timeout(600)

_KEY = '"string"'
_EVENT = '{"type": "record", "name": "Event", "fields": [{"name": "delay", "type": "int"}]}'
_CLASS = '{"type": "record", "name": "Class", "fields": [{"name": "class", "type": "string"}]}'
_CODE = """
from pyspark.sql import functions as F


def classify(events, *, severe: int = 15):
    kind = F.when(F.col("value.delay") >= severe, "severe").otherwise("fine")
    return events.select("key", F.struct(kind.alias("class")).alias("value"), "deleted", "timestamp")
"""


def _events(first: int, count: int) -> dict[str, int]:
    return {f"flight-{number}": number % 40 for number in range(first, first + count)}


def _write(anew: Anew, events: dict[str, int]) -> None:
    lines = (json.dumps({"key": key, "value": {"delay": delay}}) for key, delay in events.items())
    assert anew.here("topic", "write", "events", stdin="\n".join(lines))["accepted"] == len(events)


def _generation(anew: Anew, number: int) -> dict[str, Any]:
    found = anew.here("job", "show", "delay_class")["generations"]
    return next(each for each in found if each["number"] == number)


def _driver(anew: Anew, number: int) -> int | None:
    rebuild = anew.here("rebuild", "show", _generation(anew, number)["rebuild"])
    pid: int | None = rebuild["driver"]["pid"]
    return pid


def _wanted(events: dict[str, int], severe: int) -> dict[str, str]:
    return {key: "severe" if delay >= severe else "fine" for key, delay in events.items()}


@contextmanager
def _reading(anew: Anew, keys: list[str]) -> Iterator[list[str]]:
    """Read all the time while the block runs; what went wrong."""
    stop, wrong = threading.Event(), list[str]()

    def read() -> None:
        with connect(home=str(anew.home)) as cluster:
            store = cluster.store("delays")
            while not stop.is_set():
                try:
                    found = store.get_many(keys)
                    wrong.extend(key for key, cell in zip(keys, found, strict=True) if cell is None)
                except Exception as error:  # noqa: BLE001 - whatever a reader gets is told
                    wrong.append(f"{type(error).__name__}: {error}")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield wrong
    finally:
        stop.set()
        reader.join(30)


@pytest.mark.case("streams:C7", "streams:E1", "streams:E7", "streams:F1")
def test_a_job_is_rewound_beside_the_live_one_and_cut_over_to_and_back(lone: Anew, tmp_path: Path) -> None:
    """A driver dies by SIGKILL; the corrected function catches up beside; readers see one or the other, no error; what
    is deployed afterwards is of new records alone."""
    anew = lone
    anew.extra["ANEW_LEASE_SECONDS"] = "10"
    anew.done("up", "--detach", "--nodes", "1")
    code = tmp_path / "delays.py"
    code.write_text(_CODE, encoding="utf-8")
    schemas = ("--key-schema", _KEY, "--value-schema")
    anew.here("topic", "create", "events", "--partitions", "3", *schemas, _EVENT)
    anew.here("store", "create", "delays", *schemas, _CLASS, "--set", "partitions=2", "--set", "replicas=1")
    events = _events(0, 400)
    _write(anew, events)
    submitted = anew.done(
        "job",
        "submit",
        "delay_class",
        f"{code}:classify",
        "--input",
        "events=events",
        "--output",
        "store:delays",
    )
    assert [(each["number"], each["status"]) for each in submitted["generations"]] == [(1, "ready")]
    anew.here("job", "run", "delay_class@1")

    def served() -> dict[str, str]:
        return {json.loads(key): value["class"] for key, value in anew.scan("delays").items()}

    wait_until(lambda: anew.here("job", "show", "delay_class")["live"] == 1, "the first generation to serve", 60)
    wait_until(lambda: served() == _wanted(events, 15), "the first generation", 120)
    pid = _driver(anew, 1)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    more = _events(400, 100)
    _write(anew, more)
    events |= more
    wait_until(lambda: served() == _wanted(events, 15), "another driver", 120)
    assert _driver(anew, 1) != pid
    with _reading(anew, list(events)) as wrong:
        rewound = anew.here("job", "rewind", "delay_class", f"{code}:classify", "--param", "severe=30", "--no-trial")
        assert [each["number"] for each in rewound["generations"]] == [1, 2]
        wait_until(lambda: _generation(anew, 2)["caught_up"], "the rewind to catch up", 120)
        assert served() == _wanted(events, 15)
        anew.here("job", "cutover", "delay_class")
        assert served() == _wanted(events, 30)
        wait_until(lambda: _generation(anew, 1)["caught_up"], "the old one to be looked at", 60)
        anew.here("job", "cutback", "delay_class")
        assert served() == _wanted(events, 15)
        wait_until(lambda: _generation(anew, 2)["caught_up"], "the new one to be looked at", 60)
        anew.here("job", "cutover", "delay_class")
        assert served() == _wanted(events, 30)
    assert wrong == []
    anew.here("job", "reclaim", "delay_class@1", "--force")
    function = (f"{code}:classify", "--param", "severe=20", "--no-trial")
    deployed = anew.here("job", "deploy", "delay_class", *function, "--stop")
    assert (deployed["live"], [each["status"] for each in deployed["generations"]][1:]) == (3, ["retired", "running"])
    assert not _generation(anew, 2)["driver"]
    later = _events(500, 100)
    _write(anew, later)
    wait_until(lambda: served() == _wanted(events, 30) | _wanted(later, 20), "what was deployed", 120)
    anew.here("job", "stop", "delay_class")
    wait_until(lambda: not _generation(anew, 3)["driver"], "the driver to stop", 60)
    # In the foreground of a terminal, until Ctrl-C.
    here = anew.start("job", "run", "delay_class", "--foreground", "--json")
    last = _events(600, 100)
    _write(anew, last)
    wanted = _wanted(events, 30) | _wanted(later | last, 20)
    wait_until(lambda: served() == wanted, "what is driven in the foreground", 120)
    assert _driver(anew, 3) is not None
    here.send_signal(signal.SIGINT)
    told, failed = here.communicate(timeout=120)
    assert (here.returncode, json.loads(told)["generations"][2]["status"]) == (0, "stopped"), failed[-2_000:]


def test_a_function_that_cannot_be_run_is_refused_before_anything_is_made(anew: Anew, tmp_path: Path) -> None:
    """It is tried in a process of its own: what is wrong is named, and no job is left."""
    code = tmp_path / "bad.py"
    code.write_text("def classify(events):\n    return events.limit(3)\n", encoding="utf-8")
    schemas = ("--key-schema", _KEY, "--value-schema")
    for name, schema in (("bad_events", _EVENT), ("bad_classes", _CLASS)):
        anew.here("topic", "create", name, "--partitions", "1", *schemas, schema)
    options = ("--input", "events=bad_events", "--output", "topic:bad_classes")
    refused = anew.run("job", "submit", "bad", f"{code}:classify", *options)
    assert (refused.code, refused.error["code"]) == (2, "stateful_operator")
    missing = anew.run_here("job", "submit", "bad", f"{code}:other", *options)
    assert (missing.code, missing.error["code"]) == (2, "no_function")
    assert "bad" not in [job["name"] for job in anew.here("job", "list")]
