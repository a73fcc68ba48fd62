"""What the next generation would change, and which ways to it are open."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CreateJob, OfGeneration, PlanGeneration
from anew.api.jobs.views import JobDiff
from anew.api.topics import CreateTopic
from anew.catalog.change import PutTopic
from anew.controller.engine.commit import commit
from anew.core.errors import Refused
from anew.core.jobs.code import Environment, Shape
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.job_builders import a_code
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, PARTITIONS, Jobs

_STORE = "flights"
_FILTERS = Shape(rows=False, key=False, time=False)
_KEEPS = Shape(rows=True, key=True, time=True)


def _diff(jobs: Jobs, **asked: object) -> JobDiff:
    return jobs.cluster.client.job_diff(JOB, PlanGeneration.model_validate(asked))


def _said(diff: JobDiff) -> dict[str, tuple[object, object, tuple[str, ...]]]:
    return {change.what: (change.now, change.wanted, change.allows) for change in diff.changes}


@pytest.mark.case("streams:F2")
def test_each_change_is_shown_with_the_ways_that_it_leaves(cluster: Cluster) -> None:
    """Code, parameters, files, environment and settings; a function that filters is not rewound in place."""
    jobs = Jobs(cluster)
    jobs.topics()
    cluster.create(_STORE, hybrid=False)
    cluster.client.create_job(CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}))
    jobs.write(5)
    jobs.running(jobs.plan(code=a_code(shape=_KEEPS, params={"severe": "15"}, files={"model": "m1"})))
    cluster.settle(4)
    nothing = _diff(jobs)
    assert (nothing.changes, nothing.live) == ((), 1)
    assert [(way.way, way.open) for way in nothing.ways] == [("deploy", True), ("simple", True), ("parallel", True)]
    assert nothing.ways[0].why == ("once the live generation is stopped: --stop",)
    other = a_code(archive="cc", function="sort", shape=_FILTERS, params={"severe": "30"}, python="3.12")
    found = _diff(jobs, code=other.model_dump(mode="json"), max_records=7, on_bad_record="skip")
    not_simple, every = ("deploy", "parallel"), ("deploy", "simple", "parallel")
    assert _said(found) == {
        "function": ("jobs:classify", "jobs:sort", not_simple),
        "code": ("aa", "cc", not_simple),
        "parameter severe": ("15", "30", not_simple),
        "file model": ("m1", None, not_simple),
        "environment": ("Python 3.11, PySpark 4.2.0", "Python 3.12, PySpark 4.2.0", every),
        "max_records": (100_000, 7, every),
        "on_bad_record": ("stop", "skip", every),
    }
    assert [(way.way, way.open, way.code) for way in found.ways] == [
        ("deploy", True, None),
        ("simple", False, "must_be_parallel"),
        ("parallel", True, None),
    ]


def test_an_input_that_was_made_again_is_not_gone_on_from(jobs: Jobs) -> None:
    """Positions in another topic of the name mean nothing: history is read again, or nothing is."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 5, 1: 0})
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch)
    context = jobs.cluster.context
    topic = context.catalog.topic(EVENTS)
    assert topic is not None
    # As an earlier build let it happen, which deleted topics that jobs read.
    gone = topic.model_copy(update={"deleted_at_ms": jobs.cluster.clock()})
    commit(context, context.operation("delete topic", EVENTS, "test"), PutTopic(gone, topic.revision))
    request = CreateTopic(name=EVENTS, partitions=PARTITIONS, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
    again = jobs.cluster.client.create_topic(request)
    found = _diff(jobs)
    change = _said(found)["input events"]
    assert isinstance(change[0], dict)
    assert isinstance(change[1], dict)
    assert (change[0]["topic_uid"], change[1]["topic_uid"]) == (topic.topic_uid, again.topic_uid)
    assert change[2] == ("simple", "parallel")
    assert [way.code for way in found.ways] == ["input_changed", None, None]


def test_a_way_that_a_stop_does_not_open_is_not_shown_as_open(jobs: Jobs) -> None:
    """A rewind is in work: a deployment would be refused once the live generation had stopped for it."""
    jobs.running()
    jobs.begin(jobs.plan(code=None))
    assert {way.code for way in _diff(jobs, clamp=True).ways} == {"rewind_running"}


def test_the_environment_of_who_asks_counts_without_code(jobs: Jobs) -> None:
    """A rewind of the same code is frozen with the versions of the machine where it is planned."""
    jobs.running()
    found = _diff(jobs, environment=Environment(python="3.13", pyspark="4.2.0").model_dump(mode="json"))
    assert list(_said(found)) == ["environment"]


def test_without_a_live_generation_there_is_nothing_to_differ_from(jobs: Jobs) -> None:
    """The first generation is submitted."""
    assert refused(Refused, lambda: _diff(jobs)).code == "nothing_live"
