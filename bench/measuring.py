"""What a bench is: sizes, sides that take turns, claims with their targets, and how the outcome is shown."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often each side runs: first unmeasured, then measured."""

    warm_ups: int
    repetitions: int


THOROUGH, QUICK = Repeats(2, 5), Repeats(0, 1)
"""What figures are taken with, and what only shows that a bench runs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found with one size.

    Attributes:
        size: How many units of work (see `Bench.unit`).
        seconds: Side → the seconds of its repetitions.
        values: Other measurements, numbers by name (peak memory, for example).
        figures: What else should be known.
    """

    size: int
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)

    def median(self, side: str) -> float:
        """The median seconds of a side."""
        return statistics.median(self.seconds[side])

    def rate(self, side: str) -> float:
        """Units per second."""
        return self.size / self.median(side)


@dataclass(frozen=True, slots=True)
class Claim:
    """A number that a bench exists for.

    Attributes:
        name: What it is.
        of: The number, of what was measured with each size, the smallest size first.
        least: The target: at least this.
        most: The target: at most this.
    """

    name: str
    of: Callable[[Sequence[Measured]], float]
    least: float | None = None
    most: float | None = None

    def target(self) -> str:
        """The target as text."""
        bounds = [("≥", self.least), ("≤", self.most)]
        return ", ".join(f"{sign} {_number(bound)}" for sign, bound in bounds if bound is not None) or "none"

    def reached(self, value: float) -> bool | None:
        """Whether a value reaches the target; None without a target."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def times_as_fast(name: str, ours: str, theirs: str, least: float) -> Claim:
    """How many times as fast one side is as the other, with the largest size."""
    return Claim(name, lambda found: found[-1].median(theirs) / found[-1].median(ours), least=least)


@dataclass(frozen=True, slots=True)
class Bench:
    """One bench.

    Attributes:
        name: As it is asked for.
        about: What is compared, one line.
        unit: What a size counts.
        sizes: Three sizes, ascending; claims are about the largest.
        quick_sizes: Two small ones, that only show that it runs, and grows; one, where a run starts servers or JVMs.
        claims: Its numbers and targets.
        run: Measures with each size, below an empty folder.
        seed: Of its data.
        check: Raises an ``AnewError`` where the machine lacks what the bench needs; it is then skipped.
    """

    name: str
    about: str
    unit: str
    sizes: tuple[int, int, int]
    quick_sizes: tuple[int] | tuple[int, int]
    claims: tuple[Claim, ...]
    run: Callable[[Path, Sequence[int], Repeats], list[Measured]]
    seed: int
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a bench found, when, and on which machine."""

    bench: Bench
    repeats: Repeats
    date: str
    machine: Mapping[str, Any]
    measured: Sequence[Measured]

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "bench": self.bench.name,
            "about": self.bench.about,
            "date": self.date,
            "machine": dict(self.machine),
            "seed": self.bench.seed,
            "warm_ups": self.repeats.warm_ups,
            "repetitions": self.repeats.repetitions,
            "unit": self.bench.unit,
            "measured": [_plain(found) for found in self.measured],
            "growth": self.growth(),
            "claims": [
                {
                    "name": claim.name,
                    "value": round(value, 3),
                    "target": claim.target(),
                    "reached": claim.reached(value),
                }
                for claim, value in self._claims()
            ],
        }

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.as_json(), ensure_ascii=False)

    def growth(self) -> dict[str, float]:
        """How each side's seconds, and each value, grow with the size: 1 is in proportion, 0 is not at all.

        Empty where there is one size.
        """
        sizes = [found.size for found in self.measured]
        if len(sizes) < 2:
            return {}
        sides = {name: [found.median(name) for found in self.measured] for name in self.measured[-1].seconds}
        values = {name: [found.values[name] for found in self.measured] for name in self.measured[-1].values}
        return {name: round(exponent(sizes, costs), 3) for name, costs in {**sides, **values}.items()}

    def table(self) -> str:
        """As lines for people."""
        told = self.as_json()
        machine = {**told["machine"], **told["machine"]["versions"]}
        del machine["versions"]
        lines = [
            f"{self.bench.name}: {self.bench.about}",
            "  " + ", ".join(f"{name} {value}" for name, value in machine.items()),
            f"  {self.date}, seed {self.bench.seed}, {self.repeats.warm_ups} warm-ups, "
            f"{self.repeats.repetitions} repetitions, sides take turns",
        ]
        for found in self.measured:
            lines += _size_lines(found, self.bench.unit)
        if growth := self.growth():
            lines.append("  grows with the size to the power of: " + _joined(growth))
        for claim, value in self._claims():
            reached = {True: "reached", False: "NOT reached", None: ""}[claim.reached(value)]
            lines.append(f"  {claim.name}: {_number(value)} (target {claim.target()}) {reached}".rstrip())
        return "\n".join(lines)

    def _claims(self) -> list[tuple[Claim, float]]:
        return [(claim, claim.of(self.measured)) for claim in self.bench.claims]


def take_turns(sides: Mapping[str, Callable[[], float]], repeats: Repeats) -> dict[str, list[float]]:
    """The seconds of each side; sides alternate, so that a slow spell of the machine strikes all of them.

    Each callable runs its side once and returns the seconds that count.
    """
    for _ in range(repeats.warm_ups):
        for run in sides.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats.repetitions):
        for name, run in sides.items():
            seconds[name].append(run())
    return seconds


def timed(work: Callable[[], object]) -> float:
    """The seconds that some work took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The least-squares slope of log cost against log size."""
    x, y = np.log(np.asarray(sizes, dtype=np.float64)), np.log(np.maximum(np.asarray(costs, dtype=np.float64), 1e-9))
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / (x * x).sum())


def _plain(found: Measured) -> dict[str, Any]:
    sides = {
        name: {
            "median_seconds": round(statistics.median(seconds), 3),
            "min_seconds": round(min(seconds), 3),
            "max_seconds": round(max(seconds), 3),
            "per_second": round(found.rate(name)),
        }
        for name, seconds in found.seconds.items()
    }
    return {"size": found.size, "sides": sides, "values": dict(found.values), "figures": dict(found.figures)}


def _size_lines(found: Measured, unit: str) -> list[str]:
    lines = [f"  {found.size:,} {unit}" + (f" ({_joined(found.figures)})" if found.figures else "")]
    width = max((len(name) for name in [*found.seconds, *found.values]), default=0)
    for name, seconds in found.seconds.items():
        spread = f"{min(seconds):.3f} – {max(seconds):.3f}"
        lines.append(f"    {name:<{width}}  {found.median(name):8.3f} s ({spread})  {found.rate(name):>12,.0f}/s")
    lines += [f"    {name:<{width}}  {_number(value)}" for name, value in found.values.items()]
    return lines


def _joined(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
