"""The controller's answers about jobs: the ``job`` shape of the face."""

from __future__ import annotations

from pydantic import Field

from anew.api.wire import Wire
from anew.core.jobs.committed import CountedBatch
from anew.core.jobs.cutover import PlannedCut
from anew.core.jobs.diff import JobChange
from anew.core.jobs.generation import GenerationStatus, unknown_generation
from anew.core.jobs.inputs import Offsets, Start
from anew.core.jobs.plan import Mode
from anew.core.jobs.undoing import Undoing


class UnreadExpiry(Wire):
    """Records of an input that its topic's retention takes before they are read, at the present rates.

    Attributes:
        at_ms: From when on.
    """

    input: str
    partition: int
    at_ms: int


class GenerationView(Wire):
    """A generation.

    Attributes:
        driver: Whether a driver is at work on it.
        stage: ``begin``: its driver starts Spark; ``build``: it follows its inputs; null: no driver is at work.
        start: Input → partition → the first offset that it read.
        source: Who reads its inputs for Spark.
        positions: Input → partition → next offset behind the last batch.
        lag_records: How many records are left of what the inputs hold now; null: a log does not answer.
        records_per_s: The median of its last batches; null: nothing was measured.
        appended_per_s: How fast what it has not read grows, over the last minute; null: it does not run, or a log does
            not answer.
        seconds_left: Until it has come to the ends, at that pace and with what arrives meanwhile, of the slowest
            partition; null: never, or not known.
        never: Whether a partition of its inputs grows at least as fast as it is read.
        expires: Which records will be gone before it reads them, the first ones of all partitions; null: none, or
            nobody can say.
        caught_up: Whether it was found to have caught up often enough to be cut over to.
        batch: The last batch that was recorded; null before the first.
        rows: How many records all of its batches have written.
        read: How many offsets of its inputs they have read; the function got those that are no dead letters.
        dead_letters: How many records it has left out.
        on_bad_record: What a record does that cannot be read, or on which the function fails: ``stop`` or ``skip``.
        dead_letter_limit: How many it may leave out.
        applied: Whether what it wrote can be read wherever it is to be served; null: nobody can say now.
    """

    number: int
    status: str
    driver: bool
    stage: str | None
    code: str
    entry: str
    start: dict[str, Offsets]
    state: str
    source: str
    positions: dict[str, Offsets]
    lag_records: int | None
    records_per_s: float | None
    appended_per_s: float | None
    seconds_left: float | None
    never: bool
    expires: UnreadExpiry | None = None
    caught_up: bool
    applied: bool | None
    batch: int | None
    rows: int
    read: int
    dead_letters: int
    on_bad_record: str
    dead_letter_limit: int
    version: int | None
    rebuild: str
    error: str | None
    created_at_ms: int

    @property
    def over(self) -> bool:
        """Whether it will not run again: retired, or reclaimed already."""
        return self.status in (GenerationStatus.RETIRED, GenerationStatus.RECLAIMED)


class JobView(Wire):
    """The ``job`` shape.

    Attributes:
        live: The generation whose output serves; null before the first.
        code: The hash of the live generation's code.
        starts: Input → where a generation begins that is not told otherwise.
        max_lateness_ms: How late its records may be; null: it is not declared.
        output: ``KIND:NAME``.
        planned_cut: The cut-over that is to happen by itself; null: none is.
        split: The share of readers that ask another generation; null: none do.
    """

    name: str
    status: str
    live: int | None
    code: str | None
    inputs: dict[str, str]
    starts: dict[str, Start] = Field(default_factory=dict)
    max_lateness_ms: int | None = None
    output: str
    generations: tuple[GenerationView, ...]
    planned_cut: PlannedCut | None = None
    split: float | None = None

    def generation(self, number: int) -> GenerationView:
        """One of its generations.

        Raises:
            NotFound: ``unknown_generation``.
        """
        for each in self.generations:
            if each.number == number:
                return each
        raise unknown_generation(self.name, number, [each.number for each in self.generations])


class OwnedView(Wire):
    """One thing that a generation owns.

    Attributes:
        what: ``checkpoint``, ``code``, ``topic``, ``version``.
        bytes, records: How much it is, where that is known.
    """

    what: str
    name: str
    bytes: int | None = None
    records: int | None = None


