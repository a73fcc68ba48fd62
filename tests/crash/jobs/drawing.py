"""What happens in a history: drawn from its seed, and nothing of it while it runs.

A history is of one job, its input of three partitions or more, and its output, a store or a topic. Its steps:

``write``: events are written, and something else happens at once, or all of them arrive first (``settle``).
``kill``: the driver of the live generation dies at a point of a batch, or stands still there until another took over.
``rest``: the live generation is stopped, and runs again after more was written.
``rewind``: a generation begins beside the live one. ``cut_over``, ``cut_back``: readers go there, and back.
``reclaim``: the generation beside the live one goes. ``deploy``: other code goes on where the live one ended.
``grow``: the input gets one more partition, over which events are spread from then on.
``repush``: the store is repushed. ``refuse``: a rewind that would lack a base is refused, and changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

PARTITIONS, KEYS_EACH = 3, 6
"""Of the input at first, and how many keys lie in each."""
FUNCTIONS = ("coarse", "deleting", "doubled", "filtered", "late", "plain", "rekeyed")
POINTS = ("any", "append", "record", "still")
"""Where a driver dies: at any time, behind the append of a batch, behind its record; or it stands still (append)."""

Start = str | tuple[tuple[int, float], ...]
"""``oldest``, ``newest``, or (partition, share of its records that lie before) of some partitions."""
_DRIVERS = (1, 2, 3)
_AGO_MS = (None, None, None, 0, 0, 0, 5_000, 5_000, 40_000, 10_000_000)
"""How long before the history an event happened; None: the log says when it was appended."""
_GONE, _AGAIN = 0.15, 0.5


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its place among the keys, what it holds, and when it happened; see `_AGO_MS`."""

    partition: int
    key: int
    number: int
    serial: int
    ago_ms: int | None
    deleted: bool


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens; see the module."""

    what: str
    events: tuple[Event, ...] = ()
    point: str = ""
    function: str = ""
    start: Start = "oldest"
    settle: bool = True

    def __str__(self) -> str:
        said = (self.point, self.function, str(self.start) if self.function else "")
        return " ".join(filter(None, (self.what, *said, f"({len(self.events)} events)" if self.events else "")))


@dataclass(frozen=True, slots=True)
class History:
    """The history of a seed.

    Attributes:
        output: ``store`` or ``topic``.
        function, start: Of the first generation.
        partitions: Of the output.
        max_records: Of a batch.
        quiet: The partition of the input that has no record before it wakes, if it does.
    """

    seed: int
    output: str
    function: str
    start: Start
    partitions: int
    max_records: int
    quiet: int
    before: tuple[Event, ...]
    steps: tuple[Step, ...]


def history_of(seed: int) -> History:
    """The history of a seed; the first ones of a run have stores and topics by turns, so that few seeds have both."""
    drawing = _Drawing(random.Random(seed), "topic" if seed % 3 == 2 else "store")
    chance, quiet = drawing.chance, drawing.quiet
    return History(
        seed=seed,
        output=drawing.output,
        function=FUNCTIONS[seed % len(FUNCTIONS)],
        start=drawing.start(seed),
        partitions=chance.choice((1, 2)),
        max_records=chance.choice((15, 60, 100_000)),
        quiet=quiet,
        before=drawing.events(30, 60),
        steps=tuple(drawing.grown(drawing.steps())),
    )


class _Drawing:
    """What is drawn of one seed."""

    def __init__(self, chance: random.Random, output: str) -> None:
        self.chance, self.output = chance, output
        self.quiet = chance.randrange(PARTITIONS)
        self._wakes_in = chance.choice((1, 2, 4, 100))
        self._serial = 0

    def events(self, least: int, most: int) -> tuple[Event, ...]:
        """Some events, of keys of the partitions that are awake; equal times are frequent."""
        self._wakes_in -= 1
        awake = [p for p in range(PARTITIONS) if p != self.quiet or self._wakes_in <= 0]
        return tuple(self._event(awake) for _ in range(self.chance.randint(least, most)))

    def _event(self, awake: Sequence[int]) -> Event:
        chance, self._serial = self.chance, self._serial + 1
        partition, key = chance.choice(awake), chance.randrange(KEYS_EACH)
        deleted = chance.random() < 0.2
        return Event(partition, key, chance.randrange(100), self._serial, chance.choice(_AGO_MS), deleted)

    def start(self, seed: int | None = None) -> Start:
        """From where a generation reads: each kind by turns for the first ones of seeds."""
        kind = ("oldest", "offsets", "newest")[(self.chance.randrange(3) if seed is None else seed // 2) % 3]
        if kind != "offsets":
            return kind
        named = self.chance.sample(range(PARTITIONS), self.chance.randint(1, PARTITIONS))
        return tuple((partition, round(self.chance.random(), 2)) for partition in sorted(named))

    def steps(self) -> list[Step]:
        """What happens, as long as there are drivers left for it: each of them is a JVM."""
        left = self.chance.choice(_DRIVERS)
        found = [Step("write", self._some())] if self.chance.random() < 0.5 else []
        while left > 0:
            left -= 1
            what = self.chance.choice(("kill", "kill", "rewind", "rewind", "rewind", "rest", "deploy"))
            if what == "rewind":
                found += self._rewind()
            elif what == "kill":
                found.append(self._kill())
            else:
                found.append(Step(what, self._some(), function=self._function() if what == "deploy" else ""))
            if self.chance.random() < 0.5:
                found.append(self._between())
        return [*found, Step("write", self._some())]

    def grown(self, steps: list[Step]) -> list[Step]:
        """The steps, in some histories with partitions that are added in between, whatever is going on there."""
        for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
            grow = Step("grow", self._some(), settle=self.chance.random() < 0.4)
            steps.insert(self.chance.randrange(len(steps)), grow)
        return steps

    def _between(self) -> Step:
        if self.output == "topic":
            return self._write()
        return self.chance.choice((self._write(), Step("repush"), Step("refuse", function=self._function())))

    def _rewind(self) -> list[Step]:
        start = "oldest" if self.output == "store" else self.start()
        found = [Step("rewind", function=self._function(), start=start)]
        found += [self._beside() for _ in range(self.chance.randint(0, 2))]
        if start != "oldest" or self.chance.random() < _GONE:
            return [*found, Step("reclaim")]
        found.append(Step("cut_over", self._maybe()))
        if self.chance.random() < _AGAIN:
            found.append(Step("cut_back", self._maybe()))
            if self.chance.random() < _AGAIN:
                found.append(Step("cut_over", self._maybe()))
        return [*found, Step("reclaim")]

    def _beside(self) -> Step:
        return Step("repush") if self.output == "store" and self.chance.random() < 0.4 else self._write()

    def _kill(self) -> Step:
        return Step("kill", self._some(), point=self.chance.choice(POINTS))

    def _write(self) -> Step:
        return Step("write", self._some(), settle=self.chance.random() < 0.4)

    def _some(self) -> tuple[Event, ...]:
        return self.events(8, 30)

    def _maybe(self) -> tuple[Event, ...]:
        return self._some() if self.chance.random() < 0.5 else ()

    def _function(self) -> str:
        return self.chance.choice(FUNCTIONS)
