"""The main story of the guide of reprocessing, on real data, through the same commands that a user types."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anew.demo.classreader import STORE
from anew.demo.delays import CLASS_SCHEMA, CODE, EVENT_SCHEMA, FAULTY_MINUTES, RIGHT_MINUTES, classes, departures
from anew.demo.departing import TOPIC, write_flights
from anew.demo.flights import KEY, KEY_SCHEMA
from anew.demo.stage import FABRIC, Stage, running, staged, stop, wait_for
from anew.runtime.connect import connect

JOB = "delay_class"
_DEPARTURES_PER_SECOND = 400.0


@dataclass(slots=True)
class Check:
    """Every key compared with what pandas computes in one piece."""

    minutes: int
    keys: int
    different: int
    missing: int
    extra: int

    @property
    def right(self) -> bool:
        """Whether nothing was different, missing or left over."""
        return self.different == self.missing == self.extra == 0

    @property
    def text(self) -> str:
        """One line for people."""
        counts = f"{self.missing} missing, {self.extra} left over, {self.different} different"
        return f"severe from {self.minutes} minutes on: {self.keys:,} keys, {counts}"


@dataclass(slots=True)
class Summary:
    """What the demo saw."""

    seconds: float = 0.0
    history: int = 0
    live: int = 0
    first_seconds: float = 0.0
    rewind_seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    reader: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every check was right and no read failed, missed a key, mixed versions or got a wrong value."""
        counts = [self.reader.get(name) for name in ("failed", "missing", "mixed", "wrong")]
        return counts == [0, 0, 0, 0] and len(self.checks) > 1 and all(check.right for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        checks = [{"minutes": c.minutes, "keys": c.keys, "right": c.right} for c in self.checks]
        return {
            "passed": self.passed,
            "seconds": round(self.seconds, 1),
            "history": self.history,
            "live": self.live,
            "first_seconds": round(self.first_seconds, 1),
            "rewind_seconds": round(self.rewind_seconds, 1),
            "checks": checks,
            "reader": self.reader,
        }

    def text(self) -> str:
        """For people."""
        reader = self.reader
        lines = [
            "",
            "What happened",
            f"  A job sorted {self.history:,} departures into a store: {self.first_seconds:.0f} s until served.",
            "  Its threshold was wrong. The corrected function ran over all of it again, beside the job that served,",
            f"  while {self.live:,} more flights left: {self.rewind_seconds:.0f} s until it had caught up.",
            "  Readers were moved over, back, and over again; every key was compared with pandas:",
            *(f"    {check.text}" for check in self.checks),
            f"  A reader read {reader.get('keys', 0):,} keys all the time: {reader.get('failed')} failed reads, "
            f"{reader.get('missing')} missing keys,",
            f"    {reader.get('mixed')} batches of mixed versions, {reader.get('wrong')} wrong values; "
            f"slowest batch {reader.get('slowest_ms')} ms.",
            "",
            f"{'PASSED' if self.passed else 'FAILED'} in {self.seconds:.0f} s",
        ]
        return "\n".join(lines)


def run_demo(print_step: Callable[[str], None], *, keep: bool, every: int = 1, kafka: bool = False) -> Summary:
    """Play the story; the cluster and its home are gone afterwards unless they are kept.

    Args:
        print_step: Gets each line for people.
        keep: Whether the cluster goes on.
        every: One flight of so many is taken.
        kafka: Whether topics and feeds are those of a Kafka broker of the demo's own.

    Raises:
        Failed: A command did not do what it should.
    """
    began, summary = time.monotonic(), Summary()
    with staged(print_step, (), keep=keep) as stage:
        if kafka:
            stage.start_brokers()
        _begin(stage, every, summary)
        with running(stage.start("anew.demo.classreader", str(every))) as reader:
            with running(stage.start("anew.demo.departing", str(every), str(_DEPARTURES_PER_SECOND))) as writer:
                _rewind(stage, every, summary)
                stage.say("\n7. The last flights leave")
                summary.live = int(stop(writer))
            _cut(stage, every, summary)
            summary.reader = json.loads(stop(reader))
        stage.say("\n9. Nobody wants to go back: what the old generation owns goes after a grace")
        for part in stage.anew("job", "reclaim", f"{JOB}@1", "--dry-run")["owned"]:
            stage.say(f"   {part['what']} {part['name']}")
        stage.anew("job", "reclaim", f"{JOB}@1", "--force")
        stage.anew("job", "stop", f"{JOB}@2")
        wait_for(lambda: not any(g["driver"] for g in _generations(stage)), "the drivers to end")
        if not keep:
            stage.end()
    summary.seconds = time.monotonic() - began
    return summary


def _begin(stage: Stage, every: int, summary: Summary) -> None:
    stage.say("\n1. An embedded cluster: one controller and two nodes, each a process of its own")
    stage.anew("up", "--detach", "--nodes", "2", "--fabric", FABRIC)
    stage.say("\n2. A topic of departures, a store for what becomes of them, and eleven months of history")
    key = json.dumps(KEY_SCHEMA)
    stage.anew(
        "topic", "create", TOPIC, "--partitions", "4", "--key-schema", key, "--value-schema", json.dumps(EVENT_SCHEMA)
    )
    stage.anew(
        "store",
        "create",
        STORE,
        "--key-schema",
        key,
        "--value-schema",
        json.dumps(CLASS_SCHEMA),
        "--set",
        "partitions=4",
    )
    with connect(home=str(stage.home)) as cluster:
        summary.history = write_flights(cluster, departures(every)[0])
    stage.say(f"   {summary.history:,} departures written")
    stage.say("\n3. A job: a Python function on Spark that sorts departures by how late they were")
    code = stage.home / "delays.py"
    code.write_text(CODE, encoding="utf-8")
    began = time.monotonic()
    stage.anew(
        "job",
        "submit",
        JOB,
        f"{code}:delay_class",
        "--param",
        f"severe_minutes={FAULTY_MINUTES}",
        "--input",
        f"flights={TOPIC}",
        "--output",
        f"store:{STORE}",
    )
    stage.anew("job", "run", f"{JOB}@1")
    wait_for(lambda: _is_done(stage, 1), "the job to come to the end of the history")
    summary.first_seconds = time.monotonic() - began
    summary.checks.append(_check(stage, every, FAULTY_MINUTES))
    stage.say(f"   {summary.checks[-1].text}")


def _rewind(stage: Stage, every: int, summary: Summary) -> None:
    stage.say("\n4. Fifteen minutes are not severe. What would a rewind with the corrected threshold do?")
    code = f"{stage.home / 'delays.py'}:delay_class"
    asked = (code, "--param", f"severe_minutes={RIGHT_MINUTES}", "--from", "oldest")
    plan = stage.anew("job", "plan", JOB, *asked, "--no-trial")
    for line in (*plan["why"], f"{plan['estimate']['records']:,} records to read"):
        stage.say(f"   {line}")
    stage.say("\n5. It runs beside the job that serves, while flights go on leaving")
    began = time.monotonic()
    stage.anew("job", "rewind", JOB, *asked)

    def caught_up() -> bool:
        first, second = _generations(stage)
        stage.say(f"   live: {_shown(first)}; rewind: {_shown(second)}")
        return bool(second["caught_up"] and second["applied"])

    wait_for(caught_up, "the rewind to catch up")
    summary.rewind_seconds = time.monotonic() - began
    stage.say("\n6. Readers move over at once, back, and over again")
    for command in ("cutover", "cutback", "cutover"):
        number = 1 if command == "cutback" else 2
        wait_for(partial(_is_ready, stage, number), f"generation {number} to be near the ends")
        stage.anew("job", command, JOB)


def _cut(stage: Stage, every: int, summary: Summary) -> None:
    wait_for(lambda: _is_done(stage, 2), "the corrected job to come to the end")
    stage.say("\n8. Every key, compared with what pandas computes in one piece")
    summary.checks.append(_check(stage, every, RIGHT_MINUTES, summary.history + summary.live))
    stage.say(f"   {summary.checks[-1].text}")


def _check(stage: Stage, every: int, minutes: int, written: int | None = None) -> Check:
    wanted = classes(every, minutes)
    before, december = departures(every)
    count = len(before) if written is None else written
    keys = [tuple(key[name] for name in KEY) for key, _ in [*before, *december][:count]]
    held = {}
    with connect(home=str(stage.home)) as cluster:
        for row in cluster.store(STORE).scan():
            key = {**row.key, "time_hour": row.key["time_hour"].strftime("%Y-%m-%dT%H:%M:%SZ")}
            held[tuple(key[name] for name in KEY)] = row.value["class"]
    different = sum(key in held and held[key] != wanted[key] for key in keys)
    return Check(minutes, len(held), different, len(set(keys) - held.keys()), len(held.keys() - set(keys)))


def _generations(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.quietly("job", "show", JOB)["generations"]
    return found


def _is_done(stage: Stage, number: int) -> bool:
    view = stage.quietly("job", "show", JOB)
    found = next(each for each in view["generations"] if each["number"] == number)
    return view["live"] == number and found["lag_records"] == 0 and bool(found["applied"])


def _is_ready(stage: Stage, number: int) -> bool:
    found = next(each for each in _generations(stage) if each["number"] == number)
    return bool(found["caught_up"] and found["applied"])


def _shown(generation: dict[str, Any]) -> str:
    left = generation["seconds_left"]
    pace = f"{generation['records_per_s'] or 0:,.0f} records/s"
    return f"{generation['lag_records']:,} behind at {pace}, {'?' if left is None else f'{left:.0f} s'} left"
