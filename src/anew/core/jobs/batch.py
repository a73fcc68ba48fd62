"""What a batch of a generation did: the record that decides which of its output counts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from anew.core.errors import Refused
from anew.core.jobs.deadletters import DeadLetter
from anew.core.jobs.inputs import Offsets, next_offset
from anew.core.plan import Value

NO_DIGEST = ""
EVERY_BATCH = 1 << 31
"""Above the number of any batch."""


class OutputRange(Value):
    """A range of one partition of the output in which a task attempt's records lie, [begin, end).

    Other attempts may have appended in the same range: a record counts only if its sequence names this attempt.
    """

    partition: int
    begin: int
    end: int


class TaskOutput(Value):
    """What the attempt of a task that counts appended.

    Attributes:
        task: The task's number in its batch.
        attempt: By which the sequences of its records name it (`anew.core.identity`).
    """

    task: int
    attempt: int
    rows: int
    ranges: tuple[OutputRange, ...] = ()


class BatchRecord(Value):
    """A batch that was appended whole.

    Attributes:
        batch: Spark's number of it; with the generation it identifies what was read.
        epoch: Of the driver that ran it. Records of the batch with another epoch do not count.
        start, end: Input → partition → next offset to read, before and after it.
        outputs: The attempts that count, by task.
        rows: What was appended.
        total: What was appended by all batches up to this one.
        read: How many offsets of the inputs lie between start and end. The function got those that are no dead letters.
        dead_letters: The records of its ranges that were left out.
        dead_total: How many records were left out by all batches up to this one.
        digest: Of all that Spark planned up to here (`chained`): a checkpoint that somebody edited differs.
        at_ms: When it was recorded.
    """

    batch: int
    epoch: int
    start: dict[str, Offsets]
    end: dict[str, Offsets]
    outputs: tuple[TaskOutput, ...] = ()
    rows: int = 0
    total: int = 0
    read: int = 0
    dead_letters: tuple[DeadLetter, ...] = ()
    dead_total: int = 0
    watermark_ms: int | None = None
    planned: str
    digest: str
    at_ms: int


def planned_digest(offsets_file: bytes) -> str:
    """What Spark planned for a batch, as a hash of its file ``offsets/<B>``."""
    return hashlib.sha256(offsets_file).hexdigest()


def chained(before: str, planned: str) -> str:
    """The digest of a batch: of the one before it, and of what was planned for it."""
    return hashlib.sha256(f"{before}\n{planned}".encode()).hexdigest()


def check_next(last: BatchRecord | None, record: BatchRecord) -> bool:
    """Whether a record may take its place behind the last one; False where it is there already.

    A record is final: readers of a topic have taken what it counts. A batch that ran again without having been recorded
    is recorded under the epoch of the driver that ran it last.

    Raises:
        Refused: ``batch_gap``: one between is missing; ``batch_differs``: the batch is recorded, and not as this says.
    """
    number = -1 if last is None else last.batch
    if last is not None and record.batch == last.batch:
        if record.model_copy(update={"at_ms": last.at_ms}) == last:
            return False
        raise _refused(
            "batch_differs", record, f"another record, of epoch {record.epoch}", f"that of epoch {last.epoch}"
        )
    if record.batch != number + 1:
        raise _refused("batch_gap", record, f"batch {record.batch}", f"batch {number + 1}")
    if last is not None and record.start != last.end:
        raise _refused("batch_gap", record, f"a start at {record.start}", f"the end of batch {number}: {last.end}")
    return True


def _refused(code: str, record: BatchRecord, found: str, expected: str) -> Refused:
    return Refused(
        code,
        f"batch {record.batch} cannot be recorded",
        found=found,
        expected=expected,
        hint="another driver of this generation is, or was, at work: anew job show",
    )


def behind(position: Mapping[str, Offsets], ends: Mapping[str, Offsets]) -> int:
    """How many offsets lie between a position and the ends, over all inputs."""
    return sum(
        max(0, end - next_offset(position.get(name, {}), partition))
        for name, of in ends.items()
        for partition, end in of.items()
    )
