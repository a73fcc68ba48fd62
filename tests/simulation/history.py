"""A history: how the world is made, and the steps that happen in it. A value: the same history runs the same way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

SKEW_LIMIT_SECONDS = 2
"""How far clocks may be apart: what is further apart is wrong, and nothing is promised then (rules R6, R12)."""
KEYS = tuple(f"k{number}" for number in range(8))
HARD = frozenset(
    {"sick_disk", "crash", "doom", "stop", "cut_off", "lose_node", "recreate", "lose_tail", "configure", "foul"}
)
"""Steps that may keep a reader from an answer for a while."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    Attributes:
        what: A method of `tests.simulation.run.Story`.
        arguments: Its arguments.
        wait_ms: How long after it the next one begins.
    """

    what: str
    arguments: tuple[Any, ...] = ()
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """Everything that decides what happens.

    Attributes:
        seed: Of the order of events, delays and faults.
        trouble: How often calls fail, in thousandths; 0: never.
        monotone: Whether append times never run backwards.
        settings: Of the store.
    """

    seed: int = 0
    trouble: int = 0
    nodes: int = 2
    controllers: int = 1
    monotone: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def to_json(self) -> str:
        """The history as text, to be run again."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> History:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        steps = tuple(Step(s["what"], _tuples(s["arguments"]), s["wait_ms"]) for s in fields.pop("steps"))
        return cls(**fields, steps=steps)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


_Named = tuple[str, SearchStrategy[Step]]
_TOUCHED = ["the log", "the catalog", "the deep store", "the controller"]
_FEW = st.integers(0, 3)
_APPENDS = st.integers(0, 3)
_WAITS = st.sampled_from([0, 200, 1_000, 3_000, 3_000, 8_000])
_KEYS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=6).map(tuple)
_AGO = st.sampled_from([None, None, None, 5_000, 0, 500, 30_000, None])
_CHANGES = st.sampled_from(
    [
        ("partitions", 1),
        ("partitions", 2),
        ("partitions", 3),
        ("amplification_factor", 2),
        ("amplification_factor", 1),
        ("compression", "gzip"),
        ("compression", "none"),
        ("compression", "zstd_dict"),
        ("transport", "log"),
        ("transport", "files"),
        ("replicas", 1),
        ("replicas", 2),
        ("hybrid", False),
        ("hybrid", True),
        ("rewind_seconds", 5),
        ("backup_retention_seconds", 3),
        ("backup_retention_seconds", 40),
        ("tombstone_grace_seconds", 0),
        ("tombstone_grace_seconds", 4),
    ]
)
_OPTIONS = st.sampled_from(["", "", "", "ttl", "defer", "combiner", "ttl", "ttl", "few", ""])


def _step(what: str, *arguments: SearchStrategy[Any]) -> _Named:
    return what, st.builds(Step, st.just(what), st.tuples(*arguments), _WAITS)


