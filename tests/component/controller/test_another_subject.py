"""Another kind of thing to rebuild is an addition: registered, it has what stores and tables have (`texts.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from anew.api.http import ControllerClient
from anew.api.models import EndRebuild, Heartbeat, ResumeRebuild
from anew.api.rebuilds import RebuildView, view_as
from anew.controller.app import make_app
from anew.controller.engine.subjects import Subjects
from anew.controller.reconcile import Reconciler
from anew.controller.subjects import SUBJECTS
from anew.core.errors import Failed, InvalidRequest, NotFound, Refused
from anew.core.rebuild import Stage, parse_plan
from anew.rebuild.driving import Run, resume_rebuild, run_plan
from anew.rebuild.observer import LogObserver
from tests.component.controller.harness import Cluster, opened_cluster, refused
from tests.component.controller.serving import AppTransport
from tests.component.controller.texts import (
    TextRebuild,
    TextRebuildView,
    TextStart,
    TextSubject,
    original,
    plan_of,
    shouting,
)

_TEXT = b"we rebuild what is held"


@dataclass(slots=True)
class _Texts:
    """A controller that rebuilds texts too, and one text."""

    cluster: Cluster
    client: ControllerClient
    reconciler: Reconciler

    def run(self, request_id: str, driver: str = "one") -> Run:
        """A driver."""
        return Run(
            controller=self.client,
            observer=LogObserver(),
            request_id=request_id,
            driver=driver,
            clock=self.cluster.clock,
            patience_seconds=1.0,
            pause=lambda _: self.round(0),
            lease=lambda *_: nullcontext(_NoLease()),  # type: ignore[arg-type]  # signs of life are the tests'
        )

    def shout(self, request_id: str = "r-1", *meanwhile: Callable[[TextRebuild], None]) -> RebuildView:
        """Plan and run."""
        run = self.run(request_id)
        return run_plan(plan_of(self.cluster.deep, "song"), run, shouting(run, self.cluster.deep, meanwhile))

    def resume(self, rebuild_id: str, *meanwhile: Callable[[TextRebuild], None]) -> RebuildView:
        """Another driver takes over."""
        run = self.run("unused", "another")
        return resume_rebuild(rebuild_id, run, shouting(run, self.cluster.deep, meanwhile))

    def round(self, seconds: float) -> None:
        """Time passes, and the controller goes on."""
        self.cluster.listen_on(seconds)
        self.reconciler.round()

    def files(self) -> list[str]:
        """All that was written of the text."""
        return [stored.path for stored in self.cluster.deep.list("texts") if stored.path != original("song")]

    def problems(self) -> Iterable[str]:
        """What the status tells of rebuilds."""
        return [problem.what for problem in self.client.status().problems if "rebuild" in problem.what]


class _NoLease:
    lost = False


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[_Texts]:
    """A controller with one subject more, and a text."""
    with opened_cluster(tmp_path) as cluster:
        context = replace(cluster.context, subjects=Subjects((*SUBJECTS.all, TextSubject())))
        client = ControllerClient("http://localhost", actor="tester", transport=AppTransport(make_app(context)))
        cluster.deep.put(original("song"), _TEXT)
        reconciler = Reconciler(context, cluster.clock.seconds)
        cluster.reconciler = reconciler
        yield _Texts(cluster, client, reconciler)
        client.close()


def _stops(_rebuild: TextRebuild) -> None:
    raise KeyError("the driver dies")


def test_it_is_planned_run_listed_and_shown(texts: _Texts) -> None:
    """A plan is begun once for a request id, run to its end, found by its kind and name, and told in the history."""
    view = view_as(texts.shout(), TextRebuildView)
    assert (view.status, view.letters, view.text) == ("succeeded", len(_TEXT), "song")
    assert texts.cluster.deep.get(f"texts/song/{view.id}-e1") == _TEXT.upper()
    assert texts.shout().id == view.id
    assert [found.id for found in texts.client.rebuilds(text="song")] == [view.id]
    assert texts.client.rebuilds(store=None) == texts.client.rebuilds(text="song")
    assert refused(NotFound, lambda: texts.client.rebuilds(text="sonnet")).code == "unknown_text"
    assert [line.what for line in texts.client.history("song", 9)] == ["shout done", "begin shout"]
    assert parse_plan(plan_of(texts.cluster.deep, "song").model_dump_json()) == plan_of(texts.cluster.deep, "song")


def test_an_outdated_or_altered_plan_begins_nothing(texts: _Texts) -> None:
    """Its fence is the subject's, its id everybody's; nothing is kept of what was refused."""
    plan, run = plan_of(texts.cluster.deep, "song"), texts.run("r-1")
    altered = plan.model_copy(update={"text": "sonnet"})
    assert refused(InvalidRequest, lambda: run_plan(altered, run, shouting(run, texts.cluster.deep))).code
    texts.cluster.deep.delete(original("song"))
    texts.cluster.deep.put(original("song"), b"another")
    assert refused(Refused, lambda: run_plan(plan, run, shouting(run, texts.cluster.deep))).code == "plan_outdated"
    assert texts.client.rebuilds() == []


@pytest.mark.case("rules:R22")
def test_another_driver_takes_over_and_the_first_is_turned_away(texts: _Texts) -> None:
    """The lease is kept by signs of life; after some silence the next epoch writes elsewhere, and the rest goes."""
    seen: list[TextRebuild] = []

    def second(taken: TextRebuild) -> None:
        assert taken.epoch == 2
        turned = refused(Refused, lambda: texts.client.heartbeat(taken.id, Heartbeat(epoch=1, stage=Stage.BUILD)))
        assert turned.code == "epoch_outdated"

    def first(rebuild: TextRebuild) -> None:
        seen.append(rebuild)
        texts.cluster.deep.put(rebuild.path, b"half of it")
        texts.client.heartbeat(rebuild.id, Heartbeat(epoch=1, stage=Stage.BUILD))
        asked = ResumeRebuild(driver="another")
        assert (
            refused(Refused, lambda: texts.client.resume_rebuild(rebuild.id, asked, TextStart)).code == "driver_alive"
        )
        texts.round(16)
        assert [f"rebuild {rebuild.id} of song" in what for what in texts.problems()] == [True]
        assert texts.resume(rebuild.id, second).status == "succeeded"
        raise KeyError("the first driver wakes up")

    with pytest.raises(KeyError):
        texts.shout("r-1", first)
    assert texts.files() == [f"texts/song/{seen[0].id}-e1", f"texts/song/{seen[0].id}-e2"]
    texts.round(601)
    assert texts.files() == [f"texts/song/{seen[0].id}-e2"]


def test_a_lost_driver_s_rebuild_expires(texts: _Texts) -> None:
    """When its lease is over it has failed, is a problem until somebody has seen it, and leaves nothing."""
    begun: list[str] = []

    def lost(rebuild: TextRebuild) -> None:
        begun.append(rebuild.id)
        texts.cluster.deep.put(rebuild.path, b"half of it")
        texts.round(21)
        raise KeyError("nobody hears this")

    with pytest.raises(KeyError):
        texts.shout("r-1", lost)
    view = texts.client.rebuild(begun[0])
    assert (view.status, "no sign of life" in str(view.error)) == ("failed", True)
    assert [begun[0] in what for what in texts.problems()] == [True]
    texts.client.see_failure(begun[0])
    assert texts.problems() == []
    texts.round(601)
    assert texts.files() == []


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_it_is_killed_or_given_up(texts: _Texts, how: str) -> None:
    """Its driver is told so wherever it asks, and hears why."""

    def ends(rebuild: TextRebuild) -> None:
        if how == "killed":
            texts.client.kill_rebuild(rebuild.id)
        else:
            texts.client.fail_rebuild(rebuild.id, EndRebuild(epoch=rebuild.epoch, error="no ink"))
        assert texts.client.heartbeat(rebuild.id, Heartbeat(epoch=1, stage=Stage.BUILD)).kill_asked

    with pytest.raises(Failed) as caught:
        texts.shout("r-1", ends)
    assert (caught.value.code, caught.value.found) == (
        f"rebuild_{how}",
        "killed by tester" if how == "killed" else "no ink",
    )
    assert refused(Refused, lambda: texts.resume(texts.client.rebuilds()[0].id)).hint == "shout song again"


def test_what_is_replaced_goes_after_the_grace(texts: _Texts) -> None:
    """A second rebuild's result takes the place of the first one's, which goes; what is in use never does."""
    first, second = texts.shout("r-1"), texts.shout("r-2")
    assert first.id != second.id
    texts.round(601)
    assert texts.files() == [f"texts/song/{second.id}-e1"]
