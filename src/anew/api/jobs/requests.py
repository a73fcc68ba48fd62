"""What is asked of jobs, and what their drivers say."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from anew.api.jobs.place import OutputPlace
from anew.api.wire import Request, Wire, example
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.code import Environment, JobCode
from anew.core.jobs.deadletters import DEFAULT_LIMIT, MOST_LETTERS, STOP, OnBadRecord
from anew.core.jobs.inputs import Start
from anew.core.jobs.job import Job
from anew.core.jobs.plan import MOST_RECORDS, PARALLEL, Mode
from anew.core.jobs.starts import StartAt
from anew.core.moment import LAST_MS

MOST_BATCHES = 200


class CreateJob(Request):
    """Make a job; its first generation is planned by itself. The same ``request_id`` is the same job.

    Attributes:
        inputs: Input → the name of its topic.
        starts: Input → where a generation begins that is not told otherwise; one that is not named: ``oldest``.
        max_lateness_ms: How far the time of a record that it writes may lie behind the moment at which the log got the
            record that it is made of; null: nothing is known of that, and no tombstones are dropped where it writes.
    """

    model_config = example(name="delay_class", output="store:delays", inputs={"flights": "flight_events"})

    name: str
    output: str
    inputs: dict[str, str]
    starts: dict[str, Start] = Field(default_factory=dict, exclude_if=lambda starts: not starts)
    max_lateness_ms: int | None = Field(
        default=None, ge=0, le=LAST_MS, exclude_if=lambda lateness_ms: lateness_ms is None
    )
    request_id: str | None = None


class PlanGeneration(Request):
    """Plan a generation: with which code, and from where.

    Attributes:
        mode: ``parallel``: beside the live generation. ``simple``: in its place, from an earlier start. ``deploy``: in
            its place, from where it ended. What is in its place is begun once it is stopped.
        draft: Whether the plan is for a trial of the function alone: what the output, and the code, would refuse is
            not asked, and it cannot be run.
        code: None: that of the live generation.
        environment: Of whoever plans: with the live generation's code this is what it is frozen with.
        start: Where all inputs begin; None: at their defaults. Of a deployment None.
        clamp: Whether offsets that a log does not hold are moved to the nearest ones that it does.
        from_oldest_available: Whether a start at a time that retention has passed begins at the oldest record.
        on_bad_record: What a record does that cannot be read, or on which the function fails: ``stop`` ends the
            generation, ``skip`` leaves it out as a dead letter.
        dead_letter_limit: How many records may be left out.
        hold_retention: Whether the topics of its inputs forget nothing until it has caught up.
    """

    model_config = example(start={"kind": "time", "at_ms": 1_386_072_000_000}, max_records=50_000)

    mode: Mode = PARALLEL
    draft: bool = False
    code: JobCode | None = None
    environment: Environment | None = None
    start: Annotated[StartAt, Field(discriminator="kind")] | None = None
    clamp: bool = False
    from_oldest_available: bool = False
    master: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    max_records: int = Field(default=100_000, ge=1, le=MOST_RECORDS)
    on_bad_record: OnBadRecord = STOP
    dead_letter_limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MOST_LETTERS)
    hold_retention: bool = Field(default=False, exclude_if=lambda is_held: not is_held)


class OfGeneration(Request):
    """Which generation is meant; None: the live one, or the only one."""

    model_config = example(generation=2)

    generation: int | None = None


class DropGeneration(Request):
    """Retire a generation that is not live.

    Attributes:
        force: Also one that could be cut back to: there is no way back then.
    """

    model_config = example(generation=1, force=True)

    generation: int
    force: bool = False


class RunGeneration(OfGeneration):
    """Which generation is to run.

    Attributes:
        environment: In which it goes on from now on, although its code was submitted from another; None: as before.
        foreground: Whether whoever asks drives it: the controller starts a driver only where that one does not begin.
    """

    foreground: bool = Field(default=False, exclude_if=lambda foreground: not foreground)
    environment: Environment | None = None


MOST_REPLAYED = 100
"""So many dead letters are replayed in one request: their records go through the controller."""


class ReplayDeadLetters(Request):
    """Give the records of dead letters of a generation to their topics again, those that were not yet.

    Attributes:
        generation: None: the only one with dead letters that were not replayed.
        as_new: Also records of topics without write times: they get the time of now, and win over younger ones.
        after: Those behind this key: the field ``next`` of the answer before.
    """

    model_config = example(generation=2, as_new=False)

    generation: int | None = None
    as_new: bool = False
    after: str | None = Field(default=None, max_length=400)
    limit: int = Field(default=MOST_REPLAYED, ge=1, le=MOST_REPLAYED)


class CutOver(Request):
    """Let a generation serve; None: the one that is to take the live one's place.

    Attributes:
        force: Also while it has not caught up.
        when_caught_up: Not at once, but as soon as it has caught up.
        not_before_ms: Likewise, and not before a time.
    """

    model_config = example(generation=2, force=False)

    generation: int | None = None
    force: bool = False
    when_caught_up: bool = False
    not_before_ms: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _at_once_or_later(self) -> CutOver:
        if self.force and (self.when_caught_up or self.not_before_ms is not None):
            raise ValueError("force is for a cut-over at once: a planned one waits until the generation has caught up")
        return self


class UndoRewind(Request):
    """Take the last rewind back.

    Attributes:
        force: Go back also to a generation that is behind, or does not run.
        seen: The live generation, and the newest one that is not over, as they were when that was decided: asked twice
            it does not do the next thing. None: whatever it does now.
    """

    model_config = example(force=False)

    force: bool = False
    seen: tuple[int, int] | None = None


class OfBatches(Wire):
    """Which batches are asked about: those of the generation that a topic's records name, from one on.

    Attributes:
        job, generation: As the origins of the records name them.
        first: The first batch.
    """

    job: str
    generation: int
    first: int = 0


class RecordBatch(Request):
    """A batch was appended whole."""

    epoch: int
    record: BatchRecord


class DriverEnded(Request):
    """A driver of a generation ends.

    Attributes:
        error: Why; None: it was to stop.
        for_good: Whether another one would come to the same end.
    """

    epoch: int
    error: str | None = None
    for_good: bool = False


class RunOrder(Wire):
    """What a driver of a generation works with, beside its plan.

    Attributes:
        job: The job.
        place: Where its records go.
        batches: The last records of its batches.
    """

    job: Job
    generation: int
    place: OutputPlace
    batches: tuple[BatchRecord, ...]
