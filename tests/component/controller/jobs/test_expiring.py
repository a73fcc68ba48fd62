"""The race of a generation with the retention of what it reads: told before anything is lost."""

from __future__ import annotations

import pytest

from anew.core.moment import instant_text
from tests.component.controller.harness import Cluster
from tests.component.controller.jobs.jobs_harness import JOB, Jobs, Said

_HOUR, _KEPT_HOURS = 3_600, 48


@pytest.fixture
def jobs(cluster: Cluster) -> Jobs:
    """A job whose input keeps two days, with the records of one."""
    made = Jobs(cluster)
    made.topics(retention_seconds=_KEPT_HOURS * _HOUR)
    made.create()
    for _ in range(24):
        made.write(100)
        cluster.pass_seconds(_HOUR)
    return made


def _reads(jobs: Jobs, records: int, seconds: int) -> None:
    """A generation reads so many records in so many seconds, four times."""
    jobs.running()
    epoch = jobs.take()
    for end in range(records, 5 * records, records):
        jobs.record(epoch, {0: end, 1: 0})
        jobs.cluster.pass_seconds(seconds)
        jobs.beat(epoch)


def test_the_loss_of_what_is_not_read_is_told_before_it_happens(jobs: Jobs, said: Said) -> None:
    """Forty records an hour, of a hundred, and the oldest have a day to go: after forty hours it loses the race."""
    now_ms = jobs.cluster.clock()
    _reads(jobs, 1, 90)
    expires = jobs.view().expires
    assert expires is not None
    assert (expires.input, expires.partition) == ("events", 0)
    assert expires.at_ms - now_ms == pytest.approx(40 * _HOUR * 1_000, abs=2 * _HOUR * 1_000)
    told = f"expire before they are read, from {instant_text(expires.at_ms)} on"
    assert told in " ".join(said("show", JOB).split())
    (problem,) = [one for one in jobs.cluster.client.status().problems if "expire" in one.what]
    assert f"{JOB}@1 will not have read partition 0 of events" in problem.what


def test_who_is_fast_enough_is_told_nothing(jobs: Jobs) -> None:
    """All is read long before the oldest record goes; nor is anything said of a generation that does not run."""
    _reads(jobs, 100, 1)
    assert jobs.view().expires is None
    assert not [one for one in jobs.cluster.client.status().problems if "expire" in one.what]
