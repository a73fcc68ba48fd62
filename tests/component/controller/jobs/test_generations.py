"""Generations in the controller: drivers that come and go, batches that are recorded, cut over and back, reclaim."""

from __future__ import annotations

from functools import partial

import pytest

from anew.api.jobs.requests import CreateJob, CutOver, DropGeneration, OfGeneration, RunGeneration
from anew.api.models import Heartbeat, ResumeRebuild
from anew.api.rebuilds import JobStart
from anew.api.topics import CreateTopic
from anew.catalog.change import PutTopic
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.jobs import looks
from anew.core.errors import InvalidRequest, NotFound, Refused, Unreachable
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import Offsets
from anew.core.rebuild import Progress, Stage
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import CLASSES, JOB, Jobs


def test_a_generation_is_ready_once_its_output_is_there_and_runs_when_told(jobs: Jobs) -> None:
    """It has a topic of its own; nobody drives it before it is to run; the first one serves by itself."""
    assert jobs.begin() == 1
    assert jobs.view().status == "ready"
    assert jobs.cluster.client.topic("classes_g1").ready
    jobs.cluster.round()
    assert (jobs.launched, jobs.job().live) == ([], 1)
    jobs.cluster.client.run_job(JOB, RunGeneration())
    jobs.cluster.round()
    assert jobs.launched == [f"{JOB}@1"]
    jobs.cluster.round()
    assert jobs.launched == [f"{JOB}@1"]


