"""Following a rebuild: how often it is looked at, and what is told."""

from __future__ import annotations

from typing import Any

from anew.core.rebuild import Progress, Stage
from anew.rebuild.ending import followed
from anew.rebuild.observer import LogObserver


class _Told(LogObserver):
    """Keeps the stages that it is told of."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def stage(self, stage: Stage) -> None:
        """See `Observer.stage`."""
        self.stages.append(stage)


def test_a_stage_that_goes_on_is_looked_at_less_often() -> None:
    """Each pause is a fifth longer, up to half a second; a new stage is looked at closely again."""
    pauses: list[float] = []
    views = [("build", 30), ("load", 3)]
    shapes = [(stage, "running") for stage, times in views for _ in range(times)] + [("load", "succeeded")]
    shown = iter(shapes)

    def look() -> dict[str, Any]:
        stage, status = next(shown)
        return {"id": "r1", "stage": stage, "status": status, "error": None, "progress": Progress().model_dump()}

    told = _Told()
    assert followed(look, told, pauses.append)["status"] == "succeeded"
    assert told.stages == [Stage.BUILD, Stage.LOAD]
    assert pauses[:3] == [0.1, 0.12, 0.144]
    assert pauses[29] == max(pauses) == 0.5
    assert pauses[30:] == [0.1, 0.12, 0.144]
    assert sum(pauses[:10]) < 3
