"""The record of a generation as a rebuild: its plan, and the lease and epoch of its driver."""

from __future__ import annotations

from typing import ClassVar, Literal

from anew.core.errors import NotFound
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.plan import REWIND, JobPlan
from anew.core.rebuild import Rebuild, SubjectId, check_epoch, rebuild_ended

JOB = "job"
"""What the face calls the subject of these rebuilds."""


class JobRebuild(Rebuild):
    """A generation: it runs until it is retired.

    Attributes:
        wanted: Whether it is to run. One that is not needs no driver, and one whose driver is lost gets another.
    """

    kinds: ClassVar = (REWIND,)

    kind: Literal["rewind"] = REWIND
    job: str
    job_uid: str
    generation: int
    plan: JobPlan
    wanted: bool = False

    @property
    def subject(self) -> SubjectId:
        """The job."""
        return SubjectId(JOB, self.job_uid, self.job)

    @property
    def makes(self) -> str:
        """The generation."""
        return f"generation {self.generation}"

    @property
    def driven(self) -> bool:
        """Whether it is to have a driver."""
        return not self.ended and self.wanted


def check_recorder(rebuild: Rebuild | None, record: BatchRecord) -> None:
    """Raise unless the driver that recorded a batch still holds its generation.

    Args:
        rebuild: The generation's, as it is while the record is put.
        record: What is put.

    Raises:
        NotFound: ``unknown_rebuild``.
        Refused: ``rebuild_ended``; ``epoch_outdated``: another driver took over.
    """
    if rebuild is None:
        raise NotFound("unknown_rebuild", "the generation has no rebuild", found=f"batch {record.batch}")
    if rebuild.ended:
        raise rebuild_ended(rebuild, hint="the generation was retired: anew job list")
    check_epoch(rebuild, record.epoch)
