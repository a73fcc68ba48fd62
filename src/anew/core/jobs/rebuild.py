"""The record of a generation as a rebuild: its plan, and the lease and epoch of its driver."""

from __future__ import annotations

from typing import ClassVar, Literal

from anew.core.jobs.plan import REWIND, JobPlan
from anew.core.rebuild import Rebuild, SubjectId

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
