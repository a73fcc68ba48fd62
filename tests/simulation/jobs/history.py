"""Histories of jobs: the settings of the store, the job's first generation, and the steps that happen.

Settings of a history beside the store's: ``pushed`` (whether the store is pushed to before the job begins, and takes
nearline writes), ``repushed`` (a repush begins so many ms before the job; 0: none), ``function`` and ``begin`` (of the
first generation), ``max_records`` (of a batch).

A seed is a history: what happens in it is drawn here, and by the world when it happens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.history import HARD, KEYS, SKEW_LIMIT_SECONDS, History, Step
from tests.simulation.jobs.functions import FUNCTIONS
from tests.simulation.jobs.ministream import POINTS

PARTITIONS, MOST_PARTITIONS = 3, 6
"""Of the input: at first, and after any number of steps that add one."""
HARD_FOR_READERS = HARD | {"recreate_store", "begin_late"}
"""Steps that may keep a reader from an answer for a while."""
OF_THE_JOB = ("pushed", "repushed", "function", "begin", "max_records")
"""Settings that are not the store's."""
_Draw = Callable[[random.Random], Any]
"""Draws an argument of a step."""


def _of(choices: Sequence[Any]) -> _Draw:
    return lambda chance: chance.choice(choices)


_FEW = _of(range(4))
_AGO = _of([None, None, 0, 500, 5_000, 30_000])
_PARTITION = _of([0, 0, 1, 1, 1, 2])
"""Of the input: the last one of the first ones is quiet most of the time."""
_WAITS = [0, 200, 1_000, 3_000, 3_000, 8_000]
_FUNCTIONS = _of(sorted(FUNCTIONS))
SAME = "same"
"""In the place of a function: the live generation's code."""
_IN_PLACE = _of([SAME, SAME, "plain", "plain", "deleting", *sorted(FUNCTIONS)])
_AGAIN_FROM = _of(["oldest", "oldest", "oldest", "offsets", "newest", "ago", "where it stands"])
_BEGINS = ["oldest", "oldest", "oldest", "newest", "offsets"]
_TOUCHED = ["the log", "the catalog", "the controller"]
_BESIDE = _of(["nothing", "nothing", "", "few"])
_STALLS = _of([3_000, 7_000, 12_000])
_POINTS = _of(POINTS)
_YES_OR_NO = _of([False, True])
_CHANGES = _of(
    [
        ("partitions", 1),
        ("partitions", 3),
        ("replicas", 1),
        ("replicas", 2),
        ("transport", "log"),
        ("tombstone_grace_seconds", 0),
        ("backup_retention_seconds", 40),
    ]
)


_GENTLE = 0.15


def _keys(chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.choices(KEYS, k=chance.randint(1, 6)))


