"""The envelope of every rebuild: kind, subject, plan, stage, lease, progress, outcome; it knows no subject.

What a kind of rebuild has beyond it is a subclass, which names its kinds: the catalog finds the class by the kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from anew.core.errors import Failed, Refused
from anew.core.moment import utc_text
from anew.core.plan import PlanValue


class RebuildStatus(StrEnum):
    """How a rebuild stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTLY = "partly"
    FAILED = "failed"
    KILLED = "killed"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """How far a running rebuild is; the driver works up to ``seal``, the controller from there on."""

    BEGIN = "begin"
    BUILD = "build"
    SEAL = "seal"
    LOAD = "load"
    SWAP = "swap"
    DONE = "done"


STAGE_ORDER = tuple(Stage)
DRIVEN_STAGES = frozenset({Stage.BEGIN, Stage.BUILD, Stage.SEAL})
"""Stages in which a driver must renew its lease; afterwards nobody is needed but the controller."""

ENDED = frozenset({RebuildStatus.SUCCEEDED, RebuildStatus.PARTLY, RebuildStatus.FAILED, RebuildStatus.KILLED})


class Progress(BaseModel):
    """How much of the present stage is done.

    Attributes:
        bytes: Of the input, as far as it is dealt with.
        total_bytes: Of the input; 0 where that is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    done: int = 0
    total: int = 0
    unit: str = "tasks"
    records: int = 0
    bytes: int = 0
    total_bytes: int = 0


class DriverTrouble(BaseModel):
    """A loop of a driver's process that does not get on.

    Attributes:
        for_ms: For how long when it was told: the clocks of two machines may differ.
        failures: How many steps in a row have failed.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    loop: str
    error: str
    for_ms: int
    failures: int


@dataclass(frozen=True, slots=True)
class SubjectId:
    """What a rebuild is of.

    Attributes:
        kind: Such as ``store``; by it the face names it, and the engine finds who knows what to do with it.
        uid: Its identity: another one of the same name has another.
    """

    kind: str
    uid: str
    name: str


class Rebuild(BaseModel):
    """The envelope.

    Attributes:
        kinds: Of a subclass: the kinds of rebuilds whose records it is.
        id: Unique, never reused.
        plan: What is done: a value of the subclass' own type, which never changes.
        epoch: Grows when another driver takes over; a driver of an older epoch is turned away (rule R22).
        lease_until_ms: When the driver counts as lost unless it renews.
        timings: Stage → seconds.
        troubles: What the driver said last of its own loops.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kinds: ClassVar[tuple[str, ...]] = ()

    id: str
    kind: str
    plan: PlanValue
    status: RebuildStatus
    stage: Stage
    epoch: int
    lease_until_ms: int
    created_at_ms: int
    stage_since_ms: int
    ended_at_ms: int | None = None
    kill_asked: bool = False
    driver: str = ""
    progress: Progress = Progress()
    timings: dict[str, float] = {}
    records_per_s: float | None = None
    error: str | None = None
    troubles: tuple[DriverTrouble, ...] = ()
    revision: int = 0

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Become the class of the records of its kinds."""
        super().__pydantic_init_subclass__(**options)
        _CLASSES.update(dict.fromkeys(map(str, cls.kinds), cls))

    @property
    def subject(self) -> SubjectId:
        """What it is of."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it is of")

    @property
    def makes(self) -> str | None:
        """What it makes, in words; None where that is not one thing."""
        return None

    @property
    def driven(self) -> bool:
        """Whether it needs a driver."""
        return not self.ended and self.stage in DRIVEN_STAGES

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in ENDED

    @property
    def why_expired(self) -> str:
        """Why it fails once its lease is over."""
        return f"the driver gave no sign of life; its lease ended at {utc_text(self.lease_until_ms)}"


@dataclass(frozen=True, slots=True)
class Driver:
    """The process that works on a rebuild, by what it says of itself.

    Attributes:
        name: Unique: ``actor@host:pid/suffix``, then a blank and the log where it has one.
    """

    name: str
    actor: str
    host: str
    pid: int | None
    log: str


_DRIVER = re.compile(r"(?P<actor>.*)@(?P<host>[^@/]*):(?P<pid>[0-9]+)(/[^ ]*)?( (?P<log>.*))?", re.DOTALL)


def driver_of(name: str) -> Driver:
    """What a driver's name says; where another program made it up, it is all actor."""
    found = _DRIVER.fullmatch(name)
    if found is None:
        return Driver(name, name, "", None, "")
    return Driver(name, found["actor"], found["host"], int(found["pid"]), found["log"] or "")


