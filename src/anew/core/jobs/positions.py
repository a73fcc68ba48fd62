"""Positions as people edit them: what ``anew job checkpoint show --json`` prints, as the start of a rewind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anew.core.errors import InvalidRequest
from anew.core.jobs.inputs import Offsets
from anew.core.jobs.starts import is_number


def positions_of(document: Any) -> dict[str, Offsets]:
    """Input → partition → next offset to read, of a document (case A2).

    Args:
        document: What ``anew job checkpoint show --json`` prints of one generation, its ``positions`` alone, or these
            with an offset in the place of each partition's facts.

    Raises:
        InvalidRequest: ``bad_positions``: it is none of these; ``which_generation``: it has several generations.
    """
    found = document
    if isinstance(document, Mapping) and isinstance(document.get("checkpoints"), list):
        checkpoints = document["checkpoints"]
        if len(checkpoints) != 1:
            raise which_generation(len(checkpoints))
        found = checkpoints[0]
    if isinstance(found, Mapping) and isinstance(found.get("positions"), Mapping):
        found = found["positions"]
    if not isinstance(found, Mapping) or not found:
        raise _bad("no positions", found)
    return {str(name): _offsets(str(name), of) for name, of in found.items()}


def which_generation(checkpoints: int) -> InvalidRequest:
    """What is said where positions are those of several generations, or of none."""
    return InvalidRequest(
        "which_generation",
        "the positions are not those of one generation",
        found=f"{checkpoints} checkpoints",
        expected="one",
        hint="anew job checkpoint show JOB@GENERATION --json",
    )


def _offsets(name: str, of: Any) -> Offsets:
    if not isinstance(of, Mapping):
        raise _bad(name, of)
    numbers = {_partition(name, partition): fact for partition, fact in of.items()}
    if len(numbers) < len(of):
        raise _bad(f"{name}, a partition twice", sorted(of))
    return {partition: _offset(f"{name}, partition {partition}", fact) for partition, fact in numbers.items()}


def _partition(name: str, text: Any) -> int:
    if not is_number(str(text)):
        raise _bad(name, text)
    return int(text)


def _offset(where: str, fact: Any) -> int:
    offset = fact.get("offset") if isinstance(fact, Mapping) else fact
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise _bad(where, fact)
    return offset


def _bad(where: str, found: Any) -> InvalidRequest:
    return InvalidRequest(
        "bad_positions",
        f"these are no positions: {where}",
        found=found,
        expected='{"positions": {INPUT: {PARTITION: {"offset": N}}}}',
        hint="anew job checkpoint show JOB@GENERATION --json prints what can be edited",
    )