_STEPS: list[tuple[int, str, tuple[_Draw, ...]]] = [
    (14, "feed", (_keys, _AGO, _PARTITION)),
    (5, "feed_deletes", (_keys, _AGO, _PARTITION)),
    (6, "burst", (_FEW, _PARTITION)),
    (4, "grow", (_of(["alter", "alter", "outside"]), _keys, _AGO)),
    (4, "rewind", (_FUNCTIONS, _of(_BEGINS))),
    (10, "reprocess", (_FUNCTIONS, _keys, _of([0, 1_000, 4_000, 8_000]), _BESIDE)),
    (4, "there_and_back", (_FUNCTIONS, _keys, _YES_OR_NO)),
    (
        5,
        "in_place",
        (_of(["simple", "simple", "deploy"]), _IN_PLACE, _AGAIN_FROM, _keys),
    ),
    (3, "cut_by_itself", (_of([0, 0, 2_000]), _keys, _of([0, 4_000, 12_000]))),
    (3, "cut_over", (_YES_OR_NO,)),
    (2, "cut_back", (_YES_OR_NO,)),
    (2, "undo", (_YES_OR_NO,)),
    (4, "pause_generation", (_FEW, _keys, _of([0, 500, 3_000]))),
    (2, "stop_generation", (_FEW,)),
    (2, "run_generation", (_FEW,)),
    (3, "drop_generation", (_FEW,)),
    (1, "delete_job", ()),
    (2, "make_job", (_FUNCTIONS, _of(_BEGINS))),
    (2, "remake_job", (_FUNCTIONS, _of(_BEGINS))),
    (6, "repush", (_of(["", "", "", "defer", "few", "ttl"]),)),
    (2, "push_over", (_keys,)),
    (1, "recreate_store", ()),
    (1, "begin_late", (_FUNCTIONS,)),
    (2, "second_job", (_FUNCTIONS, _of(_BEGINS))),
    (2, "clock_back", (_of(["controller", "node", "driver"]), _of([500, 20_000]))),
    (2, "reconfigure", (_CHANGES,)),
    (2, "roll_back", ()),
    (1, "write", (_keys, _of([0, 500, 5_000, 30_000]))),
    (1, "push", (_keys, _of([None]), _YES_OR_NO)),
    (1, "collect", ()),
    (7, "die_in_batch", (_POINTS, _FEW, _PARTITION)),
    (7, "stall_in_batch", (_POINTS, _STALLS, _FEW, _PARTITION)),
    (4, "stall_task", (_FEW, _STALLS, _FEW, _PARTITION)),
    (4, "crash", (_of(["driver", "driver", "node", "controller", "executor"]), _FEW)),
    (3, "doom", (_of(["driver"]), _of(_TOUCHED))),
    (3, "doom", (_of(["executor", "node", "controller"]), _of(_TOUCHED))),
    (4, "stop", (_of(["driver", "driver", "node", "controller"]), _FEW, _of([2_000, 6_000, 15_000]))),
    (3, "cut_off", (_of(["node", "driver", "driver"]), _FEW, _of([3_000, 15_000]))),
    (2, "lose_node", (_FEW,)),
    (2, "add_node", ()),
]
"""How often which step comes, about in a hundred, and its arguments."""


def job_history(
    seed: int, often: str | None = None, *, pushed: bool | None = None, gentle: bool | None = None
) -> History:
    """The history of a seed: a job begins, then things happen.

    Args:
        seed: Decides everything.
        often: A step that a quarter of all shall be.
        pushed: Whether the store is pushed to before the job begins; None: in some.
        gentle: Whether nothing happens that may keep a reader from an answer; None: in some.
    """
    chance = random.Random(seed)
    is_gentle = chance.random() < _GENTLE if gentle is None else gentle
    is_pushed = chance.random() < 0.3 if pushed is None else pushed
    settings = {
        "pushed": is_pushed,
        "repushed": chance.choice([0, 300, 2_000, 6_000]) if is_pushed else 0,
        "function": _FUNCTIONS(chance),
        "begin": chance.choice(_BEGINS),
        "max_records": chance.choice([4, 10, 100]),
        "partitions": chance.choice([1, 2]),
        "replicas": chance.choice([1, 2]),
        "rt_partitions": chance.choice([1, 2]),
        "rewind_seconds": chance.choice([0, 5]),
        "backup_retention_seconds": chance.choice([3, 15, 60]),
        "tombstone_grace_seconds": chance.choice([0, 0, 4]),
        "skew_limit_seconds": SKEW_LIMIT_SECONDS,
    }
    return History(
        seed=chance.getrandbits(32),
        trouble=0 if is_gentle else chance.choice([0, 0, 5, 20, 40]),
        nodes=chance.choice([2, 2, 3]),
        controllers=chance.choice([1, 1, 2]),
        settings=settings,
        steps=tuple(_step(chance, often, gentle=is_gentle) for _ in range(chance.randint(6, 16))),
    )


def _step(chance: random.Random, often: str | None, *, gentle: bool) -> Step:
    wanted = [(what, draws) for _, what, draws in _STEPS if what == often]
    if wanted and chance.random() < 0.25:
        what, draws = wanted[0]
    else:
        possible = [step for step in _STEPS if not (gentle and step[1] in HARD_FOR_READERS)]
        _, what, draws = chance.choices(possible, [weight for weight, _, _ in possible])[0]
    return Step(what, tuple(draw(chance) for draw in draws), chance.choice(_WAITS))


def shortened(history: History, is_broken: Callable[[History], bool]) -> History:
    """The history without the steps that are not needed for it to be broken."""
    number = 0
    while number < len(history.steps):
        without = replace(history, steps=(*history.steps[:number], *history.steps[number + 1 :]))
        if is_broken(without):
            history = without
        else:
            number += 1
    return history
