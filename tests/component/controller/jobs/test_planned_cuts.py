"""Cut-overs that happen by themselves: once a generation has caught up, or at a time."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CutOver, DropGeneration, OfGeneration, RunGeneration
from anew.catalog.change import PutTopic
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.jobs.cutting import cut_planned
from anew.controller.jobs.looks import look
from anew.core.errors import Refused
from anew.core.topics.topic import Topic
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import JOB, Jobs


def _beside(jobs: Jobs) -> int:
    """A rewind that has read two of five records; the epoch of its driver."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    epoch = jobs.take(2)
    jobs.record(epoch, {0: 2, 1: 0}, number=2)
    return epoch


def test_readers_go_over_as_soon_as_it_has_caught_up(jobs: Jobs) -> None:
    """Not before; they can go back, and then nothing goes over by itself again."""
    epoch, client = _beside(jobs), jobs.cluster.client
    answer = client.cut_over(JOB, CutOver(when_caught_up=True))
    assert (answer.live, answer.planned and answer.planned.generation) == (1, 2)
    jobs.cluster.settle(5)
    assert (jobs.job().live, client.job(JOB).planned_cut) == (1, answer.planned)
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(3)
    assert (jobs.job().live, client.job(JOB).planned_cut) == (2, None)
    jobs.cluster.settle(3)
    assert client.cut_over(JOB, CutOver(generation=1)).live == 1
    jobs.cluster.settle(5)
    assert jobs.job().live == 1


def test_at_a_time_readers_go_over_then_and_not_before_it_has_caught_up(jobs: Jobs) -> None:
    """What has caught up waits for the time; what has not goes on waiting behind it."""
    epoch, client = _beside(jobs), jobs.cluster.client
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    client.cut_over(JOB, CutOver(not_before_ms=jobs.cluster.clock() + 60_000))
    jobs.cluster.settle(4)
    assert (jobs.view(2).caught_up, jobs.job().live) == (True, 1)
    jobs.cluster.pass_seconds(61)
    jobs.beat(epoch, 2)
    jobs.cluster.settle(1)
    assert jobs.job().live == 2


def test_another_controller_does_what_was_planned(jobs: Jobs) -> None:
    """What is planned is in the catalog; how often a generation was found caught up each controller sees for itself."""
    epoch, client = _beside(jobs), jobs.cluster.client
    client.cut_over(JOB, CutOver(when_caught_up=True))
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(2)
    # What the one that died had counted is gone.
    jobs.cluster.context.catching_up.clear()
    jobs.cluster.settle(2)
    assert jobs.job().live == 1
    jobs.cluster.settle(1)
    assert jobs.job().live == 2


def test_a_generation_that_has_not_run_yet_may_be_planned_for(jobs: Jobs) -> None:
    """By then it will have; one whose output lacks something never serves."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    client = jobs.cluster.client
    jobs.begin(jobs.plan(code=None))
    assert client.cut_over(JOB, CutOver(when_caught_up=True)).planned is not None
    jobs.cluster.settle(4)
    assert jobs.job().live == 1
    client.drop_generation(JOB, DropGeneration(generation=2))
    jobs.cluster.settle(1)
    assert client.job(JOB).planned_cut is None
    jobs.begin(jobs.plan(code=None, start="newest"))
    assert refused(Refused, lambda: client.cut_over(JOB, CutOver(when_caught_up=True))).code == "output_not_whole"


def test_what_was_planned_is_called_off(jobs: Jobs) -> None:
    """By people, and by itself where another generation serves by then."""
    epoch, client = _beside(jobs), jobs.cluster.client
    client.cut_over(JOB, CutOver(when_caught_up=True))
    assert client.call_off_cut_over(JOB).planned_cut is None
    assert client.call_off_cut_over(JOB).planned_cut is None
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(4)
    assert jobs.job().live == 1
    client.cut_over(JOB, CutOver(not_before_ms=jobs.cluster.clock() + 60_000))
    client.cut_over(JOB, CutOver())
    assert (jobs.job().live, client.job(JOB).planned_cut) == (2, None)


def test_what_is_taken_back_while_a_round_looks_stays_taken_back(jobs: Jobs) -> None:
    """The round works with the job as it was read: it does nothing that is not planned any more."""
    epoch, client = _beside(jobs), jobs.cluster.client
    client.cut_over(JOB, CutOver(when_caught_up=True))
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(2)
    read = jobs.job()
    client.call_off_cut_over(JOB)
    look(jobs.cluster.context, read)
    cut_planned(jobs.cluster.context, read)
    assert (jobs.view(2).caught_up, jobs.job().live, jobs.job().planned_cut) == (True, 1, None)


def test_one_that_does_not_run_is_named(jobs: Jobs) -> None:
    """It does not catch up by itself: what stands in the way is shown, until it runs again."""
    epoch, client = _beside(jobs), jobs.cluster.client
    client.cut_over(JOB, CutOver(when_caught_up=True))
    client.stop_job(JOB, OfGeneration(generation=2))
    jobs.end(epoch, number=2)
    jobs.cluster.settle(1)
    assert any("it is stopped" in one.what for one in client.status().problems)
    client.run_job(JOB, RunGeneration(generation=2))
    jobs.cluster.settle(1)
    assert not any("as planned" in one.what for one in client.status().problems)


def test_force_is_for_a_cut_over_at_once() -> None:
    """What is planned waits until the generation has caught up."""
    with pytest.raises(ValueError, match="at once"):
        CutOver(force=True, when_caught_up=True)


def test_a_refusal_that_stays_is_shown_until_it_passes(jobs: Jobs) -> None:
    """It is tried again in each round."""
    epoch, client, context = _beside(jobs), jobs.cluster.client, jobs.cluster.context
    client.cut_over(JOB, CutOver(when_caught_up=True))
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    topic = context.catalog.topic("classes_g2")
    assert topic is not None
    _deleted(context, topic, at_ms=jobs.cluster.clock())
    jobs.cluster.settle(4)
    assert jobs.job().live == 1
    (problem,) = [one.what for one in client.status().problems if "as planned" in one.what]
    assert "classes_g2" in problem
    _deleted(context, topic, at_ms=None)
    jobs.cluster.settle(1)
    assert (jobs.job().live, [one for one in client.status().problems if "as planned" in one.what]) == (2, [])


def _deleted(context: Context, topic: Topic, at_ms: int | None) -> None:
    """As only earlier builds let it happen: the topic that a generation writes into is gone, or is there again."""
    present = context.catalog.topic_by_uid(topic.uid)
    assert present is not None
    changed = present.model_copy(update={"deleted_at_ms": at_ms})
    commit(context, context.operation("change topic", topic.name, "test"), PutTopic(changed, present.revision))
