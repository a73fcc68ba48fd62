"""The controller's answers about jobs: the ``job`` shape of the face."""

from __future__ import annotations

from anew.api.wire import Wire
from anew.core.jobs.inputs import Offsets


class GenerationView(Wire):
    """A generation.

    Attributes:
        driver: Whether a driver is at work on it.
        start: Input → partition → the first offset that it read.
        source: Who reads its inputs for Spark.
        positions: Input → partition → next offset behind the last batch.
        lag_records: How many records are left of what the inputs hold now; null: a log does not answer.
        records_per_s: In its last batches; null: nothing was measured.
        seconds_left: Until it has come to the ends, at that pace and with what arrives meanwhile; null: never, or not
            known.
        caught_up: Whether it was found at the ends often enough to be cut over to.
        batch: The last batch that was recorded; null before the first.
        applied: Whether what it wrote can be read wherever it is to be served; null: nobody can say now.
    """

    number: int
    status: str
    driver: bool
    code: str
    entry: str
    start: dict[str, Offsets]
    state: str
    source: str
    positions: dict[str, Offsets]
    lag_records: int | None
    records_per_s: float | None
    seconds_left: float | None
    caught_up: bool
    applied: bool | None
    batch: int | None
    rows: int
    version: int | None
    rebuild: str
    error: str | None
    created_at_ms: int


class JobView(Wire):
    """The ``job`` shape.

    Attributes:
        live: The generation whose output serves; null before the first.
        code: The hash of the live generation's code.
        output: ``KIND:NAME``.
        split: The share of readers that ask another generation; null: none do.
    """

    name: str
    status: str
    live: int | None
    code: str | None
    inputs: dict[str, str]
    output: str
    generations: tuple[GenerationView, ...]
    split: float | None = None


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


class CutOverAnswer(Wire):
    """Which generation serves now, and which did before."""

    job: str
    live: int
    before: int | None


class BatchTaken(Wire):
    """A batch is recorded."""

    batch: int
    epoch: int


class JobDeleted(Wire):
    """A job is deleted; what its generations own goes after the grace."""

    deleted: str