class OwnedParts(Wire):
    """What goes with a generation.

    Attributes:
        stays: Why it cannot go now, with a code and in words; None: it may.
    """

    job: str
    generation: int
    owned: tuple[OwnedView, ...]
    stays: str | None = None


class WayView(Wire):
    """A way from the live generation to the next one.

    Attributes:
        way: ``deploy``: goes on where the live one ended. ``simple``: reads history again in its place. ``parallel``:
            reads history again beside it.
        open: Whether it could be begun now, once the live one is stopped where it takes its place.
        code: The code of the refusal; null: it is open.
        why: What it means, or why it is refused.
    """

    way: Mode
    open: bool
    code: str | None
    why: tuple[str, ...]


class JobDiff(Wire):
    """What the next generation of a job would change.

    Attributes:
        changes: One for each thing that differs.
        ways: How the next generation can be begun.
    """

    job: str
    live: int
    changes: tuple[JobChange, ...]
    ways: tuple[WayView, ...]


class CutOverAnswer(Wire):
    """Which generation serves now, and which did before.

    Attributes:
        live: Of a planned cut-over the one that still serves; 0: none does.
        planned: The cut-over that is to happen by itself; null: this one was done.
    """

    job: str
    live: int
    before: int | None
    planned: PlannedCut | None = None


class UndoAnswer(Wire):
    """How the last rewind was taken back.

    Attributes:
        how: ``dropped``: its generation will not run again. ``cut_back``: it goes on beside the one before.
        undone: The generation that the rewind had made.
        live: The one that serves.
    """

    job: str
    how: Undoing
    undone: int
    live: int


class CountedBatches(Wire):
    """Which attempts of some batches count.

    Attributes:
        batches: Without a gap, from the first one that was asked about.
        kept_from: The least batch whose record is kept; null: none was recorded.
        more: Whether there are records of later batches.
        final: Whether no batch will be recorded any more.
    """

    batches: tuple[CountedBatch, ...]
    kept_from: int | None
    more: bool
    final: bool


class BatchTaken(Wire):
    """A batch is recorded."""

    batch: int
    epoch: int


class PositionView(Wire):
    """Where a generation stands in one partition of an input.

    Attributes:
        offset: The next one to read.
        time_ms: When the record there was appended; null: none is there, or the log does not answer.
        lag: How many records are left; null: the log does not answer, and so are the others.
        begin, end: The offsets that the log holds, [begin, end).
    """

    offset: int
    time_ms: int | None
    lag: int | None
    begin: int | None
    end: int | None


class CheckpointView(Wire):
    """Where a generation stands.

    Attributes:
        batch: The last one that was recorded; null before the first.
        recorded_at_ms: When; likewise.
        positions: Input → partition → where it stands; before the first batch its start.
        lag_records: Over all partitions; null: a log does not answer.
    """

    generation: int
    status: str
    batch: int | None
    recorded_at_ms: int | None
    positions: dict[str, dict[int, PositionView]]
    lag_records: int | None


class CheckpointsView(Wire):
    """Where the generations of a job stand."""

    job: str
    checkpoints: tuple[CheckpointView, ...]


class DeadLetterView(Wire):
    """A record that a generation has left out.

    Attributes:
        fabric, topic, topic_uid: Where it lies; a topic that was made again has another identity.
        reason: Why, in one line.
        batch: The batch that left it out.
        at_ms: When that was recorded.
        replayed_at_ms: When its record was last given to its topic again; null: never.
    """

    generation: int
    input: str
    fabric: str
    topic: str
    topic_uid: str
    partition: int
    offset: int
    reason: str
    batch: int
    at_ms: int
    replayed_at_ms: int | None


class ReplayAnswer(Wire):
    """What became of some dead letters of a generation.

    Attributes:
        replayed: How many records were given to their topics again.
        gone: How many the logs do not hold any more, or are of a topic that was made again.
        unreadable: How many are not of their topic's format: they would be dead letters again.
        next: The key to go on after; null: these were the last ones.
    """

    job: str
    generation: int
    replayed: int
    gone: int
    unreadable: int
    next: str | None


class JobDeleted(Wire):
    """A job is deleted; what its generations own goes after the grace."""

    deleted: str
