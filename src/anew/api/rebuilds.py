"""The controller's answers about rebuilds: the ``rebuild`` shape, whatever is rebuilt.

`RebuildView` has what all rebuilds have. What those of one subject have besides is a subclass, which names its subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BeforeValidator, SerializeAsAny

from anew.api.wire import Wire
from anew.core.errors import Failed
from anew.core.jobs.job import Job
from anew.core.jobs.plan import JobPlan
from anew.core.jobs.rebuild import JOB, JobRebuild
from anew.core.plan import PlanValue
from anew.core.rebuild import Progress, Rebuild, RebuildStatus, Stage
from anew.core.stores.plan import Plan
from anew.core.stores.rebuild import STORE, StoreRebuild
from anew.core.stores.store import RebuildKind, Store
from anew.core.tables.plan import TablePlan, TableRebuildKind
from anew.core.tables.rebuild import TABLE, TableRebuild
from anew.core.tables.table import Table

R = TypeVar("R", bound=Rebuild)
D = TypeVar("D")
_V = TypeVar("_V", bound="RebuildView")
_CLASSES: dict[str, type[RebuildView]] = {}
"""Subject → the class of its views."""


class DriverView(Wire):
    """The process that makes a rebuild.

    Attributes:
        log: The path of its log on its host, empty where it has none.
        heard_at_ms: When it gave its last sign of life; null: no process makes it now.
        silent_ms: For how long it has not been heard; null where it was heard a moment ago, or is not needed.
        troubles: What keeps its loops from their work.
    """

    actor: str
    host: str
    pid: int | None
    log: str
    heard_at_ms: int | None
    lease_until_ms: int
    silent_ms: int | None
    troubles: tuple[str, ...]


class FingerprintView(Wire):
    """The sums of row hashes, in hexadecimal: of what was read and merged, and of what the files hold."""

    source: str
    target: str


class StoreLedger(Wire):
    """How many rows a rebuild of a store read, and what became of them."""

    read: int
    superseded: int
    deleted: int
    expired: int
    skipped: int
    written: int
    combined: int


class TableLedger(Wire):
    """How many rows a rebuild of a table read, and what became of them."""

    read: int
    filtered: int
    skipped: int
    written: int


class RebuildView(Wire):
    """What the ``rebuild`` shape has of every rebuild.

    Attributes:
        subject: Of a subclass: what it is of, which is also the name of the field with the subject's name.
        kind: Such as ``repush``.
        plan: As a dry run prints it.
        ledger: How many rows were read, and what became of them; null: nothing was committed.
        fingerprint: Null where the subject has none, or nothing was committed.
        timings: Stage → seconds.
        epoch: Grows when another driver takes over.
    """

    subject: ClassVar[str] = ""

    id: str
    kind: str
    status: RebuildStatus
    stage: Stage
    plan: SerializeAsAny[PlanValue]
    ledger: StoreLedger | TableLedger | None
    fingerprint: FingerprintView | None
    timings: dict[str, float]
    records_per_s: float | None
    error: str | None
    epoch: int
    driver: DriverView
    progress: Progress
    created_at_ms: int
    ended_at_ms: int | None

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Become the class of the views of its subject."""
        super().__pydantic_init_subclass__(**options)
        _CLASSES[cls.subject] = cls

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.ended_at_ms is not None

    @property
    def name(self) -> str:
        """The name of what it is of."""
        return str(getattr(self, self.subject))


class StoreRebuildView(RebuildView):
    """The ``rebuild`` shape of a rebuild of a store.

    Attributes:
        plan: With the hashes of partitioners' sources in place of the sources.
    """

    subject = STORE

    kind: RebuildKind
    store: str
    version: int
    plan: Plan
    ledger: StoreLedger | None


class Outcome(Wire):
    """How a rebuild stands: the ``rebuild`` shape of the face. ``ledger`` maps entries to rows."""

    id: str
    kind: str
    store: str
    version: int
    status: str
    stage: str
    plan: Plan
    ledger: dict[str, int] | None
    fingerprint: dict[str, str] | None
    timings: dict[str, float]
    records_per_s: float | None
    error: str | None


class SkippedSegment(Wire):
    """A segment that was left as it is."""

    segment: str
    reason: str | None


class FailedSegment(Wire):
    """A segment that could not be made."""

    segment: str
    error: str | None


class RefreshView(Wire):
    """The ``refresh`` shape: what became of the segments, by name.

    Attributes:
        chosen: Those of the plan.
        refreshed: Those that have a new file.
        stamped: Those whose file was right as it is.
        drift: Those that are stale in the deep store alone.
    """

    rebuild: str
    chosen: tuple[str, ...]
    refreshed: tuple[str, ...]
    removed: tuple[str, ...]
    stamped: tuple[str, ...]
    skipped: tuple[SkippedSegment, ...]
    drift: tuple[str, ...]
    failed: tuple[FailedSegment, ...]


class TableRebuildView(RebuildView):
    """The ``rebuild`` shape of a rebuild of a table."""

    subject = TABLE

    kind: TableRebuildKind
    table: str
    plan: TablePlan
    ledger: TableLedger
    refresh: RefreshView


class DriverStart(Wire, Generic[R, D]):
    """What a driver is answered that begins a rebuild or takes one over.

    Attributes:
        rebuild: The record.
        subject: The document of what it is of, as the begin committed it, or as it is when taken over.
    """

    rebuild: R
    subject: D


JobStart = DriverStart[JobRebuild, Job]
StoreStart = DriverStart[StoreRebuild, Store]
TableStart = DriverStart[TableRebuild, Table]


class JobRebuildView(RebuildView):
    """The ``rebuild`` shape of a generation of a job."""

    subject = JOB

    kind: str
    job: str
    generation: int
    plan: JobPlan


class FailureSeen(Wire):
    """The failure of a rebuild that is not told as a problem any more."""

    rebuild: str
    seen: bool


def view_class_of(subject: str) -> type[RebuildView]:
    """The class of the views of a subject's rebuilds.

    Raises:
        Failed: ``unknown_subject``: a later release made it.
    """
    found = _CLASSES.get(subject)
    if found is None:
        raise Failed(
            "unknown_subject", "nothing here knows rebuilds of this", found=subject, expected=", ".join(_CLASSES)
        )
    return found


def view_as(view: RebuildView, of: type[_V]) -> _V:
    """A view as the class that its subject's rebuilds have.

    Raises:
        Failed: ``unexpected_answer``: it is of another subject.
    """
    if not isinstance(view, of):
        raise Failed(
            "unexpected_answer", f"{view.id} is another rebuild", found=view.kind, expected=f"one of a {of.subject}"
        )
    return view


def parse_view(found: object) -> object:
    """The view of a rebuild of any subject, as the class that its subject has; what is no mapping stays as it is.

    Raises:
        ValueError: It is of no subject that is known here.
    """
    if not isinstance(found, Mapping):
        return found
    for subject, view in _CLASSES.items():
        if subject in found:
            return view.model_validate(found)
    raise ValueError(f"it is a rebuild of none of {', '.join(_CLASSES)}")


AnyRebuildView = Annotated[SerializeAsAny[RebuildView], BeforeValidator(parse_view)]
"""The view of a rebuild of any subject as the field of a model."""