def test_batches_move_the_position(jobs: Jobs) -> None:
    """What was recorded is shown as position, lag and last batch; the same again is nothing."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 3, 1: 0})
    view = jobs.view()
    assert (view.positions, view.lag_records, view.batch, view.driver) == ({"events": {0: 3, 1: 0}}, 2, 0, True)
    jobs.record(epoch, {0: 5, 1: 0})
    assert (jobs.view().lag_records, jobs.view().batch, jobs.view().seconds_left) == (0, 1, 0.0)


@pytest.mark.case("streams:E2")
def test_progress_says_when_a_generation_is_there_or_that_it_never_is(jobs: Jobs) -> None:
    """Lag over what it gains on its input; rows are those of all batches; a faster input is never reached."""
    jobs.write(100)
    jobs.running()
    epoch = jobs.take()
    jobs.cluster.pass_seconds(120)
    for end in (10, 20, 30):
        jobs.record(epoch, {0: end, 1: 0}, rows=4)
        jobs.cluster.pass_seconds(1)
        jobs.beat(epoch)
    view = jobs.view()
    assert (view.lag_records, view.records_per_s, view.appended_per_s) == (70, 10.0, 0.0)
    assert (view.seconds_left, view.never, view.rows) == (7.0, False, 12)
    jobs.write(300)
    view = jobs.view()
    assert (view.appended_per_s, view.seconds_left, view.never) == (5.0, 74.0, False)
    jobs.write(300)
    view = jobs.view()
    assert (view.appended_per_s, view.seconds_left, view.never) == (10.0, None, True)


@pytest.mark.case("streams:E1")
def test_a_generation_has_one_driver(jobs: Jobs) -> None:
    """A second one is refused while the first gives signs of life; after its lease another one takes over."""
    jobs.running()
    first = jobs.take()
    rebuild = jobs.view().rebuild
    second = refused(
        Refused, lambda: jobs.cluster.client.resume_rebuild(rebuild, ResumeRebuild(driver="two"), JobStart)
    )
    assert second.code == "driver_alive"
    jobs.cluster.pass_seconds(9)
    jobs.cluster.round()
    assert len(jobs.launched) == 1
    jobs.cluster.pass_seconds(2)
    jobs.cluster.round()
    assert (len(jobs.launched), jobs.view().error) == (1, f"its driver was lost: anew job logs {JOB}@1")
    jobs.cluster.pass_seconds(2)
    jobs.cluster.round()
    assert jobs.launched == [f"{JOB}@1", f"{JOB}@1"]
    assert jobs.take(driver="two") == first + 1
    assert refused(Refused, lambda: jobs.record(first, {0: 0, 1: 0})).code == "epoch_outdated"
    assert refused(Refused, lambda: jobs.beat(first)).code == "epoch_outdated"


def test_a_stop_is_heard_and_a_driver_that_failed_is_followed_by_another(jobs: Jobs) -> None:
    """The answer to a sign of life says so; the pause before the next driver rises; what is for good stays failed."""
    jobs.running()
    epoch = jobs.take()
    assert jobs.beat(epoch) == (False, False)
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    assert jobs.beat(epoch) == (False, True)
    jobs.end(epoch)
    jobs.cluster.pass_seconds(10)
    jobs.cluster.round()
    assert (jobs.view().status, jobs.view().driver, len(jobs.launched)) == ("stopped", False, 1)
    jobs.cluster.client.run_job(JOB, RunGeneration())
    jobs.cluster.round()
    assert len(jobs.launched) == 2
    epoch = jobs.take()
    jobs.end(epoch, "the log is away")
    jobs.cluster.round()
    assert (len(jobs.launched), jobs.view().error) == (2, "the log is away")
    assert any(f"{JOB}@1 does not get on" in problem.what for problem in jobs.cluster.client.status().problems)
    jobs.cluster.pass_seconds(2)
    jobs.cluster.round()
    assert len(jobs.launched) == 3
    epoch = jobs.take()
    jobs.end(epoch, "no such column", for_good=True)
    jobs.cluster.pass_seconds(400)
    jobs.cluster.round()
    assert (jobs.view().status, len(jobs.launched)) == ("failed", 3)


@pytest.mark.case("streams:E1")
def test_a_late_sign_of_life_keeps_no_driver_from_its_work(jobs: Jobs) -> None:
    """What comes in after a driver ended, or was given up, is told to end, and the next driver begins at once."""
    jobs.running()
    epoch = jobs.take()
    jobs.end(epoch, "the log is away")
    assert jobs.beat(epoch) == (True, False)
    jobs.cluster.pass_seconds(2)
    jobs.cluster.round()
    assert jobs.take(driver="two") == epoch + 1
    jobs.cluster.pass_seconds(11)
    jobs.cluster.round()
    assert jobs.view().error == f"its driver was lost: anew job logs {JOB}@1"
    assert jobs.beat(epoch + 1) == (True, False)
    assert jobs.take(driver="three") == epoch + 2


def test_a_generation_that_is_not_to_run_takes_no_driver(jobs: Jobs) -> None:
    """One that was started late finds that it is not wanted."""
    jobs.begin()
    rebuild = jobs.view().rebuild
    late = refused(Refused, lambda: jobs.cluster.client.resume_rebuild(rebuild, ResumeRebuild(driver="late"), JobStart))
    assert late.code == "generation_stopped"


@pytest.mark.case("streams:E3", "streams:E7")
def test_a_rewind_runs_beside_and_is_cut_over_to_and_back(jobs: Jobs) -> None:
    """It has an output of its own; it waits until it was found at the ends; the old one goes on and can come back."""
    jobs.write(5)
    jobs.running()
    live = jobs.take()
    jobs.record(live, {0: 5, 1: 0})
    plan = jobs.plan(code=None)
    assert (plan.generation, plan.replaces, plan.code) == (2, 1, jobs.job().generation(1).code)
    assert jobs.running(plan) == 2
    client = jobs.cluster.client
    assert refused(Refused, lambda: jobs.plan(code=None)).code == "rewind_running"
    epoch = jobs.take(2)
    jobs.record(epoch, {0: 2, 1: 0}, number=2)
    jobs.cluster.settle(4)
    assert refused(Refused, lambda: client.cut_over(JOB, CutOver())).code == "not_caught_up"
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(3)
    assert jobs.view(2).caught_up
    answer = client.cut_over(JOB, CutOver())
    assert (answer.live, answer.before) == (2, 1)
    assert (jobs.view(1).status, client.topic("classes_g1").ready) == ("running", True)
    jobs.cluster.settle(3)
    assert client.cut_over(JOB, CutOver(generation=1)).live == 1


@pytest.mark.case("streams:E3")
def test_a_cut_over_that_comes_while_a_look_asks_the_log_is_judged_by_the_looks_before(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may take its time to answer; one that does not answer sets the looks back."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(3)
    answers = [True, False]
    ends_of, seen = looks.ends_of, list[bool]()

    def slow(context: Context, generation: Generation) -> dict[str, Offsets]:
        seen.append(jobs.view(2).caught_up)
        if not answers.pop(0):
            raise Unreachable("log_unreachable", "the log does not answer")
        return ends_of(context, generation)

    monkeypatch.setattr(looks, "ends_of", slow)
    looks.look(jobs.cluster.context, jobs.job())
    assert (seen, jobs.view(2).caught_up) == ([True], True)
    with pytest.raises(Unreachable):
        looks.look(jobs.cluster.context, jobs.job())
    assert (seen, jobs.view(2).caught_up) == ([True, True], False)


def test_a_generation_that_did_not_read_everything_is_not_cut_over_to(jobs: Jobs) -> None:
    """Its output lacks what was written before its start; force does not help."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None, start="newest"))
    jobs.take(2)
    jobs.cluster.settle(4)
    error = refused(Refused, lambda: jobs.cluster.client.cut_over(JOB, CutOver(force=True)))
    assert error.code == "output_not_whole"


