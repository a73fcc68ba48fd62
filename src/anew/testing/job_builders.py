"""Jobs for tests: one generation that reads one topic."""

from __future__ import annotations

from typing import Any

from anew.core.jobs.batch import NO_DIGEST, BatchRecord, chained
from anew.core.jobs.code import JobCode
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.inputs import JobInput
from anew.core.jobs.job import Job, JobOutput
from anew.core.jobs.plan import JobFence, JobPlan
from anew.core.jobs.rebuild import JobRebuild
from anew.core.plan import Estimate
from anew.core.rebuild import RebuildStatus, Stage
from anew.testing.clock import NOON_MS


def a_code(**changes: Any) -> JobCode:
    """A function."""
    values = {"module": "jobs", "function": "classify", "archive": "aa", "path": "jobs/aa.zip", "python": "3.11"}
    return JobCode(**{**values, "pyspark": "4.2.0", **changes})


def an_input(**changes: Any) -> JobInput:
    """A topic of two partitions."""
    values: dict[str, Any] = {"name": "events", "fabric": "dc-0", "topic": "events", "topic_uid": "u", "partitions": 2}
    return JobInput(**{**values, **changes})


def a_generation(number: int, replaces: int | None = None, **changes: Any) -> Generation:
    """A generation that was planned."""
    values: dict[str, Any] = {
        "number": number,
        "status": GenerationStatus.PLANNED,
        "since_ms": NOON_MS,
        "created_at_ms": NOON_MS,
        "code": a_code(),
        "inputs": (an_input(),),
        "start": {"events": {0: 0, 1: 0}},
        "rebuild": f"rebuild-{number}",
        "writes_to": f"dc-0/delays_j{number}#1",
        "replaces": replaces,
    }
    return Generation(**{**values, **changes})


def a_job_rebuild(generation: int = 1, **changes: Any) -> JobRebuild:
    """The rebuild of a generation that has a driver."""
    plan = JobPlan(
        job="delay_class",
        generation=generation,
        code=a_code(),
        inputs=(an_input(),),
        start={"events": {0: 0, 1: 0}},
        output="store:delays",
        estimate=Estimate(records=0, bytes=0, seconds=None),
        fence=JobFence(job_uid="uid-job", live=None),
    )
    values: dict[str, Any] = {
        "id": f"rebuild-{generation}",
        "job": "delay_class",
        "job_uid": "uid-job",
        "generation": generation,
        "plan": plan.sealed(),
        "status": RebuildStatus.RUNNING,
        "stage": Stage.BUILD,
        "epoch": 1,
        "lease_until_ms": NOON_MS + 20_000,
        "created_at_ms": NOON_MS,
        "stage_since_ms": NOON_MS,
        "wanted": True,
    }
    return JobRebuild(**{**values, **changes})


def a_job(*generations: Generation, **changes: Any) -> Job:
    """A job that writes into a store."""
    values: dict[str, Any] = {
        "uid": "uid-job",
        "name": "delay_class",
        "fabric": "dc-0",
        "inputs": {"events": "events"},
        "output": JobOutput(kind="store", name="delays", uid="uid-delays"),
        "generations": generations,
        "next_generation": len(generations) + 1,
        "created_at_ms": NOON_MS,
    }
    return Job(**{**values, **changes})


def a_batch(number: int, epoch: int = 1, **changes: Any) -> BatchRecord:
    """A batch of ten records of one partition."""
    values: dict[str, Any] = {
        "batch": number,
        "epoch": epoch,
        "start": {"events": {0: number * 10, 1: 0}},
        "end": {"events": {0: number * 10 + 10, 1: 0}},
        "rows": 10,
        "planned": f"planned-{number}",
        "digest": chained(NO_DIGEST, f"planned-{number}"),
        "at_ms": NOON_MS,
    }
    return BatchRecord(**{**values, **changes})
