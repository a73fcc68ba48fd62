"""Which segments a refresh takes: a pure function of what is stale, what nodes serve and what was asked for.

h is the hash of a segment's build, l the hash of the copy that a node serves, H the one that is wanted:

============================ =================================================
default                      h missing or h ≠ H
reload only                  h missing or h ≠ H, and some replica has l ≠ H
reload only, force reload    h missing or h ≠ H; no node is asked
============================ =================================================

A node that does not answer serves something unknown, which is never counted as fresh (case A8).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from anew.core.tables.segment import StaleSegment

_DRIFTS = "nodes serve the wanted configuration already; the default mode, or forceReload, takes it"
_FULL = "the run is full; the next one takes it"
MAX_NAMED = 1_000
"""How many segments that are left out are named; the others are counted."""


class Mode(StrEnum):
    """How a refresh chooses."""

    DEFAULT = "default"
    RELOAD_ONLY = "reloadOnly"
    FORCE_RELOAD = "reloadOnly+forceReload"


def mode_of(*, reload_only: bool, force_reload: bool) -> Mode:
    """The mode of the guide's two flags; forceReload is reloadOnly without asking nodes."""
    if force_reload:
        return Mode.FORCE_RELOAD
    return Mode.RELOAD_ONLY if reload_only else Mode.DEFAULT


@dataclass(frozen=True, slots=True)
class Asked:
    """What a refresh is asked to do.

    Attributes:
        most: How many segments it may take; 0: all.
        retry_failed: Whether to take those again that failed with the wanted configuration.
    """

    mode: Mode
    most: int
    retry_failed: bool = False


@dataclass(frozen=True, slots=True)
class Serving:
    """What nodes serve.

    Attributes:
        hashes: Node → segment → the hash of its copy; what a node that holds it does not say is unknown.
        nodes: Slot → the nodes that hold it.
    """

    hashes: Mapping[str, Mapping[str, str | None]]
    nodes: Mapping[int, tuple[str, ...]]

    def behind(self, segment: StaleSegment, wanted: str) -> bool:
        """Whether some copy is not known to be of the wanted configuration (case A8)."""
        holders = self.nodes.get(segment.slot, ())
        return not holders or any(self.hashes.get(node, {}).get(segment.name) != wanted for node in holders)


@dataclass(slots=True)
class Chosen:
    """What a refresh takes, in order, and what it leaves.

    Attributes:
        drift: Segments that are stale in the deep store while every node serves the wanted configuration.
        skipped: Segment → why it is left out, `MAX_NAMED` of them at most; ``left`` counts all that are stale.
    """

    segments: list[StaleSegment] = field(default_factory=list)
    drift: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    left: int = 0

    def skip(self, name: str, why: str) -> None:
        """Leave a segment out."""
        self.left += 1
        if len(self.skipped) < MAX_NAMED:
            self.skipped[name] = why


def choose(
    stale: Iterable[StaleSegment], wanted: str, asked: Asked, serving: Serving, running: Mapping[str, str]
) -> Chosen:
    """Take from the stale segments, stale on nodes first, then newest first, in turn over nodes (case B8).

    ``running`` maps segments that another refresh works on to its id. Holds as many segments as are taken, however
    many are stale.
    """
    chosen, queues = Chosen(), defaultdict[tuple[bool, str], _Newest](lambda: _Newest(asked.most))
    for segment in stale:
        behind = serving.behind(segment, wanted)
        if not behind:
            if len(chosen.drift) < MAX_NAMED:
                chosen.drift.append(segment.name)
            if asked.mode is Mode.RELOAD_ONLY:
                chosen.skip(
                    segment.name, "nodes serve the wanted configuration; forceReload, or the default mode, asks"
                )
                continue
        if segment.name in running:
            chosen.skip(segment.name, f"the refresh {running[segment.name]} works on it")
        elif segment.failed_hash == wanted and not asked.retry_failed:
            chosen.skip(segment.name, "it failed with this configuration; --retry-failed tries again")
        else:
            node = (*serving.nodes.get(segment.slot, ()), "")[0]
            queues[not behind, node].add(segment)
    _deal(queues, chosen, asked.most)
    return chosen


class _Newest:
    """The newest of many segments, so many at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[tuple[int, str, StaleSegment]] = []
        self.count = 0

    def add(self, segment: StaleSegment) -> None:
        self.count += 1
        entry = (segment.created_at_ms, segment.name, segment)
        if self._most == 0 or len(self._held) < self._most:
            heapq.heappush(self._held, entry)
        else:
            heapq.heappushpop(self._held, entry)

    def in_order(self) -> list[StaleSegment]:
        return [segment for _, _, segment in sorted(self._held, reverse=True)]


def _deal(queues: Mapping[tuple[bool, str], _Newest], chosen: Chosen, most: int) -> None:
    """Take in turn over nodes, those first that are stale on nodes."""
    for fresh_on_nodes in (False, True):
        piles = [queue.in_order() for (fresh, _), queue in sorted(queues.items()) if fresh is fresh_on_nodes]
        for turn in range(max(map(len, piles), default=0)):
            chosen.segments += [pile[turn] for pile in piles if turn < len(pile)]
    taken = chosen.segments[:most] if most else chosen.segments
    # What queues let go of is left as well, without a name.
    chosen.left += sum(queue.count for queue in queues.values()) - len(taken)
    for segment in chosen.segments[len(taken) :][: MAX_NAMED - len(chosen.skipped)]:
        chosen.skipped[segment.name] = _FULL
    chosen.segments = taken
