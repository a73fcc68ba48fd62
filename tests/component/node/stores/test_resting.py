"""When a node rests between two rounds: a moment after it has caught up, never while records wait that it knows of."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import anew.node.stores.engine
import anew.node.stores.feeds
from anew.node.stores.engine import REST_SECONDS, Engine
from anew.node.stores.feeds import FeedApplier
from anew.node.stores.holding import Holding
from tests.component.node.harness import World, caught_up, engine_in, value_of, wait_for, world

pytestmark = pytest.mark.processes

_NEVER_SECONDS = 3_600.0
_A_ROUND = 10
_ROUNDS = 20
_UNDER_WAY = 1


@dataclass(frozen=True, slots=True)
class Round:
    """A round of applying: when it began and ended, whether it found records, whether it left some."""

    began: float
    ended: float
    busy: bool
    behind: bool


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world with one version."""
    with world(tmp_path) as made:
        made.version(1, {})
        yield made


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[Round]:
    """The rounds of whatever node runs."""
    seen: list[Round] = []
    play = FeedApplier.round

    def watched(applier: FeedApplier, holdings: list[Holding]) -> bool:
        began = time.monotonic()
        busy = play(applier, holdings)
        seen.append(Round(began, time.monotonic(), busy, applier.behind))
        return busy

    monkeypatch.setattr(FeedApplier, "round", watched)
    return seen


def _serve(engine: Engine, words: World) -> None:
    engine.accept(words.desired())
    wait_for("the version", lambda: caught_up(engine))


def test_a_round_that_left_records_is_followed_at_once(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that rests for an hour after each round that caught up applies what takes many rounds when it is woken."""
    with engine_in(tmp_path) as engine:
        _serve(engine, words)
        monkeypatch.setattr(anew.node.stores.engine, "REST_SECONDS", _NEVER_SECONDS)
        monkeypatch.setattr(anew.node.stores.feeds, "READ_RECORDS", _A_ROUND)
        for number in range(_A_ROUND * _ROUNDS):
            words.write("a", str(number))
        engine.accept(words.desired())
        wait_for("the last write", lambda: value_of(engine, "a") == str(_A_ROUND * _ROUNDS - 1))


def test_a_round_that_caught_up_is_rested_after(words: World, tmp_path: Path, rounds: list[Round]) -> None:
    """Under a writer that never stops a node gathers what comes in a moment, instead of looking for each record."""
    with engine_in(tmp_path) as engine:
        _serve(engine, words)
        rounds.clear()
        # The round that caught up may be of a step that did other things too, which the next follows at once.
        wait_for("a round after the one that may be under way", lambda: len(rounds) >= _UNDER_WAY + 1)
        del rounds[:_UNDER_WAY]
        number = 0
        while sum(round.busy and not round.behind for round in rounds) < _ROUNDS:
            number += 1
            words.write("a", str(number))
        wait_for("the last write", lambda: value_of(engine, "a") == str(number))
    pairs = itertools.pairwise(rounds)
    rests = [after.began - before.ended for before, after in pairs if before.busy and not before.behind]
    assert len(rests) >= _ROUNDS - 1
    # The kernel's clock of waits is a little coarser than the one that is read.
    assert min(rests) > 0.9 * REST_SECONDS
