"""Taking turns, medians, and how a bench's outcome is shown."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

REPETITIONS = 3
_PACKAGES = ("anew", "pyspark", "pyarrow", "rocksdict")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a bench found.

    Attributes:
        bench: Its name.
        figures: Measured values and what they were measured on.
        ratios: The comparisons.
    """

    bench: str
    figures: dict[str, Any]
    ratios: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line: ``{"bench", "figures", "ratios"}``."""
        return json.dumps({"bench": self.bench, "figures": self.figures, "ratios": self.ratios})

    def table(self) -> str:
        """Both parts as aligned lines."""
        rows = [(name, _shown(value)) for name, value in {**self.figures, **self.ratios}.items()]
        width = max(len(name) for name, _ in rows)
        return "\n".join([self.bench, *(f"  {name.ljust(width)}  {value}" for name, value in rows)])


def take_turns(sides: Mapping[str, Callable[[], float]], warm_ups: int = 1) -> dict[str, float]:
    """The median seconds of each side; sides alternate, so that a slow spell of the machine strikes all of them.

    Each callable runs its side once and returns the seconds that count.
    """
    for _ in range(warm_ups):
        for run in sides.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(REPETITIONS):
        for name, run in sides.items():
            seconds[name].append(run())
    return {name: statistics.median(times) for name, times in seconds.items()}


def timed(work: Callable[[], object]) -> float:
    """The seconds that some work took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}",
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 1_000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
