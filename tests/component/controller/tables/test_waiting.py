"""A driver of a table and a controller that is away for a while: whatever it has to ask is asked again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import MagicMock

import pytest

from anew.api.rebuilds import TableRebuildView, view_as
from anew.core.errors import Failed, OutcomeUnknown, Unreachable
from anew.core.tables.plan import TablePlan
from anew.rebuild.driving import run_plan
from anew.rebuild.observer import LogObserver
from anew.rebuild.tables import load as loading
from anew.rebuild.tables import refresh as refreshing
from anew.rebuild.tables.builds import refreshing as refreshing_job
from anew.rebuild.tables.driving import TableRun
from anew.spark.tables.segmenttask import SegmentAnswer, SegmentTask
from tests.component.controller.tables.tables_harness import Tables

_ASKED = (
    "begin_rebuild",
    "cluster",
    "rebuild",
    "read_segments",
    "config",
    "commit_segment",
    "finish_rebuild",
)
"""What the driver of a refresh asks of the controller, beside signs of life."""


class _Away:
    """A controller that is away whenever it is asked for something, so many times; or whose answers are lost."""

    def __init__(self, tables: Tables, times: int, methods: tuple[str, ...] = _ASKED, *, done: bool = False) -> None:
        self._client, self._times, self._methods, self._done = tables.cluster.client, times, methods, done
        self.asked = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        act: Callable[..., Any] = getattr(self._client, name)
        if name not in self._methods:
            return act

        def away(*given: Any, **named: Any) -> Any:
            self.asked[name] += 1
            if self.asked[name] > self._times:
                return act(*given, **named)
            if self._done:
                act(*given, **named)
                raise OutcomeUnknown("answer_lost", "the answer was lost")
            raise Unreachable("controller_unreachable", "the controller does not answer")

        return away


def _run(tables: Tables, controller: Any, patience_seconds: float = 15.0) -> TableRun:
    spark = MagicMock()
    spark.sparkContext.master, spark.sparkContext.defaultParallelism = "local[1]", 1
    return TableRun(
        controller=controller,
        session=lambda: nullcontext(spark),
        observer=LogObserver(),
        request_id="r-1",
        driver="test",
        clock=tables.cluster.clock,
        patience_seconds=patience_seconds,
        executor_wait_seconds=60.0,
    )


def _run_plan(plan: TablePlan, run: TableRun) -> TableRebuildView:
    return view_as(run_plan(plan, run, refreshing_job(run)), TableRebuildView)


def _as_it_is(_spark: Any, task: SegmentTask) -> SegmentAnswer:
    """A task that finds a file right as it is."""
    made = task.source
    return SegmentAnswer(
        path=made.path,
        bytes=made.bytes,
        sha256=made.sha256,
        contents=made.contents,
        rows_read=made.contents.rows,
        rows_filtered=0,
    )


@pytest.fixture
def plan(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> TablePlan:
    """The refresh of one segment, without Spark."""
    monkeypatch.setattr(refreshing, "session_for_queries", lambda spark: spark)
    monkeypatch.setattr(refreshing, "rebuild_on_spark", _as_it_is)
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    return tables.plan()


@pytest.mark.parametrize("done", [False, True], ids=["not reached", "answer lost"])
def test_a_refresh_waits_for_the_controller_wherever_it_asks(tables: Tables, plan: TablePlan, done: bool) -> None:  # noqa: FBT001 - a parameter
    """Each of its questions is asked again until it is answered, and all segments are done, once."""
    away = _Away(tables, 2, done=done)
    view = _run_plan(plan, _run(tables, away))
    assert (view.status, view.refresh.stamped, tables.stale()) == ("succeeded", ("a",), [])
    assert set(away.asked) == set(_ASKED)
    begun = [line for line in tables.cluster.client.history("trips") if line.what == "begin refresh"]
    assert len(begun) == 1


@pytest.mark.parametrize("method", ["cluster", "commit_segment"])
def test_a_refresh_that_has_waited_long_enough_says_who_did_not_answer(
    tables: Tables, plan: TablePlan, method: str
) -> None:
    """It ends as unreachable, and names the rebuild, whose end nobody has heard of yet."""
    run = _run(tables, _Away(tables, 1_000, (method,)), patience_seconds=0.2)
    with pytest.raises(Unreachable) as caught:
        _run_plan(plan, run)
    (begun,) = (view.id for view in tables.cluster.client.rebuilds(table="trips") if view.kind == "refresh")
    assert (caught.value.code, caught.value.exit_code) == ("controller_unreachable", 4)
    assert f"anew rebuild show {begun}" in str(caught.value.hint)


def test_a_load_waits_for_the_controller_before_it_reads(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its files go is asked again until the controller says it, and the job begins."""
    monkeypatch.setattr(loading, "session_for_queries", lambda spark: spark)

    def begins(*_given: Any) -> None:
        raise Failed("job_begins", "the job begins")

    monkeypatch.setattr(loading, "check_executors", begins)
    tables.create()
    plan = tables.load_plan(prefix="p")
    away = _Away(tables, 3)
    with pytest.raises(Failed) as caught:
        _run_plan(plan, _run(tables, away))
    assert (caught.value.code, away.asked["cluster"]) == ("job_begins", 4)
