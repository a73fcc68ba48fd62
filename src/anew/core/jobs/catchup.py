"""When a generation has caught up with the live one: looked at again and again, while both go on reading (case E3).

Both move from batch to batch, the one now ahead and now the other, so that a look at the newest positions of both says
little. What counts is where the live one stood at one instant: once the other one has come to there, it has read all
that readers had then, and only what is left to the ends is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anew.core.jobs.batch import behind
from anew.core.jobs.inputs import Offsets

LOOKS_TO_CATCH_UP = 3
"""How many looks in a row a generation must be found near the ends; a look at a quiet input counts too."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What the looks at a generation have found so far.

    Attributes:
        live: The generation that was live at the first of them; None: there was none.
        goal: Input → partition → next offset of the live one at that instant.
        looks: How many looks in a row found the generation at or past the goal, and near the ends; up to
            `LOOKS_TO_CATCH_UP`.
    """

    live: int | None
    goal: Mapping[str, Offsets]
    looks: int


def looked_at(
    before: CatchUp | None,
    live: int | None,
    live_position: Mapping[str, Offsets],
    position: Mapping[str, Offsets],
    ends: Mapping[str, Offsets],
    lag_limit: int,
) -> CatchUp | None:
    """What one more look has found; None where the generation is far from the ends, so that the next look is a first.

    Args:
        before: What the looks before found.
        live: The live generation; another one than before makes this look a first one.
        live_position: Input → partition → next offset of the live generation; empty where there is none.
        position: The same of the generation that is looked at.
        ends: The ends of the inputs, of every partition: one that was added meanwhile counts.
        lag_limit: How many records may be left, over all partitions.
    """
    if not _is_near(position, ends, lag_limit):
        return None
    if before is None or before.live != live:
        before = CatchUp(live, live_position, 0)
    return CatchUp(
        live, before.goal, min(before.looks + 1, LOOKS_TO_CATCH_UP) if _is_past(position, before.goal) else 0
    )


def _is_near(position: Mapping[str, Offsets], ends: Mapping[str, Offsets], lag_limit: int) -> bool:
    listed = all(partition in position.get(name, {}) for name, of in ends.items() for partition in of)
    return listed and behind(position, ends) <= lag_limit


def _is_past(position: Mapping[str, Offsets], goal: Mapping[str, Offsets]) -> bool:
    return all(
        position.get(name, {}).get(partition, -1) >= offset
        for name, of in goal.items()
        for partition, offset in of.items()
    )
