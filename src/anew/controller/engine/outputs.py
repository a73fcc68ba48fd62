"""What stream jobs ask of the things that they write into.

A job changes the document of its output by pure functions of `anew.core`, in one commit with its own document. What
these functions cannot do (look at logs, deep stores and nodes) is asked here, so that the wing of jobs imports no other
wing. A subject that jobs may write into has an `Output` (`anew.controller.engine.subjects.Subject.output`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from anew.core.feed import Feed, PositionMap
from anew.core.stamp import Origin

if TYPE_CHECKING:
    from anew.controller.engine.context import Context


@dataclass(frozen=True, slots=True)
class Readiness:
    """How far the replicas of a version are.

    Attributes:
        caught_up: Every replica is at or past the target and within the lag limits (rule R17).
        errors: Replicas that cannot be made anywhere, with the reason: their base is not what its manifest says.
        sick: Replicas that gave up for reasons of their node, with the reason: another node may do better.
        why: What is still missing, with rates.
        replicas: How many replicas there are to be.
        to_load: How many of them do not hold the whole base yet.
        behind: How many hold it and are not at the target, or at none while there is none.
    """

    caught_up: bool
    errors: tuple[str, ...]
    sick: tuple[str, ...]
    why: str
    replicas: int
    to_load: int
    behind: int

    @property
    def loaded(self) -> bool:
        """Every replica holds the whole base."""
        return self.to_load == 0


class Output(Protocol):
    """What a kind of output answers to the jobs that write into it. All methods may block on I/O.

    Errors common to all: `NotFound` where the output of that uid is gone, `Unreachable` where a log, a deep store or
    the catalog does not answer.
    """

    def new_feed(
        self, context: Context, uid: str, origin: Origin, fabric: str, max_lateness_ms: int | None = None
    ) -> Feed:
        """A fresh feed for a generation, which nothing names yet: each call takes an incarnation of its own.

        Raises:
            Refused: ``topic_exists``: the log has a topic of that name that is not ours.
        """

    def make(self, context: Context, uid: str) -> None:
        """Make in logs and deep stores what the document announces: topics, empty bases.

        Called after the commit that announces it; each round does the same, so that a crash in between only delays it.
        """

    def ends(self, context: Context, uid: str, feeds: Collection[str]) -> PositionMap:
        """The ends of some feeds by their ids, of this instant."""

    def nearline_ends(self, context: Context, uid: str) -> PositionMap:
        """The ends of all feeds that others than jobs write into, of this instant."""

    def readiness(self, context: Context, uid: str, version: int, fabric: str, target: PositionMap) -> Readiness:
        """How far a version's replicas in a fabric are, if they are to reach a position (rule R17)."""
