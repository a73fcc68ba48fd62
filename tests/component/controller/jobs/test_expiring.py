"""The race of a generation with the retention of what it reads: told before anything is lost."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import DropGeneration, OfGeneration, RunGeneration
from anew.core.errors import Unreachable
from anew.core.moment import instant_text
from anew.log.interface import KEEP_FOR_EVER, Retention, TopicFacts, TopicPartition
from tests.component.controller.harness import Cluster
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs, Ran, Said

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


_NOMINAL = Retention(_KEPT_HOURS * _HOUR * 1_000)


def _kept(jobs: Jobs) -> Retention:
    return jobs.cluster.log.facts(EVENTS, jobs.cluster.client.topic(EVENTS).topic_uid).retention


def _begin(jobs: Jobs) -> int:
    number = jobs.begin(jobs.plan(start="oldest", hold_retention=True))
    jobs.cluster.client.run_job(JOB, RunGeneration(generation=number))
    jobs.cluster.round()
    return number


def _oldest(jobs: Jobs) -> int:
    """Where the log begins after retention was applied."""
    jobs.cluster.pass_seconds(2 * jobs.cluster.context.limits.low_water_interval_seconds)
    jobs.cluster.settle(2)
    at = TopicPartition(EVENTS, jobs.cluster.client.topic(EVENTS).topic_uid, 0)
    return jobs.cluster.log.offsets(at).begin


def _catches_up(jobs: Jobs, number: int) -> None:
    epoch = jobs.take(number)
    jobs.record(epoch, {0: 2_400, 1: 0}, number=number)
    _late_look(jobs)


def _late_look(jobs: Jobs) -> None:
    """Whether history is needed is looked at now and then."""
    jobs.cluster.pass_seconds(jobs.cluster.context.limits.low_water_interval_seconds + 1)
    jobs.cluster.settle(2)


@pytest.mark.case("streams:E4")
def test_history_is_held_until_it_is_read(jobs: Jobs, ran: Ran) -> None:
    """Nothing goes while the generation is behind, however long that takes; then what is due goes."""
    number = _begin(jobs)
    plan = ran("plan", JOB, "--from", "oldest", "--hold-retention")
    assert (plan["hold_retention"], "forget nothing" in " ".join(plan["why"])) == (True, True)
    assert (_kept(jobs), jobs.cluster.client.topic(EVENTS).held_by) == (KEEP_FOR_EVER, (f"{JOB}@1",))
    jobs.cluster.pass_seconds(10 * _KEPT_HOURS * _HOUR)
    assert _oldest(jobs) == 0
    _catches_up(jobs, number)
    assert (_kept(jobs), jobs.cluster.client.topic(EVENTS).held_by) == (_NOMINAL, ())
    assert _oldest(jobs) >= 2_300  # what was appended last stays


@pytest.mark.case("streams:E4")
def test_the_last_of_several_lets_go(jobs: Jobs) -> None:
    """Holds are counted; a generation that is dropped needs nothing any more."""
    first = _begin(jobs)
    second = _begin(jobs)
    _catches_up(jobs, first)
    assert (_kept(jobs), jobs.cluster.client.topic(EVENTS).held_by) == (KEEP_FOR_EVER, (f"{JOB}@2",))
    jobs.cluster.client.drop_generation(JOB, DropGeneration(generation=second))
    _late_look(jobs)
    assert _kept(jobs) == _NOMINAL


@pytest.mark.case("streams:E4")
def test_what_somebody_changes_meanwhile_stays(jobs: Jobs) -> None:
    """An operator's word is neither undone while history is held, nor when it is let go."""
    number = _begin(jobs)
    mine = Retention(999_000_000)
    jobs.cluster.log.set_retention(EVENTS, jobs.cluster.client.topic(EVENTS).topic_uid, mine)
    jobs.cluster.settle(3)
    assert _kept(jobs) == mine
    _catches_up(jobs, number)
    assert (_kept(jobs), jobs.cluster.client.topic(EVENTS).held_by) == (mine, ())


@pytest.mark.case("streams:E4")
@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_controller_that_dies_at_the_log_s_answer_puts_back_what_was_there(
    jobs: Jobs, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the log has heard of it, or after: what was kept before is noted first, and never taken from itself."""
    log = jobs.cluster.log
    tell, heard = log.set_retention, list[Retention]()

    def die(name: str, uid: str, retention: Retention) -> None:
        heard.append(retention)
        if dies == "after":
            tell(name, uid, retention)
        raise Unreachable("log_unreachable", "nobody hears of it")

    monkeypatch.setattr(log, "set_retention", die)
    number = _begin(jobs)
    assert (heard[-1], _kept(jobs)) == (KEEP_FOR_EVER, KEEP_FOR_EVER if dies == "after" else _NOMINAL)
    monkeypatch.setattr(log, "set_retention", tell)
    jobs.cluster.settle(2)
    assert _kept(jobs) == KEEP_FOR_EVER
    monkeypatch.setattr(log, "set_retention", die)
    _catches_up(jobs, number)
    assert heard[-1] == _NOMINAL
    monkeypatch.setattr(log, "set_retention", tell)
    jobs.cluster.settle(2)
    assert (_kept(jobs), jobs.cluster.client.topic(EVENTS).held_by) == (_NOMINAL, ())


@pytest.mark.case("streams:E4")
def test_who_joins_while_another_one_is_looked_at_is_not_forgotten(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold that comes while the log is asked, told to keep everything, or told to forget again, holds."""
    log, client = jobs.cluster.log, jobs.cluster.client
    ask, tell, joined = log.facts, log.set_retention, list[int]()

    def join() -> None:
        if not joined:
            joined.append(0)
            joined[0] = jobs.begin_only(jobs.plan(start="oldest", hold_retention=True))

    def asked(name: str, uid: str) -> TopicFacts:
        found = ask(name, uid)
        if name == EVENTS:
            join()
        return found

    monkeypatch.setattr(log, "facts", asked)
    first = _begin(jobs)
    monkeypatch.setattr(log, "facts", ask)
    jobs.cluster.settle(2)
    assert client.topic(EVENTS).held_by == (f"{JOB}@1", f"{JOB}@2")
    assert _kept(jobs) == KEEP_FOR_EVER
    client.drop_generation(JOB, DropGeneration(generation=2))
    jobs.cluster.settle(2)
    joined.clear()

    def told(name: str, uid: str, retention: Retention) -> None:
        tell(name, uid, retention)
        join()

    monkeypatch.setattr(log, "set_retention", told)
    _catches_up(jobs, first)
    monkeypatch.setattr(log, "set_retention", tell)
    jobs.cluster.settle(2)
    assert client.topic(EVENTS).held_by == (f"{JOB}@3",)
    assert _kept(jobs) == KEEP_FOR_EVER
    client.drop_generation(JOB, DropGeneration(generation=3))
    _late_look(jobs)
    assert (_kept(jobs), client.topic(EVENTS).held_by) == (_NOMINAL, ())


@pytest.mark.case("streams:E4")
def test_what_does_not_run_still_needs_its_history(jobs: Jobs) -> None:
    """However near the end it is: nobody knows when it goes on."""
    number = _begin(jobs)
    epoch = jobs.take(number)
    jobs.record(epoch, {0: 2_300, 1: 0}, number=number)
    jobs.cluster.client.stop_job(JOB, OfGeneration(generation=number))
    jobs.end(epoch, number=number)
    _late_look(jobs)
    assert _kept(jobs) == KEEP_FOR_EVER
    assert jobs.view().expires is None