_SICKNESSES = ["full", "failing", "damaged", "no memory", "unforeseen"]
_DISK = ["ingest", "ingested", "write", "written"]
_WEIGHTED: list[tuple[int, _Named]] = [
    (14, _step("write", _KEYS, _AGO)),
    (3, _step("write_back", _KEYS)),
    (7, _step("delete", _KEYS, _AGO)),
    (5, _step("push", _KEYS, st.sampled_from([None, None, 0, 10_000]), st.booleans())),
    (14, _step("repush", _OPTIONS)),
    (3, _step("configure", _CHANGES)),
    (8, _step("reconfigure", _CHANGES)),
    (3, _step("convert", _KEYS)),
    (3, _step("roll_back")),
    (3, _step("swap", _FEW)),
    (2, _step("kill")),
    (3, _step("resume")),
    (3, _step("take_over", st.sampled_from([200, 400, 600]), st.tuples(_APPENDS, _APPENDS))),
    (3, _step("repush_unheard", _FEW, _KEYS)),
    (2, _step("hold", _FEW)),
    (3, _step("crash", st.sampled_from(["node", "controller", "driver", "executor"]), _FEW)),
    (7, _step("doom", st.just("node"), st.sampled_from(_DISK))),
    (4, _step("doom", st.sampled_from(["node", "driver", "controller", "executor"]), st.sampled_from(_TOUCHED))),
    (3, _step("stop", st.sampled_from(["node", "controller", "driver"]), _FEW, st.sampled_from([2_000, 15_000]))),
    (3, _step("sick_disk", st.sampled_from(_SICKNESSES), _FEW, st.sampled_from([1_500, 6_000]))),
    (3, _step("damage", st.sampled_from(["bit", "bit", "bit", "cut", "swapped"]), _FEW)),
    (3, _step("cut_off", st.sampled_from(["node", "driver"]), _FEW, st.sampled_from([3_000, 15_000]))),
    (2, _step("lose_node", _FEW)),
    (2, _step("add_node")),
    (2, _step("clock_back", st.sampled_from(["controller", "node"]), st.sampled_from([500, 20_000]))),
    (2, _step("foreign")),
    (3, _step("evolve")),
    (1, _step("lose_tail", st.integers(1, 3))),
    (1, _step("recreate")),
    (2, _step("collect")),
]
"""How often which step comes, about in a hundred; the simplest first, which is what a failure shrinks to."""
_FOUL: list[tuple[int, _Named]] = [
    (
        6,
        _step(
            "foul",
            st.sampled_from(["node", "controller"]),
            st.sampled_from(_SICKNESSES),
            st.sampled_from([None, *_TOUCHED]),
            _FEW,
            st.sampled_from([1_500, 9_000]),
        ),
    ),
    (3, _step("damage_log", _FEW, st.integers(0, 99), st.sampled_from([3_000, 15_000]))),
]
"""What the histories of most planted bugs do without: their seeds would come to them later."""


def steps(often: str | None = None, never: frozenset[str] = frozenset(), *, foul: bool = False) -> SearchStrategy[Step]:
    """Any step but some; one of them may be a quarter of all."""
    weighted = [*_WEIGHTED, *(_FOUL if foul else [])]
    chosen = [step for weight, (what, step) in weighted if what not in never for _ in range(weight)]
    wanted = [step for _, (what, step) in weighted if what == often]
    chosen += wanted * (len(chosen) // 3)
    # Not the list's own method: its representation would be that of the whole list.
    return st.integers(0, len(chosen) - 1).flatmap(lambda index: chosen[index])


def histories(
    transport: str | None = None, often: str | None = None, *, gentle: bool = False, foul: bool = False
) -> SearchStrategy[History]:
    """Any history: a store is pushed to, then things happen.

    Args:
        transport: How its bases are stored at first; None: in either way.
        often: A step that a quarter of all shall be.
        gentle: Nothing happens that may keep a reader from an answer.
        foul: Calls of processes may raise anything, and disks of the log give other records than were appended.
    """
    transports = ["files", "files", "log"] if transport is None else [transport]
    settings = st.fixed_dictionaries(
        {
            "hybrid": st.sampled_from([True] * 9 + [False]),
            "partitions": st.sampled_from([1, 2, 2]),
            "replicas": st.sampled_from([1, 2]),
            "rt_partitions": st.sampled_from([1, 2]),
            "compression": st.sampled_from(["none", "gzip"]),
            "transport": st.sampled_from(transports),
            "rewind_seconds": st.sampled_from([0, 5]),
            "backup_retention_seconds": st.sampled_from([3, 15]),
            "tombstone_grace_seconds": st.sampled_from([0, 0, 4]),
            "skew_limit_seconds": st.just(SKEW_LIMIT_SECONDS),
        }
    )
    return st.builds(
        History,
        seed=st.integers(0, 2**32 - 1),
        trouble=st.sampled_from([0] if gentle else [0, 5, 20, 40]),
        nodes=st.sampled_from([2, 2, 3]),
        controllers=st.sampled_from([1, 1, 2]),
        monotone=st.booleans(),
        settings=settings,
        steps=st.lists(steps(often, HARD if gentle else frozenset(), foul=foul), min_size=6, max_size=16).map(tuple),
    )
