"""Positions as Samza's checkpoint tool has them: a properties file, whose offsets are the *last processed* ones.

A line is ``tasknames.<task>.systems.<system>.streams.<stream>.partitions.<n>=<offset>``. A space in the name of a task
may stand as it is, or behind a backslash. Everywhere else in anew a position is the *next* offset: one more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from anew.core.errors import InvalidRequest
from anew.core.jobs.inputs import Offsets

_LINE = re.compile(
    r"tasknames\.(?P<task>.+)\.systems\.(?P<system>[^.]+)\.streams\.(?P<stream>.+)"
    r"\.partitions\.(?P<partition>[0-9]{1,9})\s*[=:]\s*(?P<offset>-1|[0-9]{1,18})",
    re.ASCII,
)
_ESCAPED = re.compile(r"\\(.)")
_MOST_NAMED = 5
"""So many lines that are not understood are named."""


def is_properties(text: str) -> bool:
    """Whether a file of positions is of this form; all others are JSON."""
    return not text.lstrip().startswith(("{", "["))


def positions_in(text: str) -> dict[str, Offsets]:
    """Stream → partition → next offset to read, of a file (case A3); ``-1`` is a partition of which none was processed.

    Raises:
        InvalidRequest: ``bad_positions``, with the numbers of the lines that are not understood, or that name a
            partition again.
    """
    found: dict[str, Offsets] = {}
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip()
        if not said or said[0] in "#!":
            continue
        matched = _LINE.fullmatch(_ESCAPED.sub(r"\1", said))
        if matched is None:
            wrong.append(f"line {number}: {said}")
            continue
        of, partition = found.setdefault(matched["stream"], {}), int(matched["partition"])
        if partition in of:
            wrong.append(f"line {number}, a partition again: {said}")
        of[partition] = int(matched["offset"]) + 1
    if wrong or not found:
        more = [f"and {len(wrong) - _MOST_NAMED} more"] if len(wrong) > _MOST_NAMED else []
        raise InvalidRequest(
            "bad_positions",
            "these are no positions" if not wrong else "some lines are not understood",
            found="; ".join([*wrong[:_MOST_NAMED], *more]) or "no line",
            expected="tasknames.TASK.systems.SYSTEM.streams.TOPIC.partitions.N=LAST_PROCESSED_OFFSET",
            hint="anew job checkpoint show JOB@GENERATION --format properties prints what can be edited",
        )
    return found


def properties_of(system: str, positions: Mapping[str, Mapping[int, int]]) -> Iterable[str]:
    """The lines of positions (stream → partition → next offset), each partition by a task of its own."""
    for stream, of in sorted(positions.items()):
        for partition, offset in sorted(of.items()):
            task = f"Partition\\ {partition}"
            yield f"tasknames.{task}.systems.{system}.streams.{stream}.partitions.{partition}={offset - 1}"
