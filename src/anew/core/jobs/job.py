"""A stream job: its generations, which of them is live, and the order in which they come and go.

Every rewind is a new generation with its own checkpoint, its own state and its own output; nothing is moved in place.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from anew.core.backoff import backoff_seconds
from anew.core.errors import InvalidRequest, Refused
from anew.core.jobs.catchup import LOOKS_TO_CATCH_UP
from anew.core.jobs.code import Environment
from anew.core.jobs.cutover import PlannedCut
from anew.core.jobs.generation import Generation, GenerationStatus, unknown_generation
from anew.core.jobs.inputs import Start
from anew.core.plan import Value
from anew.core.stamp import Origin, OriginKind

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 300.0
_MAY_RUN = frozenset({GenerationStatus.READY, GenerationStatus.STOPPED, GenerationStatus.FAILED})


class JobOutput(Value):
    """Where a job's output goes.

    Attributes:
        kind: ``store`` or ``topic``.
        name, uid: Of the one that it is.
    """

    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Job(Value):
    """A job.

    Attributes:
        uid: Of this job alone; a later one of the same name has another.
        inputs: Input → the name of its topic.
        starts: Input → where a generation begins that is not told otherwise; one that is not named: ``oldest``.
        max_lateness_ms: How far the time of a record that it writes may lie behind the moment at which the log got the
            record that it is made of; None: nothing is known of that (rule R12).
        live: The generation whose output serves; None before the first.
        planned_cut: The cut-over that is to happen by itself; None: none is.
        next_generation: The number that the next one gets.
    """

    uid: str
    name: str
    fabric: str
    inputs: dict[str, str]
    # A controller of the release before knows neither.
    starts: dict[str, Start] = Field(default_factory=dict, exclude_if=lambda starts: not starts)
    max_lateness_ms: int | None = Field(default=None, exclude_if=lambda lateness_ms: lateness_ms is None)
    output: JobOutput
    generations: tuple[Generation, ...] = ()
    live: int | None = None
    planned_cut: PlannedCut | None = None
    next_generation: int = 1
    created_at_ms: int
    deleted_at_ms: int | None = None
    revision: int = 0

    def start_of(self, name: str) -> Start:
        """Where a generation begins to read an input that is not told otherwise."""
        return self.starts.get(name, Start.OLDEST)

    @property
    def says(self) -> tuple[object, ...]:
        """What it was made with; two jobs that say the same differ in their generations alone."""
        return self.inputs, self.starts, self.max_lateness_ms, self.output

    def find(self, number: int) -> Generation | None:
        """The generation of that number."""
        return next((each for each in self.generations if each.number == number), None)

    def generation(self, number: int) -> Generation:
        """The generation of that number.

        Raises:
            NotFound: ``unknown_generation``.
        """
        found = self.find(number)
        if found is None:
            raise unknown_generation(self.name, number, [each.number for each in self.generations])
        return found

    def live_generation(self) -> Generation:
        """The one whose output serves.

        Raises:
            Refused: ``nothing_live``.
        """
        if self.live is None:
            raise Refused(
                "nothing_live",
                f"{self.name} has no live generation",
                found="none serves",
                expected="a generation to go on from",
                hint=f"anew job show {self.name}",
            )
        return self.generation(self.live)

    def line(self) -> list[Generation]:
        """The live generation, and those that wrote into its output before it, each in the place of the next one.

        Raises:
            Refused: ``nothing_live``.
        """
        found = [self.live_generation()]
        while found[-1].in_place and found[-1].replaces is not None:
            found.append(self.generation(found[-1].replaces))
        return found

    def can_come_back(self, number: int) -> bool:
        """Whether readers can be sent back to a generation, over those in between that are still there."""
        found = self.live_generation()
        while found.replaces is not None and found.replaces != number:
            found = self.generation(found.replaces)
            if found.over:
                return False
        return found.replaces == number

    def origin_of(self, number: int) -> Origin:
        """Under which origin a generation's records are stamped (rule R20)."""
        return Origin(OriginKind.JOB, self.name, number)

    @property
    def in_work(self) -> Generation | None:
        """The generation that is to take the place of the live one, if there is one."""
        return next(
            (each for each in self.generations if not each.over and each.replaces == self.live and self.live), None
        )


