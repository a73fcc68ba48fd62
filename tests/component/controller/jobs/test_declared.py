"""What a job is made with beside its inputs: default starts, how late its records may be, and who declares that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anew.api.jobs.requests import CreateJob, PlanGeneration
from anew.api.topics import CreateTopic
from anew.core.errors import InvalidRequest, Refused
from anew.core.jobs.inputs import Start
from anew.core.jobs.starts import Newest, Oldest
from anew.runtime import jobs as of_jobs
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.job_builders import a_code
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import CLASSES, EVENTS, JOB, PARTITIONS, Jobs, Ran

_CODE = """
import anew
from pyspark.sql import functions as F


@anew.job(inputs={"events": anew.Input(topic="events", start="newest")}, output="topic:classes", max_lateness="2h")
def classify(events, *, severe: int = 15):
    return events.select("key", "value", "deleted", "timestamp")


def plain(events):
    return events
"""


def _create(jobs: Jobs, name: str, **said: Any) -> None:
    jobs.cluster.client.create_job(
        CreateJob(**{"name": name, "output": f"topic:{CLASSES}", "inputs": {"events": EVENTS}, **said})
    )


def _planned(jobs: Jobs, name: str, **asked: Any) -> Any:
    return jobs.cluster.client.plan_generation(name, PlanGeneration(code=a_code(), **asked))


@pytest.mark.case("streams:B1")
def test_a_generation_begins_where_its_inputs_say(jobs: Jobs) -> None:
    """At the oldest record, behind the newest, or nowhere: then each plan names its start; a trial needs none."""
    jobs.write(3)
    _create(jobs, "latest", starts={"events": "newest"})
    _create(jobs, "told", starts={"events": "fail"})
    begins = {name: _planned(jobs, name).start["events"][0] for name in (JOB, "latest")}
    assert begins == {JOB: 0, "latest": 3}
    assert [each.default_start for each in _planned(jobs, "latest").inputs] == [Start.NEWEST]
    passed = "it reads none of the records that are there now: --from oldest reads history"
    assert [passed in _planned(jobs, name).why for name in (JOB, "latest")] == [False, True]
    assert _planned(jobs, "latest", start=Oldest()).start["events"][0] == 0
    with pytest.raises(InvalidRequest, match="where to begin") as caught:
        _planned(jobs, "told")
    assert (caught.value.code, "--from" in str(caught.value.hint)) == ("start_not_given", True)
    assert _planned(jobs, "told", start=Newest()).start["events"][0] == 3
    assert _planned(jobs, "told", draft=True).start["events"][0] == 0
    view = jobs.cluster.client.job("told")
    assert (view.starts, view.max_lateness_ms) == ({"events": Start.FAIL}, None)


def test_a_default_start_is_of_an_input(jobs: Jobs) -> None:
    """One of another name is refused, and nothing is made."""
    found = refused(InvalidRequest, lambda: _create(jobs, "other", starts={"flights": "newest"}))
    assert (found.code, found.found) == ("unknown_input", "flights")
    assert [job.name for job in jobs.cluster.client.jobs()] == [JOB]


def test_a_job_that_says_something_else_is_another_one(jobs: Jobs) -> None:
    """An empty job of the name is given back only to who asks for the same."""
    _create(jobs, "latest", starts={"events": "newest"}, max_lateness_ms=5)
    _create(jobs, "latest", starts={"events": "newest"}, max_lateness_ms=5)
    for other in ({}, {"starts": {"events": "newest"}}, {"max_lateness_ms": 5}):
        with pytest.raises(Refused, match="there is a job"):
            _create(jobs, "latest", **other)


@pytest.mark.processes
def test_a_function_or_a_file_declares_the_job(
    jobs: Jobs, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said twice; what contradicts is refused before anything is made, and what nobody says, too."""
    monkeypatch.setattr(of_jobs, "wait_seconds", lambda _seconds: jobs.cluster.round())
    code = tmp_path / "delays.py"
    code.write_text(_CODE)
    untried = ("--no-trial", "--from", "oldest")
    made = ran("submit", "declared", f"{code}:classify", *untried)
    assert (made["inputs"], made["output"]) == ({"events": EVENTS}, f"topic:{CLASSES}")
    assert (made["starts"], made["max_lateness_ms"]) == ({"events": "newest"}, 7_200_000)
    wrong = ran("submit", "wrong", f"{code}:classify", "--output", "topic:events", *untried, code=2)["error"]
    assert (wrong["code"], wrong["expected"]) == ("declared_otherwise", f"topic:{CLASSES}")
    unsaid = ran("submit", "unsaid", f"{code}:plain", "--input", f"events={EVENTS}", *untried, code=2)["error"]
    assert (unsaid["code"], unsaid["found"]) == ("not_declared", "no output")
    assert (
        ran("submit", "wrong", "f.py:g", "--set", "max_record=1", code=2)["error"]["hint"]
        == "did you mean max_records?"
    )
    assert ran("submit", "wrong", "f.py:g", "--set", "max_records=many", code=2)["error"]["found"] == "many"
    code.with_name("elsewhere.py").write_text("import a_package_of_the_cluster\n")
    function = f"{code.with_name('elsewhere.py')}:classify"
    absent = ran("submit", "absent", function, *untried, code=2)["error"]
    assert (absent["code"], "a_package_of_the_cluster" in absent["found"]) == ("import_failed", True)
    file = tmp_path / "job.toml"
    others = CreateTopic(name="others", partitions=PARTITIONS, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
    jobs.cluster.client.create_topic(others)
    file.write_text(f'function = "delays.py:plain"\noutput = "topic:others"\n[inputs]\nevents = "{EVENTS}"\n')
    by_file = ran("submit", "by_file", str(file), "--set", "max_lateness=90s", "--set", "max_records=7", *untried)
    assert (by_file["starts"], by_file["max_lateness_ms"]) == ({"events": "oldest"}, 90_000)
    made_by_file = jobs.cluster.context.catalog.job("by_file")
    assert made_by_file is not None
    assert made_by_file.generations[0].max_records == 7
    file.write_text(file.read_text().replace("topic:others", f"topic:{CLASSES}"))
    moved = ran("plan", "by_file", str(file), *untried, code=2)["error"]
    assert (moved["code"], moved["found"], moved["expected"]) == (
        "declared_otherwise",
        f"topic:{CLASSES}",
        "topic:others",
    )
    twice = ran("submit", "twice", str(file), "--input", "events=classes", *untried, code=2)["error"]
    assert (twice["code"], str(file) in twice["message"]) == ("declared_otherwise", True)
    assert sorted(job.name for job in jobs.cluster.client.jobs()) == sorted((JOB, "declared", "by_file"))
