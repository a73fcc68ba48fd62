"""The versions that a generation is frozen with, and those of the driver that comes."""

from __future__ import annotations

from typing import Any

from anew.api.jobs.requests import OfGeneration, RunGeneration
from anew.core.errors import Failed, Refused
from anew.core.jobs.code import Environment
from anew.rebuild.jobs.driving import Driving, drive
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import JOB, Jobs

_OTHER = Environment(python="3.13", pyspark="4.2.0")


def _drive(jobs: Jobs, environment: Environment) -> None:
    """A driver that comes as far as the archive of the code."""

    def deep_store(_: str) -> Any:
        raise Failed("came_far", "the driver got as far as the code")

    def no_session(*_: object) -> Any:
        raise AssertionError("no session is needed so far")

    driving = Driving(jobs.cluster.client, no_session, deep_store, "driver", jobs.cluster.clock, 5.0, environment)
    drive(jobs.view().rebuild, driving)


def test_a_driver_of_another_environment_is_refused_until_it_is_accepted(jobs: Jobs) -> None:
    """The generation fails for good, and names both; accepted, it goes on in that one and no longer in its own."""
    jobs.running()
    error = refused(Refused, lambda: _drive(jobs, _OTHER))
    assert (error.code, error.found, error.expected) == (
        "environment_differs",
        "Python 3.13, PySpark 4.2.0",
        "Python 3.11, PySpark 4.2.0",
    )
    assert (jobs.view().status, "environment" in str(jobs.view().error)) == ("failed", True)
    jobs.cluster.client.run_job(JOB, RunGeneration(generation=1, environment=_OTHER))
    refused(Failed, lambda: _drive(jobs, _OTHER))
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.cluster.client.run_job(JOB, RunGeneration())
    assert refused(Refused, lambda: _drive(jobs, Environment(python="3.11", pyspark="4.2.0"))).code == (
        "environment_differs"
    )


def test_a_patch_of_spark_is_taken_and_a_rewind_is_frozen_where_it_is_planned(jobs: Jobs) -> None:
    """Neither functions nor checkpoints change with it; the same code in another environment is another code."""
    jobs.running()
    refused(Failed, lambda: _drive(jobs, Environment(python="3.11", pyspark="4.2.9")))
    plan = jobs.plan(code=None, environment=_OTHER)
    live = jobs.job().generation(1).code
    assert (plan.code.environment, plan.code.archive) == (_OTHER, live.archive)
    assert plan.code.hash != live.hash