_CLASSES: dict[str, type[Rebuild]] = {}
_Record = TypeVar("_Record", bound=Rebuild)


def parse_plan(text: str) -> PlanValue:
    """A plan of any kind.

    Raises:
        Failed: ``unknown_kind``.
        ValueError: It is no plan.
    """
    read = _PlanOfAnyKind.model_validate_json(text)
    return plan_class_of(read.kind).model_validate_json(text)


class _PlanOfAnyKind(BaseModel):
    kind: str


def plan_class_of(kind: str) -> type[PlanValue]:
    """The class of the plans of a kind of rebuild.

    Raises:
        Failed: ``unknown_kind``.
    """
    found: Any = class_of(kind).model_fields["plan"].annotation
    plan_class: type[PlanValue] = found
    return plan_class


def class_of(kind: str) -> type[Rebuild]:
    """The class of the records of a kind of rebuild.

    Raises:
        Failed: ``unknown_kind``: a later release made it.
    """
    found = _CLASSES.get(kind)
    if found is None:
        raise Failed(
            "unknown_kind",
            "nothing here knows rebuilds of this kind",
            found=kind,
            expected=", ".join(sorted(_CLASSES)),
            hint="is this an older release than the one that made it?",
        )
    return found


def advance(rebuild: _Record, stage: Stage, now_ms: int) -> _Record:
    """The rebuild at a later stage, with the time that the present one took; the same stage changes nothing.

    Raises:
        Refused: ``rebuild_ended``, ``stage_backwards``.
    """
    if rebuild.ended:
        raise rebuild_ended(rebuild, hint=f"anew rebuild show {rebuild.id}")
    if stage is rebuild.stage:
        return rebuild
    if STAGE_ORDER.index(stage) < STAGE_ORDER.index(rebuild.stage):
        raise Refused(
            "stage_backwards", "a rebuild does not go back", found=stage.value, expected=f"after {rebuild.stage.value}"
        )
    took = round((now_ms - rebuild.stage_since_ms) / 1000, 3)
    timings = {**rebuild.timings, rebuild.stage.value: took}
    return rebuild.model_copy(update={"stage": stage, "stage_since_ms": now_ms, "timings": timings})


def check_epoch(rebuild: Rebuild, epoch: int) -> None:
    """Raise unless no other driver took over.

    Raises:
        Refused: ``epoch_outdated``.
    """
    if rebuild.epoch != epoch:
        raise Refused(
            "epoch_outdated",
            f"another driver took over the rebuild {rebuild.id}",
            found=f"epoch {epoch}",
            expected=f"epoch {rebuild.epoch}",
        )


def rebuild_ended(rebuild: Rebuild, hint: str) -> Refused:
    """The refusal of what only a rebuild that runs allows."""
    return Refused(
        "rebuild_ended",
        f"the rebuild {rebuild.id} has ended",
        found=f"{rebuild.status.value}: {rebuild.error}",
        expected="a rebuild that runs",
        hint=hint,
    )


def end(rebuild: _Record, status: RebuildStatus, error: str | None, now_ms: int) -> _Record:
    """The ended rebuild; ending twice alike changes nothing, otherwise the first ending stays."""
    if rebuild.ended:
        return rebuild
    took = round((now_ms - rebuild.stage_since_ms) / 1000, 3)
    changes = {
        "status": status,
        "error": error,
        "ended_at_ms": now_ms,
        "timings": {**rebuild.timings, rebuild.stage.value: took},
    }
    if status is RebuildStatus.SUCCEEDED:
        changes["stage"] = Stage.DONE
    return rebuild.model_copy(update=changes)
