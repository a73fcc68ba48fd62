"""The main story of the guide on deep-store sync, on real data, through the same commands that a user types."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anew.demo.scenarios import Row, play_scenarios
from anew.demo.stage import FABRIC, Stage, running, staged, stop, wait_for
from anew.demo.trips import CHANGED, COLUMNS, TABLE, months, write_schema, write_trips

_QUERIES = (
    "SELECT carrier, count(*), round(avg(arr_delay), 1) AS late FROM trips GROUP BY 1 ORDER BY 2 DESC LIMIT 3",
    "SELECT round(wind_speed / 10) * 10, round(avg(dep_delay), 1) FROM trips GROUP BY 1 ORDER BY 1 LIMIT 4",
)
_JOINING_NODES = 3


@dataclass(slots=True)
class Summary:
    """What the demo saw."""

    seconds: float = 0.0
    loaded: int = 0
    segments: int = 0
    load_seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)
    drift: int = 0
    refreshed: int = 0
    refresh_seconds: float = 0.0
    joined: int = 0
    rewritten_by_joining: int = -1
    months_right: bool = False
    reader: dict[str, Any] = field(default_factory=dict)
    scenarios: list[Row] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every answer was right and nothing was rebuilt twice."""
        answers = self.reader.get("failed") == self.reader.get("wrong") == 0 and self.months_right
        refreshed = self.refreshed == self.drift == self.segments > 0
        return answers and refreshed and self.rewritten_by_joining == 0 and all(row.right for row in self.scenarios)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "passed": self.passed,
            "seconds": self.seconds,
            "loaded": self.loaded,
            "segments": self.segments,
            "reasons": self.reasons,
            "drift": self.drift,
            "refreshed": self.refreshed,
            "joined": self.joined,
            "rewritten_by_joining": self.rewritten_by_joining,
            "reader": self.reader,
            "scenarios": [row.to_json() for row in self.scenarios],
        }

    def text(self) -> str:
        """For people."""
        reader = self.reader
        lines = [
            "",
            "What happened",
            f"  A load made {self.segments} segments of {self.loaded:,} trips: {self.load_seconds:.0f} s.",
            "  Then the configuration changed:",
            *(f"    {reason}" for reason in self.reasons),
            f"  A reload of the nodes alone left {self.drift} segments of the deep store behind: drift.",
            f"  One refresh rebuilt {self.refreshed} segments, once each: {self.refresh_seconds:.0f} s.",
            f"  A fresh node joined with {self.joined} segments and rewrote {self.rewritten_by_joining} rows.",
            f"  A reader asked {reader.get('asked', 0)} times all the while: {reader.get('failed')} failed, "
            f"{reader.get('wrong')} wrong; the slowest took {reader.get('slowest_ms')} ms.",
            "",
            *self._table(),
            f"{'PASSED' if self.passed else 'FAILED'} in {self.seconds:.0f} s",
        ]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """The guide's scenario table, if it was played."""
        if not self.scenarios:
            return []
        head = "What a refresh does, by case and mode (from runs just now)"
        return [head, *(f"  {line}" for line in Row.lines(self.scenarios)), ""]


def run_demo(print_step: Callable[[str], None], *, keep: bool, every: int = 1, scenarios: bool = True) -> Summary:
    """Play the story; the cluster and its home are gone afterwards unless they are kept.

    Args:
        print_step: Gets each line for people.
        keep: Whether the cluster goes on.
        every: One flight of so many is taken.
        scenarios: Whether the guide's scenario table is played as well.

    Raises:
        Failed: A command did not do what it should.
    """
    began, summary = time.monotonic(), Summary()
    with staged(print_step, (), keep=keep) as stage:
        data = stage.home / "data"
        data.mkdir()
        trips = data / "trips.csv"
        summary.loaded = write_trips(trips, every)
        _load(stage, trips, summary)
        stage.say("\n4. A reader process asks all the time from now on")
        with running(stage.start("anew.demo.asker", str(trips))) as reader:
            _change(stage, data, summary)
            _refresh(stage, summary)
            summary.reader = json.loads(stop(reader))
        _join(stage, trips, summary)
        if scenarios:
            stage.say("\n9. The guide's scenario table, played")
            summary.scenarios = play_scenarios(stage, data)
        if not keep:
            stage.end()
    summary.seconds = time.monotonic() - began
    return summary


