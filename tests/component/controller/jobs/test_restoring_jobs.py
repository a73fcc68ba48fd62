"""Topics and jobs of a lost catalog come back from their records; what was lost with it is not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anew.api.jobs.requests import CutOver, DropGeneration, OfGeneration, RunGeneration
from anew.api.models import RestoreCatalog, ResumeRebuild
from anew.api.rebuilds import JobStart
from anew.api.topics import CreateTopic
from anew.api.upkeep import RestoredCatalog
from anew.controller.restore.documents import JOB_RECORDS, TOPIC_RECORDS
from anew.core.errors import Refused
from anew.core.jobs.places import folder_of
from tests.component.controller.harness import opened_cluster, refused
from tests.component.controller.jobs.jobs_harness import CLASSES, EVENTS, JOB, Jobs


@contextmanager
def _without_catalog(jobs: Jobs, directory: Path) -> Iterator[Jobs]:
    """Another controller over the same log and deep store, with an empty catalog."""
    (directory / "again").mkdir(parents=True)
    cluster = jobs.cluster
    with opened_cluster(directory / "again") as fresh:
        for _ in range(1_000):
            fresh.context.new_id()  # so that no id of the cluster before comes again
        own, fresh.log, fresh.deep = fresh.log, cluster.log, cluster.deep
        fresh.context.fabrics.update(cluster.context.fabrics)  # type: ignore[attr-defined]  # a dict in these tests
        fresh.clock.now_ms = cluster.clock.now_ms
        yield Jobs(fresh)
        own.close()


def _restore(jobs: Jobs, *, dry_run: bool = False) -> RestoredCatalog:
    return jobs.cluster.client.restore_catalog(RestoreCatalog(dry_run=dry_run))


def _began(jobs: Jobs, number: int = 1) -> None:
    """Spark has planned a batch."""
    jobs.cluster.deep.put(f"{folder_of(jobs.job().uid, number)}/checkpoint/offsets/0", b"v1")


@pytest.mark.case("rules:R16")
def test_topics_come_back_as_they_were(jobs: Jobs, tmp_path: Path) -> None:
    """Live ones are read and written on, deleted ones are reclaimed; incarnations and schema ids do not start again."""
    jobs.write(3)
    jobs.cluster.client.create_topic(CreateTopic(name="old", partitions=1, columns="n INT"))
    jobs.cluster.client.delete_topic("old")
    jobs.cluster.round()
    catalog = jobs.cluster.context.catalog
    before, old = catalog.topics(), catalog.deleted_topics()[0]
    assert len(list(jobs.cluster.deep.list(TOPIC_RECORDS))) >= 3
    with _without_catalog(jobs, tmp_path) as again:
        told = _restore(again)
        assert [(topic.name, topic.deleted, topic.notes) for topic in told.topics] == [
            (CLASSES, False, ()),
            (EVENTS, False, ()),
            ("old", True, ()),
        ]
        after = again.cluster.context.catalog
        assert [topic.model_copy(update={"revision": 0}) for topic in after.topics()] == [
            topic.model_copy(update={"revision": 0}) for topic in before
        ]
        assert min(topic.revision for topic in after.topics()) > max(topic.revision for topic in before)
        again.write(2)
        again.cluster.round()
        made = again.cluster.client.create_topic(CreateTopic(name="old", partitions=1, columns="n INT"))
        assert (made.incarnation, made.topic_uid != old.topic_uid) == (old.incarnation + 1, True)
        again.cluster.pass_seconds(601)
        again.cluster.round()
        assert [topic.topic_uid for topic in after.topics() if topic.name == "old"] == [made.topic_uid]


@pytest.mark.case("rules:R20")
def test_a_job_comes_back_and_says_what_was_lost(jobs: Jobs, tmp_path: Path) -> None:
    """Begun generations do not run again; what counts in their topics is refused; a rewind takes their place."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.append(0, epoch, 1, "a")
    jobs.record(epoch, {0: 5, 1: 0}, attempts=(1,))
    _began(jobs)
    jobs.cluster.round()
    before = jobs.job()
    with _without_catalog(jobs, tmp_path) as again:
        (told,) = _restore(again).jobs
        assert (told.name, told.live, told.generations) == (JOB, 1, {1: "failed"})
        assert "what its batches did was lost with the catalog" in told.notes[0]
        client = again.cluster.client
        assert again.job().next_generation > before.next_generation
        assert refused(Refused, lambda: client.run_job(JOB, RunGeneration())).code == "batches_lost"
        assert refused(Refused, again.read).code == "batch_forgotten"
        assert refused(Refused, lambda: jobs_record(again, epoch)).code == "epoch_outdated"
        assert refused(Refused, lambda: again.plan(mode="deploy", code=None)).code == "batches_lost"
        number = again.running(again.plan(code=None))
        assert number == told.next_generation
        again.record(again.take(number), {0: 5, 1: 0}, number=number)
        again.cluster.settle(4)
        client.cut_over(JOB, CutOver())
        client.drop_generation(JOB, DropGeneration(generation=1, force=True))
        again.cluster.settle(2)
        assert (again.view(1).status, again.job().live) == ("reclaimed", number)


def jobs_record(jobs: Jobs, epoch: int) -> None:
    """The driver of the lost catalog records its next batch."""
    jobs.record(epoch, {0: 5, 1: 0})


def test_a_generation_that_had_not_begun_goes_on(jobs: Jobs, tmp_path: Path) -> None:
    """It is driven again, under an epoch that no driver of before had; a job that was deleted stays so."""
    jobs.running()
    epoch = jobs.take()
    jobs.cluster.round()
    with _without_catalog(jobs, tmp_path) as again:
        assert _restore(again, dry_run=True).jobs[0].generations == {1: "running"}
        _restore(again)
        assert not _restore(again, dry_run=True).empty
        again.cluster.pass_seconds(60)
        again.cluster.settle(2)
        assert again.launched == [f"{JOB}@1"]
        rebuild = again.view().rebuild
        taken = again.cluster.client.resume_rebuild(rebuild, ResumeRebuild(driver="two"), JobStart).rebuild.epoch
        assert taken > epoch + 1
        again.cluster.client.stop_job(JOB, OfGeneration())
        again.cluster.client.delete_job(JOB)
        again.cluster.settle(2)
        assert len(list(again.cluster.deep.list(JOB_RECORDS))) <= 3
        with _without_catalog(again, tmp_path / "third") as third:
            (told,) = _restore(third).jobs
            assert (told.deleted, told.generations) == (True, {1: "reclaimed"})


def test_a_record_that_cannot_be_read_gives_way_to_the_one_before(jobs: Jobs, tmp_path: Path) -> None:
    """And is named."""
    jobs.begin()
    jobs.cluster.round()
    root = f"{JOB_RECORDS}/{jobs.job().uid}"
    jobs.cluster.deep.put(f"{root}/{9_999:020d}.json", b"{}")
    with _without_catalog(jobs, tmp_path) as again:
        told = _restore(again)
        assert [job.name for job in told.jobs] == [JOB]
        assert any(f"{9_999:020d}.json cannot be read" in note for note in told.notes)
        assert again.job().revision > 9_999
