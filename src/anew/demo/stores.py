"""The main story of the repush guide, on real data, through the same commands that a user types."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from anew.core.errors import Failed
from anew.demo.flights import KEY, KEY_SCHEMA, VALUE_SCHEMA, account, extract, key_text
from anew.demo.stage import FABRIC, Stage, running, staged, stop, wait_for
from anew.demo.writer import STORE
from anew.log.open import open_log
from anew.runtime.clock import now_ms
from anew.runtime.home import Home
from anew.runtime.settings import resolve
from anew.segments.layout import records_path, store_path

_AFTER_SWAP = 3_000
"""How many writes are to come after the swap, so that the rollback has something to prove."""


@dataclass(slots=True)
class Check:
    """Every key of one version compared with the independent account."""

    version: int
    keys: int
    missing: int
    extra: int
    different: int

    @property
    def right(self) -> bool:
        """Whether nothing was missing, left over or different."""
        return self.missing == self.extra == self.different == 0

    @property
    def text(self) -> str:
        """One line for people."""
        counts = f"{self.missing} missing, {self.extra} left over, {self.different} different"
        return f"version {self.version}: {self.keys:,} keys, {counts}"


@dataclass(slots=True)
class Summary:
    """What the demo saw."""

    seconds: float = 0.0
    pushed: int = 0
    push_seconds: float = 0.0
    writes: int = 0
    writes_after_swap: int = 0
    ledger: dict[str, int] = field(default_factory=dict)
    repush_seconds: float = 0.0
    changes: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    reader: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every check was right and no read failed, mixed versions or got a wrong value."""
        reads = self.reader.get("failed") == self.reader.get("mixed") == self.reader.get("wrong") == 0
        return reads and bool(self.checks) and all(check.right for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        checks = [
            {"version": c.version, "keys": c.keys, "missing": c.missing, "extra": c.extra, "different": c.different}
            for c in self.checks
        ]
        return {
            "passed": self.passed,
            "seconds": self.seconds,
            "pushed": self.pushed,
            "writes": self.writes,
            "writes_after_swap": self.writes_after_swap,
            "ledger": self.ledger,
            "changes": self.changes,
            "checks": checks,
            "reader": self.reader,
        }

    def text(self) -> str:
        """For people."""
        changes = ", ".join(f"{c['setting']} {c['now']} → {c['wanted']}" for c in self.changes)
        ledger = " + ".join(f"{n:,} {name}" for name, n in self.ledger.items() if name != "read" and n)
        reader = self.reader
        lines = [
            "",
            "What happened",
            f"  A full push put {self.pushed:,} flights (January to November) into service: {self.push_seconds:.0f} s.",
            f"  A writer streamed {self.writes:,} changes on top: December, corrections, deletes.",
            f"  A repush under that load changed {changes} in {self.repush_seconds:.0f} s:",
            f"    {self.ledger.get('read', 0):,} records read = {ledger}.",
            "  Every key was compared with an account made without anew:",
        ]
        lines += [f"    {c.text}" for c in self.checks]
        versions = " → ".join(str(v) for v in reader.get("versions", []))
        lines += [
            f"  The version rolled back to also had the {self.writes_after_swap:,} writes made after the swap.",
            f"  A reader read {reader.get('keys', 0):,} keys all the time while versions went {versions}:",
            f"    {reader.get('failed')} failed reads, {reader.get('mixed')} batches of mixed versions, "
            f"{reader.get('wrong')} wrong values; slowest batch {reader.get('slowest_ms')} ms.",
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
        kafka: Whether nearline writes go through a Kafka broker of the demo's own.

    Raises:
        Failed: A command did not do what it should.
    """
    began, summary = time.monotonic(), Summary()
    outliving = ("catalog", "deep_store") if kafka else ("catalog", "deep_store", "log")
    with staged(print_step, outliving, keep=keep) as stage:
        base, december = extract(stage.home / "data", every)
        journal = stage.home / "data" / "journal.jsonl"
        if kafka:
            stage.start_brokers()
        _push(stage, base, summary)
        print_step("\n4. A writer process streams December in; a reader process reads all the time")
        with running(stage.start("anew.demo.writer", str(base), str(december), str(journal))) as writer:
            wait_for(lambda: _lines(journal) > 0, "the writer's first write")
            with running(stage.start("anew.demo.reader", str(base))) as reader:
                at_swap = _reconfigure(stage, journal, summary)
                wait_for(lambda: _lines(journal) >= at_swap + _AFTER_SWAP, "writes after the swap")
                position = stop(writer)
                summary.writes = _lines(journal)
                summary.writes_after_swap = summary.writes - at_swap
                _verify(stage, (base, journal), position, summary)
                summary.reader = json.loads(stop(reader))
        if not keep:
            uid = stage.anew("store", "show", STORE)["uid"]
            if stage.outlived_by:
                # It outlives the home: without the store's files, its row would be in the way of the next demo.
                stage.anew("store", "delete", STORE, "--yes")
            stage.end()
            if "deep_store" in stage.outlived_by:
                _remove_files(uid)
            if "log" in stage.outlived_by:
                _remove_topic()
    summary.seconds = time.monotonic() - began
    return summary


def _remove_files(uid: str) -> None:
    """Remove what the demo's store left in a deep store that outlives the home."""
    from anew.runtime.outside import cluster_deep_store

    settings = resolve({})
    deep_store = cluster_deep_store(settings, Home(settings.home), FABRIC)
    for directory in (store_path(uid), records_path(uid)):
        deep_store.delete_tree(directory)


def _remove_topic() -> None:
    """Remove the topic of the demo's store from a log that outlives the home."""
    from anew.runtime.outside import log_location

    settings = resolve({})
    log = open_log(log_location(settings, Home(settings.home), FABRIC), clock=now_ms)
    topic = log.topic(f"{STORE}_rt")
    if topic is not None:
        log.delete_topic(topic.name, topic.uid)
    log.close()


def _push(stage: Stage, base: Path, summary: Summary) -> None:
    stage.say("\n1. An embedded cluster: one controller and two nodes, each a process of its own")
    stage.anew("up", "--detach", "--nodes", "2", "--fabric", FABRIC)
    stage.say("\n2. A hybrid store for flights: 4 partitions, no compression")
    schemas = ("--key-schema", json.dumps(KEY_SCHEMA), "--value-schema", json.dumps(VALUE_SCHEMA))
    stage.anew("store", "create", STORE, *schemas, "--set", "hybrid=true", "--set", "partitions=4")
    stage.say("\n3. A full push of January to November, with Spark")
    began = time.monotonic()
    pushed = stage.anew("push", STORE, str(base), "--key", ",".join(KEY), "--option", "nullValue=NA")
    summary.push_seconds = time.monotonic() - began
    summary.pushed = pushed["ledger"]["written"]


def _reconfigure(stage: Stage, journal: Path, summary: Summary) -> int:
    """Change the configuration and repush under load; returns how many writes there were at the swap."""
    stage.say("\n5. Another configuration: it is pending until a repush, whose plan and cost are shown")
    updated = stage.anew("store", "update", STORE, "--set", "partitions=8", "--set", "compression=zstd")
    summary.changes = updated["pending"]
    for change in updated["pending"]:
        stage.say(f"   pending: {change['setting']} {change['now']} → {change['wanted']}")
    estimate = updated["repush"]["estimate"]
    stage.say(f"   a repush would read about {estimate['records']:,} records, {estimate['bytes']:,} bytes")
    stage.say("\n6. The repush, while the writer writes and the reader reads")
    began = time.monotonic()
    done = stage.anew("repush", STORE)
    summary.repush_seconds, summary.ledger = time.monotonic() - began, done["ledger"]
    stage.say("   ledger: " + ", ".join(f"{count:,} {name}" for name, count in done["ledger"].items()))
    return _lines(journal)


def _verify(stage: Stage, sources: tuple[Path, Path], position: str, summary: Summary) -> None:
    """Check every key on the new version, after a rollback, and after the swap forward."""
    stage.say("\n7. Every key against an account made without anew; then back, and forward again")
    expected = account(*sources)
    stage.anew("store", "wait", STORE, "--position", position)
    summary.checks.append(_check(stage, expected))
    stage.anew("rollback", STORE)
    stage.anew("store", "wait", STORE, "--position", position)
    summary.checks.append(_check(stage, expected))
    stage.anew("swap", STORE, str(summary.checks[0].version))
    stage.anew("store", "wait", STORE, "--position", position)
    summary.checks.append(_check(stage, expected))


def _check(stage: Stage, expected: dict[str, dict[str, Any]]) -> Check:
    version = next(iter(stage.anew("store", "show", STORE)["fabrics"].values()))["current"]
    command = [sys.executable, "-m", "anew.cli", "scan", STORE, "--version", str(version)]
    different = extra = seen = 0
    with subprocess.Popen(command, env=stage.environment, stdout=subprocess.PIPE, text=True) as scan:
        for line in _stream(scan.stdout):
            row = json.loads(line)
            held = expected.get(key_text(row["key"]))
            seen += 1
            extra += held is None
            different += held is not None and held != row["value"]
    if scan.returncode != 0:
        raise Failed("demo_command_failed", "the scan failed", found=scan.returncode, expected=0)
    check = Check(version, seen, len(expected) - (seen - extra), extra, different)
    stage.say(f"   {check.text}")
    return check


def _stream(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise AssertionError("the process was started with a pipe")
    return pipe


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as source:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: source.read(1 << 20), b""))
