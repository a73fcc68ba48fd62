"""What jobs leave behind goes in two steps, and nothing that may still be read."""

from __future__ import annotations

from dataclasses import replace

from anew.api.jobs.requests import CreateJob, DropGeneration, OfGeneration
from anew.controller.engine.apart import Apart
from anew.controller.jobs.logs import LogUpkeep
from anew.controller.reconcile import Reconciler
from anew.core.jobs.places import CODE_FOLDER, PLAN_SECONDS
from anew.testing.job_builders import a_code
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs

_MONTH_SECONDS = 31 * 86_400


def _archive(jobs: Jobs, name: str) -> str:
    path = f"{CODE_FOLDER}/{name}.zip"
    jobs.cluster.deep.put(path, name.encode())
    return path


def _age_hours(jobs: Jobs, hours: int) -> None:
    """Hours pass, as the files of the deep store see them too."""
    jobs.cluster.pass_seconds(hours * 3_600)
    jobs.cluster.round()


def test_archives_of_no_generation_go_when_no_plan_can_name_them(jobs: Jobs) -> None:
    """Those of generations that are not reclaimed stay, a young one too; one that is named meanwhile is not removed."""
    # The deep store's files have the time of this machine: the cluster's clock goes on from there.
    first = jobs.cluster.deep.stat(_archive(jobs, "first"))
    assert first is not None
    jobs.cluster.pass_seconds(max(0, (first.modified_ms - jobs.cluster.clock()) // 1_000))
    kept, left, late = (_archive(jobs, name) for name in ("kept", "left", "late"))
    jobs.begin(jobs.plan(code=a_code(path=kept, archive="kept")))
    jobs.cluster.pass_seconds(PLAN_SECONDS - 600)
    jobs.cluster.round()
    assert all(jobs.cluster.deep.stat(path) for path in (kept, left, late))
    _age_hours(jobs, 2)
    noted = {reclaim.target for reclaim in jobs.cluster.context.catalog.reclaims(None) if reclaim.kind == "code"}
    assert noted == {f"{CODE_FOLDER}/first.zip", left, late}
    jobs.begin(jobs.plan(code=a_code(path=late, archive="late")))
    _age_hours(jobs, 2)
    assert [jobs.cluster.deep.stat(path) is not None for path in (kept, left, late)] == [True, False, True]
    jobs.cluster.client.drop_generation(JOB, DropGeneration(generation=2, force=True))
    jobs.cluster.settle(2)
    assert jobs.view(2).status == "reclaimed"
    for _ in range(3):
        _age_hours(jobs, 2)
    assert [jobs.cluster.deep.stat(path) is not None for path in (kept, late)] == [True, False]


class _Logs:
    """Logs that are counted."""

    def __init__(self, *rebuilds: str) -> None:
        self.trimmed: dict[str, bool] = dict.fromkeys(rebuilds, False)

    def rebuilds(self) -> tuple[str, ...]:
        return tuple(self.trimmed)

    def trim(self, rebuild_id: str, *, is_over: bool, older_ms: int) -> None:
        assert older_ms == 600_000
        self.trimmed[rebuild_id] = is_over


def test_logs_go_with_their_generations(jobs: Jobs) -> None:
    """Of a generation that is reclaimed, and of one that the catalog has forgotten; others keep the last ones."""
    jobs.running()
    jobs.running(jobs.plan(code=None))
    first, second = jobs.view(1).rebuild, jobs.view(2).rebuild
    logs = _Logs(first, second, "0" * 32)
    reconciler = Reconciler(replace(jobs.cluster.context, driver_logs=logs))
    reconciler.keep()
    assert logs.trimmed == {first: False, second: False, "0" * 32: True}
    jobs.cluster.client.drop_generation(JOB, DropGeneration(generation=2, force=True))
    jobs.cluster.settle(2)
    LogUpkeep(replace(jobs.cluster.context, driver_logs=logs)).step(Apart())
    assert logs.trimmed == {first: False, second: True, "0" * 32: True}


def test_a_deleted_job_is_forgotten_when_nothing_of_it_can_be_read(jobs: Jobs) -> None:
    """Its topic keeps it: what counts there is known for as long; then it goes, and its name goes on counting."""
    jobs.running()
    client, catalog = jobs.cluster.client, jobs.cluster.context.catalog
    client.stop_job(JOB, OfGeneration())
    client.delete_job(JOB)
    for _ in range(3):
        jobs.cluster.pass_seconds(_MONTH_SECONDS)
        jobs.cluster.settle(2)
    assert [job.name for job in catalog.deleted_jobs()] == [JOB]
    client.delete_topic("classes_g1")
    for _ in range(3):
        jobs.cluster.pass_seconds(_MONTH_SECONDS)
        jobs.cluster.settle(2)
    assert catalog.deleted_jobs() == []
    client.create_job(CreateJob(name=JOB, output="topic:classes", inputs={"events": EVENTS}))
    assert jobs.plan().generation == 2
