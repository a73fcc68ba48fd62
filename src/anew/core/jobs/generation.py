"""One run of a stream job's function through its inputs: where it begins, how it stands, and what it is known by."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from anew.core.errors import NotFound
from anew.core.jobs.code import Environment, JobCode
from anew.core.jobs.deadletters import DEFAULT_LIMIT, SKIP, STOP, OnBadRecord
from anew.core.jobs.inputs import JobInput, Offsets
from anew.core.plan import Value


class GenerationStatus(StrEnum):
    """How a generation stands.

    ``planned``: its output is being made. ``ready``: it may run. ``running``: it is to run; a driver is at work, or
    will be. ``stopped``: somebody stopped it. ``failed``: it does not go on by itself. ``retired``: it will not run
    again, and what it owns goes after a grace. ``reclaimed``: that has gone.
    """

    PLANNED = "planned"
    READY = "ready"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    RETIRED = "retired"
    RECLAIMED = "reclaimed"


_OVER = frozenset({GenerationStatus.RETIRED, GenerationStatus.RECLAIMED})


class Generation(Value):
    """One run of a job's function through its inputs, from a start.

    Attributes:
        number: From 1; never given again.
        since_ms: Since when it has its status.
        inputs: As they were when it was planned.
        start: Input → partition → the first offset that it reads; every partition is named (case B7).
        rebuild: The id of its rebuild: the lease and the epoch of its driver are there.
        writes_to: What its output is known by: no other generation writes into it.
        version: The version of a store that follows it alone; None: there is none.
        is_whole: Whether it reads every record that its inputs ever had.
        replaces: The generation whose output it takes the place of; None for the first.
        in_place: Whether it goes on in the output of the one that it replaces.
        stateless: Whether its function may keep no state: it begins where another one had read, and remembers nothing
            of that.
        environment: In which it was told to go on; None: its code's.
        master, conf, max_records: How Spark runs it.
        on_bad_record: What a record does on which its function fails: it stops the generation, or is left out.
        dead_letter_limit: How many records may be left out.
        failures: How many of its drivers in a row have ended before their first batch.
        retry_at_ms: Before that time no driver is started.
        launched: Whether a driver was started that has not taken it yet.
        error: Why it failed, or why its last driver ended.
        unrecorded: Whether what its batches did was lost with a catalog: it does not run again, and nobody knows which
            records of its output count.
    """

    number: int
    status: GenerationStatus
    since_ms: int
    created_at_ms: int
    code: JobCode
    inputs: tuple[JobInput, ...]
    start: dict[str, Offsets]
    rebuild: str
    writes_to: str
    version: int | None = None
    is_whole: bool = True
    replaces: int | None = None
    in_place: bool = False
    stateless: bool = Field(default=False, exclude_if=lambda stateless: not stateless)
    environment: Environment | None = None
    master: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    max_records: int = 100_000
    on_bad_record: OnBadRecord = STOP
    dead_letter_limit: int = DEFAULT_LIMIT
    failures: int = 0
    retry_at_ms: int = 0
    launched: bool = False
    error: str | None = None
    unrecorded: bool = False

    @property
    def over(self) -> bool:
        """Whether it will never run again."""
        return self.status in _OVER

    @property
    def is_begun(self) -> bool:
        """Whether it was told to run once."""
        return self.status not in (GenerationStatus.PLANNED, GenerationStatus.READY)

    @property
    def most_dead_letters(self) -> int:
        """How many records it may leave out; 0 where it stops at the first one."""
        return self.dead_letter_limit if self.on_bad_record == SKIP else 0


def unknown_generation(job: str, number: int, known: Sequence[int]) -> NotFound:
    """What is said where a job has no generation of a number."""
    return NotFound(
        "unknown_generation",
        f"{job} has no such generation",
        found=number,
        expected=", ".join(map(str, known)) or "none yet",
        hint=f"anew job show {job}",
    )
