"""Following a rebuild: how often it is looked at, and what is told."""

from __future__ import annotations

from collections.abc import Iterable

from anew.api.rebuilds import RebuildView
from anew.core.rebuild import RebuildStatus, Stage
from anew.rebuild.ending import followed
from anew.rebuild.observer import LogObserver
from anew.testing.answers import a_rebuild_view
from anew.testing.builders import a_rebuild, a_store


class _Told(LogObserver):
    """Keeps the stages that it is told of."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def stage(self, stage: Stage) -> None:
        """See `Observer.stage`."""
        self.stages.append(stage)


class _Answers:
    """Gives shapes one after another, each after so many seconds of its clock."""

    def __init__(self, answers: Iterable[tuple[str, str]], seconds: float) -> None:
        self._answers, self._seconds = iter(answers), seconds
        self.now_seconds = 0.0
        self.asked: list[tuple[Stage | None, float]] = []
        self.pauses: list[float] = []

    def look(self, after: Stage | None, seconds: float) -> RebuildView:
        """One look."""
        self.asked.append((after, seconds))
        self.now_seconds += self._seconds
        stage, status = next(self._answers)
        return a_rebuild_view(a_rebuild(a_store()), stage=Stage(stage), status=RebuildStatus(status))

    def clock_seconds(self) -> float:
        """Its clock."""
        return self.now_seconds


def test_a_stage_that_goes_on_is_looked_at_less_often() -> None:
    """Where nobody waits each pause is a fifth longer, up to half a second; a new stage is looked at closely again."""
    views = [("build", 31), ("load", 4)]
    shapes = [(stage, "running") for stage, times in views for _ in range(times)] + [("load", "succeeded")]
    answers, told = _Answers(shapes, 0.0), _Told()
    found = followed(answers.look, told, answers.pauses.append, answers.clock_seconds)
    assert found.status == "succeeded"
    assert told.stages == [Stage.BUILD, Stage.LOAD]
    pauses = answers.pauses
    assert pauses[:3] == [0.1, 0.12, 0.144]
    assert pauses[29] == max(pauses) == 0.5
    assert pauses[30:] == [0.1, 0.12, 0.144]
    assert sum(pauses[:10]) < 3


def test_who_waits_with_the_answer_is_asked_again_at_once() -> None:
    """The stage that is known goes along, so that the next one is heard of when it begins."""
    shapes = [("load", "running"), ("load", "running"), ("swap", "running"), ("done", "succeeded")]
    answers = _Answers(shapes, 0.9)
    followed(answers.look, _Told(), answers.pauses.append, answers.clock_seconds)
    assert answers.pauses == []
    assert answers.asked == [(None, 1.0), (Stage.LOAD, 1.0), (Stage.LOAD, 1.0), (Stage.SWAP, 1.0)]