def check_job_name(name: str) -> None:
    """Raise unless a job may be called so.

    Raises:
        InvalidRequest: ``bad_name``.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "bad_name", "this is no name for a job", found=name, expected="a letter, then a-z, 0-9, _; ≤ 64"
        )


def with_generation(job: Job, generation: Generation) -> Job:
    """The job with a generation that was planned now.

    Raises:
        Refused: As `check_begins`.
    """
    check_begins(job, generation.number, generation.replaces)
    return _with(job, generation, next_generation=job.next_generation + 1)


def check_begins(job: Job, number: int, replaces: int | None) -> None:
    """Raise unless a generation of that number may begin now.

    Raises:
        Refused: ``plan_outdated``: another one was planned meanwhile; ``rewind_running``: one is in work already.
    """
    if number != job.next_generation or replaces != job.live:
        raise Refused(
            "plan_outdated",
            f"{job.name} has moved since the plan was made",
            found=f"next generation {job.next_generation}, live {job.live}",
            expected=f"next generation {number}, live {replaces}",
            hint="make a new plan",
        )
    other = job.in_work or next((each for each in job.generations if job.live is None and not each.over), None)
    if other is not None:
        raise Refused(
            "rewind_running",
            f"generation {other.number} of {job.name} is to take the place of the live one already",
            found=other.status.value,
            expected="one rewind at a time",
            hint=f"anew job cutover {job.name}, or drop it: anew job reclaim {job.name}@{other.number}",
        )


def in_place(job: Job, generation: Generation, now_ms: int) -> Job:
    """The job whose live generation another one takes the place of at once; that one will not run again.

    The other one goes on where it ended (case F1), or reads history again and writes into its output (case D1).

    Raises:
        NotFound: ``unknown_generation``: none is live.
        Refused: ``generation_runs``: it is not at rest; ``plan_outdated``, ``rewind_running``.
    """
    live = at_rest(job)
    after = _to(with_generation(job, generation), live, GenerationStatus.RETIRED, now_ms)
    return after.model_copy(update={"live": generation.number})


def at_rest(job: Job) -> Generation:
    """The live generation, which nobody runs: where it ended is where another one can go on.

    Raises:
        Refused: ``generation_runs``, ``nothing_live``.
    """
    live = job.live_generation()
    if live.status in (GenerationStatus.RUNNING, GenerationStatus.PLANNED):
        raise Refused(
            "generation_runs",
            f"{job.name}@{live.number} runs: where it ends is not known yet",
            found=live.status.value,
            expected="a generation that is stopped",
            hint=f"anew job stop {job.name}; a command with --stop does that itself, unless it is a dry run",
        )
    return live


def made_ready(job: Job, number: int, now_ms: int) -> Job:
    """The output of a planned generation is there; of another one nothing changes."""
    found = job.generation(number)
    return _to(job, found, GenerationStatus.READY, now_ms) if found.status is GenerationStatus.PLANNED else job


def to_run(job: Job, number: int, now_ms: int, environment: Environment | None = None) -> Job:
    """A generation is to run; one that runs already stays as it is.

    Args:
        job: The job.
        number: The generation's.
        now_ms: The time.
        environment: In which it goes on from now on; None: as before.

    Raises:
        Refused: ``generation_over``, ``not_ready``, ``batches_lost``.
    """
    found = job.generation(number)
    if found.status is GenerationStatus.RUNNING:
        return job
    _check_not_over(job, found)
    if found.unrecorded:
        raise batches_lost(job, found)
    if found.status not in _MAY_RUN:
        raise Refused(
            "not_ready",
            f"{job.name}@{number} cannot run yet",
            found=found.status.value,
            expected="a generation whose output is there",
            hint=f"anew job show {job.name}; it takes a moment after it was planned",
        )
    chosen = found.environment if environment is None else environment
    begun: dict[str, Any] = {"failures": 0, "retry_at_ms": 0, "error": None, "environment": chosen}
    return _to(job, found, GenerationStatus.RUNNING, now_ms, **begun)


def check_environment(generation: Generation, found: Environment, name: str) -> None:
    """Raise unless a driver's environment is the one that a generation was frozen with, or told to go on in.

    Args:
        generation: It.
        found: The driver's.
        name: What people call the generation, ``delay_class@1``.

    Raises:
        Refused: ``environment_differs``.
    """
    wanted = generation.code.environment if generation.environment is None else generation.environment
    if found.series != wanted.series:
        raise Refused(
            "environment_differs",
            f"{name} was submitted with another Python or PySpark than its driver has",
            found=str(found),
            expected=str(wanted),
            hint=f"install these again; or, once it was tried, go on: anew job run {name} --accept-environment",
        )


def batches_lost(job: Job, generation: Generation) -> Refused:
    """The refusal to go on from a generation of a restored catalog: nobody knows what it has done."""
    return Refused(
        "batches_lost",
        f"what the batches of {job.name}@{generation.number} did was lost with the catalog",
        found="a generation of a restored catalog",
        expected="one whose batches are known",
        hint=f"begin another one: anew job rewind {job.name} --from oldest",
    )


def to_stop(job: Job, number: int, now_ms: int) -> Job:
    """A generation is not to run; its driver ends after the batch that it is at.

    Raises:
        Refused: ``generation_over``.
    """
    found = job.generation(number)
    _check_not_over(job, found)
    if found.status is not GenerationStatus.RUNNING:
        return job
    # Nobody waits for a driver that was started and has not taken it yet: it will be turned away.
    return _to(job, found, GenerationStatus.STOPPED, now_ms, launched=False)


def started(job: Job, number: int, now_ms: int, start_seconds: float) -> Job:
    """A driver of a generation is started now; no other one before it had the time to begin."""
    return _with(job, _changed(job.generation(number), retry_at_ms=now_ms + int(start_seconds * 1000), launched=True))


def driver_began(job: Job, number: int) -> Job:
    """A driver has taken a generation: the next one need not wait for it, should it be lost."""
    return _with(job, _changed(job.generation(number), retry_at_ms=0, launched=False))


def driver_ended(job: Job, number: int, error: str, now_ms: int, *, for_good: bool) -> Job:
    """A driver of a running generation ended with an error: another one follows after a pause, unless for good."""
    found = job.generation(number)
    if found.status is not GenerationStatus.RUNNING:
        return job
    if for_good:
        return _to(job, found, GenerationStatus.FAILED, now_ms, error=error, launched=False)
    pause_ms = int(backoff_seconds(found.failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS) * 1000)
    return _with(
        job, _changed(found, failures=found.failures + 1, retry_at_ms=now_ms + pause_ms, error=error, launched=False)
    )


def lost_batches(job: Job, number: int, error: str, now_ms: int) -> Job:
    """A generation of a restored catalog that had begun: what its batches did is not known any more."""
    found = job.generation(number)
    return _to(job, found, GenerationStatus.FAILED, now_ms, error=error, unrecorded=True, launched=False)


def got_on(job: Job, number: int) -> Job:
    """A driver recorded a batch: what failed before is over."""
    found = job.generation(number)
    return _with(job, _changed(found, failures=0, error=None)) if found.failures or found.error else job


def name_taken(name: str) -> Refused:
    """The refusal of a job whose name another one has."""
    return Refused(
        "job_exists",
        f"there is a job {name} already",
        found=name,
        expected="a name that is not taken",
        hint=f"anew job show {name}; other code for it: anew job rewind, or anew job deploy",
    )


def cut_over(job: Job, number: int, looks: int, *, force: bool) -> Job:
    """The job whose live generation is another one; the one before goes on running.

    Args:
        job: The job.
        number: The generation that is to serve.
        looks: How many looks in a row found it caught up.
        force: Whether it is to serve although it was not found there often enough.

    Raises:
        Refused: As `check_takes_place`; ``not_caught_up``.
    """
    found = check_takes_place(job, number)
    if not found.is_begun:
        raise Refused(
            "not_caught_up",
            f"{job.name}@{number} has never run: readers would find nothing",
            found=found.status.value,
            expected="a generation that has read its inputs",
            hint=f"anew job run {job.name}@{number}",
        )
    if (looks < LOOKS_TO_CATCH_UP or found.status is not GenerationStatus.RUNNING) and not force:
        raise Refused(
            "not_caught_up",
            f"{job.name}@{number} has not caught up with its inputs",
            found=f"{found.status.value}, caught up in {looks} of the last looks",
            expected=f"running, {LOOKS_TO_CATCH_UP} in a row",
            hint=f"anew job watch {job.name}; with --force what only the live one has read is missing at first",
        )
    return job.model_copy(update={"live": number, "planned_cut": None})


def check_takes_place(job: Job, number: int) -> Generation:
    """The generation of that number, if it may take the live one's place once it has caught up.

    Raises:
        NotFound: ``unknown_generation``.
        Refused: ``generation_over``, ``nothing_to_cut_over``, ``output_not_whole``.
    """
    found = job.generation(number)
    _check_not_over(job, found)
    if number == job.live or (found.replaces != job.live and not _replaced_by_live(job, found)):
        raise Refused(
            "nothing_to_cut_over",
            f"{job.name}@{number} does not take the place of the live generation",
            found=f"live {job.live}",
            expected=f"live {found.replaces}",
            hint=f"anew job show {job.name}",
        )
    if found.replaces == job.live and not found.is_whole:
        raise Refused(
            "output_not_whole",
            f"{job.name}@{number} began behind the first record of its inputs, with an empty output",
            found=f"start {found.start}",
            expected="a generation that reads its inputs from the first record ever",
            hint="what was written before its start would be gone for readers",
        )
    return found


def retired(job: Job, number: int, now_ms: int, *, force: bool = False) -> Job:
    """A generation that is not live will not run again.

    Args:
        job: The job.
        number: The generation.
        now_ms: The time.
        force: Whether also one goes that could be cut back to.

    Raises:
        Refused: As `check_may_go`.
    """
    found = job.generation(number)
    check_may_go(job, number, force=force)
    return job if found.over else _to(job, found, GenerationStatus.RETIRED, now_ms)


def check_may_go(job: Job, number: int, *, force: bool = False) -> None:
    """Raise unless a generation may be retired (case E9).

    Raises:
        Refused: ``generation_live``; ``can_be_cut_back_to``, unless ``force``.
    """
    found = job.generation(number)
    if number == job.live:
        raise Refused(
            "generation_live",
            f"{job.name}@{number} serves",
            found="live",
            expected="a generation that another one took the place of, or that never served",
            hint=f"anew job cutover {job.name}, or anew job delete {job.name}",
        )
    if not force and not found.over and _replaced_by_live(job, found):
        raise Refused(
            "can_be_cut_back_to",
            f"{job.name}@{number} is what the live generation took the place of: readers can go back to it at once",
            found=f"live {job.live}",
            expected="a generation that nobody can go back to",
            hint="with --force it goes, and with it the way back",
        )


def reclaimed(job: Job, number: int, now_ms: int) -> Job:
    """What a retired generation owned has gone."""
    return _to(job, job.generation(number), GenerationStatus.RECLAIMED, now_ms)


def _replaced_by_live(job: Job, found: Generation) -> bool:
    live = None if job.live is None else job.find(job.live)
    return live is not None and live.replaces == found.number


def _check_not_over(job: Job, found: Generation) -> None:
    if found.over:
        raise Refused(
            "generation_over",
            f"{job.name}@{found.number} will not run again",
            found=found.status.value,
            expected="a generation that is not retired",
            hint=f"anew job rewind {job.name} makes another one",
        )


def _to(job: Job, found: Generation, status: GenerationStatus, now_ms: int, **changes: Any) -> Job:
    return _with(job, _changed(found, status=status, since_ms=now_ms, **changes))


def _changed(found: Generation, **changes: Any) -> Generation:
    return Generation.model_validate({**found.model_dump(), **changes})


def _with(job: Job, generation: Generation, **changes: Any) -> Job:
    others = (each for each in job.generations if each.number != generation.number)
    generations = tuple(sorted((*others, generation), key=lambda each: each.number))
    return job.model_copy(update={"generations": generations, **changes})