def test_what_is_dropped_goes_after_the_grace(jobs: Jobs) -> None:
    """The live one stays; the other one's record ends, its driver is told, its topic is noted and removed."""
    jobs.running()
    jobs.take()
    jobs.running(jobs.plan(code=None))
    epoch = jobs.take(2)
    client = jobs.cluster.client
    assert refused(Refused, lambda: client.drop_generation(JOB, DropGeneration(generation=1))).code == "generation_live"
    client.drop_generation(JOB, DropGeneration(generation=2))
    assert (jobs.view(2).status, client.rebuild(jobs.view(2).rebuild).status) == ("retired", "succeeded")
    assert jobs.beat(epoch, 2)[0]
    assert jobs.view(2).driver
    jobs.end(epoch, number=2)
    assert (jobs.view(2).driver, jobs.view(2).status) == (False, "retired")
    checkpoint = f"jobs/{jobs.job().uid}/g2/checkpoint/offsets/0"
    jobs.cluster.deep.put(checkpoint, b"v1")
    jobs.cluster.round()
    assert jobs.view(2).status == "reclaimed"
    assert refused(NotFound, lambda: client.topic("classes_g2")).code == "unknown_topic"
    assert jobs.cluster.log.topic("classes_g2") is not None
    jobs.cluster.pass_seconds(601)
    jobs.cluster.round()
    assert jobs.cluster.log.topic("classes_g2") is None
    assert jobs.cluster.deep.stat(checkpoint) is None
    assert jobs.cluster.log.topic("classes_g1") is not None


def test_a_job_is_deleted_once_it_is_stopped(jobs: Jobs) -> None:
    """While it runs it is refused; afterwards its name is free, and what serves stays."""
    jobs.running()
    client = jobs.cluster.client
    assert refused(Refused, lambda: client.delete_job(JOB)).code == "job_runs"
    client.stop_job(JOB, OfGeneration())
    client.delete_job(JOB)
    assert client.jobs() == []
    jobs.cluster.round()
    (deleted,) = jobs.cluster.context.catalog.deleted_jobs()
    assert [each.status for each in deleted.generations] == ["reclaimed"]
    jobs.cluster.pass_seconds(601)
    jobs.cluster.round()
    assert client.topic("classes_g1").ready