def _load(stage: Stage, trips: Path, summary: Summary) -> None:
    stage.say("\n1. An embedded cluster: one controller and two nodes, each a process of its own")
    stage.anew("up", "--detach", "--nodes", "2", "--fabric", FABRIC)
    stage.say("\n2. A table of trips, a segment for each month, loaded with Spark")
    schema = write_schema(trips.parent / "schema.json", COLUMNS)
    settings = ("time_column=left_at", "bucket=month", "sort=left_at")
    stage.anew("table", "create", TABLE, "--schema", str(schema), *(w for s in settings for w in ("--set", s)))
    began = time.monotonic()
    stage.anew("table", "load", TABLE, str(trips), "--prefix", TABLE, "--option", "nullValue=NA")
    summary.load_seconds = time.monotonic() - began
    _await_served(stage)
    summary.segments = len(_segments(stage))
    stage.say("\n3. Queries, on a node, over the segments")
    for sql in _QUERIES:
        for row in stage.anew("table", "query", sql)["rows"]:
            stage.say(f"   {row}")


def _change(stage: Stage, data: Path, summary: Summary) -> None:
    stage.say("\n5. Another sort column, a bloom filter, another type, a derived column: what is stale, and why")
    schema = write_schema(data / "changed.json", CHANGED)
    config = data / "changed-config.json"
    derived = {"miles_per_hour": "distance / (air_time / 60)"}
    config.write_text(json.dumps({"sort": ["carrier", "left_at"], "bloom": {"tailnum": 0.01}, "derived": derived}))
    stage.anew("table", "update", TABLE, "--schema", str(schema), "--config", str(config))
    plan = stage.anew("table", "refresh", TABLE, "--dry-run")
    summary.reasons = plan["segments"][0]["reasons"]
    for planned in plan["segments"][:2]:
        stage.say(f"   {planned['segment']}: {'; '.join(planned['reasons'])}")
    stage.say(f"   … {len(plan['segments'])} segments in all")
    stage.say("\n6. Nodes reload their own copies: the deep store keeps the old bytes, and everybody can see it")
    stage.anew("table", "reload", TABLE)
    wanted = stage.anew("table", "show", TABLE)["config_hash"]
    wait_for(lambda: _hashes(stage) == {wanted}, "nodes to reload")
    left = stage.anew("table", "refresh", TABLE, "--reload-only", "--dry-run")
    summary.drift = len(left["drift"])
    stage.say(f"   the guide's reloadOnly would do nothing: {len(left['segments'])} segments; drift: {summary.drift}")


def _refresh(stage: Stage, summary: Summary) -> None:
    stage.say("\n7. One refresh: each segment is rebuilt once, in the deep store, while the reader asks")
    began = time.monotonic()
    done = stage.anew("table", "refresh", TABLE)
    summary.refresh_seconds = time.monotonic() - began
    summary.refreshed = len(done["refreshed"])
    _await_served(stage)


def _join(stage: Stage, trips: Path, summary: Summary) -> None:
    stage.say("\n8. A fresh node joins: it loads what is in the deep store, and rebuilds nothing")
    stage.anew("down")
    stage.anew("up", "--detach", "--nodes", str(_JOINING_NODES))
    stage.anew("table", "update", TABLE, "--set", f"replicas={_JOINING_NODES}")
    wait_for(lambda: _replicas(stage) == _JOINING_NODES * summary.segments, "the node to join")
    _await_served(stage)
    copies = [copy for segment in _segments(stage) for copy in segment["replicas"] if copy["node"] == "node-3"]
    summary.joined, summary.rewritten_by_joining = len(copies), sum(copy["rebuilt_rows"] for copy in copies)
    stage.say(f"   node-3 serves {summary.joined} segments and rewrote {summary.rewritten_by_joining} rows")
    sql = "SELECT strftime(left_at, '%Y-%m'), count(*)::BIGINT, sum(distance)::BIGINT FROM trips GROUP BY 1 ORDER BY 1"
    found = stage.anew("table", "query", sql, "--node", "node-3")["rows"]
    summary.months_right = {month: (count, miles) for month, count, miles in found} == months(trips)


def _segments(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.quietly("table", "segments", TABLE)
    return found


def _hashes(stage: Stage) -> set[str | None]:
    return {copy["config_hash"] for segment in _segments(stage) for copy in segment["replicas"]}


def _replicas(stage: Stage) -> int:
    return sum(len(segment["replicas"]) for segment in _segments(stage))


def _await_served(stage: Stage) -> None:
    def served() -> bool:
        found = _segments(stage)
        copies = [(segment, copy) for segment in found for copy in segment["replicas"]]
        return bool(copies) and all(
            copy["state"] == "serving" and copy["build"] == segment["build"] for segment, copy in copies
        )

    wait_for(served, "nodes to serve the segments")
