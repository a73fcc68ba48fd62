"""Bugs that are planted in what keeps loops going, and in what tells that they do not; see `tests.simulation.bugs`."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any
from unittest.mock import patch

from anew.core.errors import AnewError
from anew.loops.guarded import GuardedLoop, Loops
from anew.node.stores import feeds as node_feeds
from anew.testing.memory.log import MemoryLog
from tests.simulation.history import histories
from tests.simulation.planting import bug


@bug(
    "7.8: what fails in one replica is the round's, and nobody listed it",
    "nothing unexpected is raised",
    among=histories(often="sick_disk"),
)
def _of_the_round() -> AbstractContextManager[Any]:
    def raised(_self: Any, _holding: Any, error: Any) -> None:
        raise RuntimeError(str(error))

    return patch.object(node_feeds.FeedApplier, "_set_aside", raised)


@bug(
    "7.8: a loop ends on what nobody listed",
    "everything arrives",
    "nothing unexpected is raised",
    among=histories(often="foul", foul=True),
)
def _unguarded() -> AbstractContextManager[Any]:
    def turn(_self: Any, step: Any) -> float:
        with suppress(AnewError):
            step()
        return 0.0

    return patch.object(GuardedLoop, "turn", turn)


@bug(
    "7.8: a loop that does not get on says nothing",
    "what is broken is told",
    among=histories(often="foul", foul=True),
    seed=23,
)
def _silent() -> AbstractContextManager[Any]:
    return patch.object(Loops, "troubles", lambda _self: ())


@bug(
    "7.6: the log gives what a disk has made of a record",
    "reads see what was",
    "base",
    "replicas",
    among=histories(often="damage_log", foul=True),
    seed=11,
)
def _believed() -> AbstractContextManager[Any]:
    def given(_self: Any, _at: Any, partition: Any, begin: int, end: int) -> Any:
        rows = enumerate(partition.rows[begin:end], begin)
        return [partition.damaged.get(offset, row) for offset, row in rows]

    return patch.object(MemoryLog, "_proved", given)


@bug(
    "7.8: a replica that cannot read its feed says nothing",
    "what is broken is told",
    among=histories(often="damage_log", foul=True),
)
def _waits_in_silence() -> AbstractContextManager[Any]:
    def quietly(self: Any, group: Any, _error: Any) -> None:
        group.source.retry_at = self._now() + 1.0

    return patch.object(node_feeds.FeedApplier, "_fail", quietly)