def test_a_driver_that_never_reports_is_told_and_followed_after_pauses(jobs: Jobs) -> None:
    """One that cannot even begin, for want of Java or of a token: the generation has an error, and the status too."""
    jobs.running()
    jobs.cluster.pass_seconds(181)
    jobs.cluster.round()
    assert jobs.view().error == f"a driver was started, and did not report: anew job logs {JOB}@1"
    assert any(f"{JOB}@1 does not get on" in problem.what for problem in jobs.cluster.client.status().problems)
    assert len(jobs.launched) == 1
    jobs.cluster.pass_seconds(2)
    jobs.cluster.round()
    assert len(jobs.launched) == 2


def test_a_generation_that_does_not_run_has_not_caught_up(jobs: Jobs) -> None:
    """Stopped or failed, it stays where it is: it is cut over to by force alone."""
    jobs.running()
    jobs.take()
    jobs.running(jobs.plan(code=None))
    epoch = jobs.take(2)
    jobs.cluster.settle(3)
    assert jobs.view(2).caught_up
    jobs.end(epoch, "no such column", 2, for_good=True)
    jobs.cluster.settle(1)
    assert (jobs.view(2).status, jobs.view(2).caught_up) == ("failed", False)
    assert refused(Refused, lambda: jobs.cluster.client.cut_over(JOB, CutOver())).code == "not_caught_up"


@pytest.mark.case("rules:R20")
def test_a_job_of_a_name_that_was_used_goes_on_counting(jobs: Jobs) -> None:
    """What generations of the deleted one wrote may still be there: those of the new one are younger."""
    jobs.begin()
    jobs.cluster.client.delete_job(JOB)
    error = refused(Refused, jobs.create)
    assert error.code == "job_deleted"
    request = CreateJob(name=JOB, output="topic:classes", inputs={"events": "events"})
    jobs.cluster.client.create_job(request)
    assert jobs.plan().generation == 2


def test_a_plan_is_judged_and_not_believed(jobs: Jobs) -> None:
    """Whoever changes what it says of its start, and seals it again, is refused."""
    jobs.write(5)
    plan = jobs.plan(start="newest").model_copy(update={"is_whole": True}).sealed()
    assert refused(Refused, lambda: jobs.begin(plan)).code == "plan_outdated"
    beyond = jobs.plan().model_copy(update={"start": {"events": {0: 9, 1: 0}}, "is_whole": False}).sealed()
    assert refused(Refused, lambda: jobs.begin(beyond)).code == "start_out_of_range"
    assert refused(InvalidRequest, lambda: jobs.plan(conf={"spark.speculation": "true"})).code == "bad_conf"


def test_a_topic_that_somebody_else_made_under_the_name_is_left_alone(jobs: Jobs) -> None:
    """A generation knows its topic by identity: it neither writes into another one nor deletes it."""
    jobs.running()
    jobs.running(jobs.plan(code=None))
    client, context = jobs.cluster.client, jobs.cluster.context
    own = context.catalog.topic("classes_g2")
    assert own is not None
    # As before it was refused to delete a topic that a generation writes into.
    gone = own.model_copy(update={"deleted_at_ms": jobs.cluster.clock()})
    commit(context, context.operation("delete topic", "classes_g2", "test"), PutTopic(gone, own.revision))
    client.create_topic(CreateTopic(name="classes_g2", partitions=1, columns="n INT"))
    epoch = jobs.take(2)
    order = refused(Refused, lambda: client.run_order(jobs.view(2).rebuild, epoch))
    assert order.code == "output_not_made"
    client.drop_generation(JOB, DropGeneration(generation=2))
    assert client.topic("classes_g2").columns == "n INT"


def test_topics_that_a_job_uses_are_not_deleted(jobs: Jobs) -> None:
    """Its input, its output, and the topics of its generations; the refusal names the job, and what to do."""
    jobs.running()
    jobs.running(jobs.plan(code=None))
    client = jobs.cluster.client
    for topic, found, hint in (
        ("events", f"{JOB} reads it as events", f"anew job delete {JOB}"),
        ("classes", f"{JOB} has it as its output", f"anew job delete {JOB}"),
        ("classes_g1", f"{JOB}@1 writes into it", f"anew job delete {JOB}"),
        ("classes_g2", f"{JOB}@2 writes into it", f"anew job reclaim {JOB}@2"),
    ):
        error = refused(Refused, partial(client.delete_topic, topic))
        assert (error.code, error.found, hint in str(error.hint)) == ("topic_in_use", found, True)
    for number in (1, 2):
        client.stop_job(JOB, OfGeneration(generation=number))
    client.delete_job(JOB)
    for topic in ("events", "classes", "classes_g1"):
        client.delete_topic(topic)


def test_a_job_with_a_generation_is_not_deleted_as_an_empty_one(jobs: Jobs) -> None:
    """Two submits of one request: the one that fails takes nothing away from the other."""
    jobs.begin()
    client = jobs.cluster.client
    assert refused(Refused, lambda: client.delete_job(JOB, only_empty=True)).code == "job_has_generations"


@pytest.mark.case("streams:E9")
def test_a_topic_that_another_job_reads_is_not_reclaimed(jobs: Jobs) -> None:
    """Neither with its generation nor with its job; the dry run says so."""
    client = jobs.cluster.client
    jobs.running()
    jobs.record(jobs.take(), {0: 0, 1: 0})
    client.create_job(CreateJob(name="downstream", output=f"topic:{CLASSES}", inputs={"classes": "classes_g1"}))
    jobs.running(jobs.plan(code=None))
    jobs.record(jobs.take(2), {0: 0, 1: 0}, number=2)
    client.cut_over(JOB, CutOver(force=True))
    drop = DropGeneration(generation=1, force=True)
    assert refused(Refused, lambda: client.drop_generation(JOB, drop)).code == "topic_in_use"
    for number in (1, 2):
        client.stop_job(JOB, OfGeneration(generation=number))
    assert refused(Refused, lambda: client.delete_job(JOB)).code == "topic_in_use"
    assert client.topic("classes_g1").ready
    client.delete_job("downstream")
    client.drop_generation(JOB, drop)
    assert jobs.view(1).status == "retired"


@pytest.mark.case("streams:E7")
def test_a_generation_that_does_not_run_is_not_cut_over_to(jobs: Jobs) -> None:
    """One that was stopped a moment ago falls behind from then on; one that never ran has nothing."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.begin(jobs.plan(code=None))
    jobs.cluster.round()
    client = jobs.cluster.client
    error = refused(Refused, lambda: client.cut_over(JOB, CutOver(force=True)))
    assert (error.code, error.found) == ("not_caught_up", "ready")
    client.run_job(JOB, RunGeneration(generation=2))
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(4)
    assert jobs.view(2).caught_up
    client.stop_job(JOB, OfGeneration(generation=2))
    assert refused(Refused, lambda: client.cut_over(JOB, CutOver())).code == "not_caught_up"


def test_a_driver_that_has_nothing_left_to_read_is_well(jobs: Jobs) -> None:
    """What the one before it failed by is over, although no record comes that would make a batch."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 5, 1: 0})
    jobs.end(epoch, error="the log is away")
    assert jobs.view().error is not None
    jobs.cluster.pass_seconds(5)
    jobs.cluster.settle(2)
    epoch = jobs.take()
    jobs.cluster.settle(2)
    assert jobs.view().error is not None, "its Spark does not run yet"
    beat = Heartbeat(epoch=epoch, stage=Stage.BUILD, progress=Progress())
    jobs.cluster.client.heartbeat(jobs.view().rebuild, beat)
    jobs.cluster.settle(1)
    assert (jobs.view().error, jobs.view().stage) == (None, "build")
