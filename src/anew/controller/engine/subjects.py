"""What can be rebuilt: each kind of thing is a *subject*, which says what the engine cannot know of it.

The engine begins a rebuild, keeps its lease, resumes, kills and expires it, lists it and reclaims what it leaves. A
subject says what each of these changes besides the envelope, in the same commit. A wing registers its subject in the
`Subjects` of the context, and nothing else: no other module asks what a rebuild is of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from anew.api.rebuilds import DriverStart
from anew.api.rights import WRITE_PLAN, Need
from anew.catalog.change import Put, Reclaim
from anew.core.errors import Failed
from anew.core.feed import Feed
from anew.core.plan import PlanValue
from anew.core.rebuild import Progress, Rebuild
from anew.core.schedule import ScheduleState

if TYPE_CHECKING:
    from anew.controller.engine.context import Context

R = TypeVar("R", bound=Rebuild)
P = TypeVar("P", bound=PlanValue)

Step = tuple[R, tuple[Put, ...]]
"""The next record, and what is committed with it."""


@dataclass(frozen=True, slots=True)
class Begun(Generic[R]):
    """What a plan begins.

    Attributes:
        record: The first record.
        puts: What is committed with it.
        detail: What the line of history says besides.
    """

    record: R
    puts: tuple[Put, ...] = ()
    detail: Mapping[str, object] = field(default_factory=dict)


class Subject(ABC, Generic[R, P]):
    """One kind of thing that is rebuilt.

    Attributes:
        name: What the face calls it, as a parameter of lists and in its plans: ``store``.
        record: The class of its rebuilds' records, which names the kinds of them.
        plan: The class of its plans.
        start: The class of what its drivers begin with.
        reclaims: Kind of `Reclaim` → how what such a note names is removed.
        begins: What a token must allow whoever begins one.
    """

    name: ClassVar[str]
    record: type[R]
    plan: type[P]
    start: type[DriverStart[R, Any]]
    reclaims: ClassVar[Mapping[str, Callable[[Context, Reclaim], None]]] = {}
    begins: ClassVar[Need] = WRITE_PLAN

    @abstractmethod
    def begin(self, context: Context, plan: P, opening: Mapping[str, Any]) -> Begun[R]:
        """What a plan begins, if nothing that it was made from has moved.

        Args:
            context: The controller's collaborators.
            plan: What is to be done.
            opening: The envelope's fields; the record is these and the subject's own.

        Raises:
            Refused: ``plan_outdated``, and what else keeps it from beginning. Nothing was changed.
        """

    def begun(self, context: Context, rebuild: R) -> None:
        """It is committed: what lies outside of the catalog may be made."""

    @abstractmethod
    def document(self, context: Context, rebuild: R) -> object:
        """What a rebuild is of, as its drivers see it.

        Raises:
            NotFound: It is gone.
        """

    def detail(self, rebuild: R) -> Mapping[str, object]:
        """What lines of history say of a rebuild besides its id."""
        return {}

    def progressed(self, rebuild: R, progress: Progress) -> R:
        """The record with the progress that a driver tells."""
        return rebuild.model_copy(update={"progress": progress})

    @abstractmethod
    def finished(self, context: Context, rebuild: R) -> Step[R]:
        """The ended record of a rebuild whose driver says that it is done, and what that changes.

        Raises:
            Refused: It is not done, or ends otherwise.
        """

    @abstractmethod
    def taken_over(self, context: Context, before: R, after: R) -> Step[R]:
        """What another driver's epoch changes: what the one before left is noted as to be reclaimed."""

    @abstractmethod
    def ended(self, context: Context, before: R, ended: R) -> tuple[Put, ...]:
        """What the bad end of a rebuild changes besides its record.

        Raises:
            Refused: It cannot be ended any more.
        """

    def after_silence(self, rebuild: R, left_seconds: int) -> tuple[str, str]:
        """What becomes of a rebuild whose driver is silent, and what a person can do."""
        hint = f"anew rebuild resume {rebuild.id}, or: anew rebuild kill {rebuild.id}"
        return f"in {left_seconds} s the rebuild fails", hint

    def to_come_ms(self, context: Context, feeds: Sequence[Feed]) -> dict[str, int]:
        """Feed → no record that will still come into it has an earlier time, of those where that is known (rule R12).

        A log of which that is asked, and which does not answer, is no reason to refuse a plan: tombstones are kept.
        """
        return {}

    def reads_history(self, context: Context, rebuild: R) -> bool:
        """Whether a rebuild still reads what topics hold for it.

        Raises:
            AnewError: Nobody can say now.
        """
        return False

    def lost(self, context: Context, rebuild: R) -> bool:
        """Go on after a driver whose lease is over; False: the rebuild fails."""
        return False

    def stops(self, rebuild: R) -> bool:
        """Whether the driver is to end its work, and the rebuild goes on later."""
        return False

    def turns_away(self, rebuild: R) -> bool:
        """Whether no driver is at work: one that gives a sign of life has ended, or was given up, and is to end."""
        return False

    def give_up(self, context: Context, rebuild: R, actor: str) -> bool:
        """Give up what an ended rebuild made and nobody uses yet; whether there was any."""
        return False

    @abstractmethod
    def uid_of(self, context: Context, name: str) -> str:
        """The uid of the one of that name.

        Raises:
            NotFound: ``unknown_…``.
        """

    @abstractmethod
    def well_since(self, context: Context) -> Mapping[str, int]:
        """Name → since when what failed before is history (ms): it was made then, or a later rebuild went well."""

    def schedules(self, context: Context) -> Iterable[ScheduleState]:
        """What is kept of the schedules of all of its kind."""
        return ()

    def shown_plan(self, plan: P) -> P | dict[str, Any]:
        """A plan as the ``rebuild`` shape has it: the plan, or its JSON with something else in the place of secrets."""
        return plan

    @abstractmethod
    def view(self, context: Context, rebuild: R) -> dict[str, Any]:
        """What the ``rebuild`` shape says besides the envelope: members of the subject's `RebuildView`."""

    @abstractmethod
    def again(self, rebuild: R) -> str:
        """What to do about a rebuild that has ended, for whoever wanted to resume it."""


class Subjects:
    """The subjects of a controller, by the kinds of their rebuilds."""

    def __init__(self, subjects: Iterable[Subject[Any, Any]]) -> None:
        """Register them."""
        self.all = tuple(subjects)
        self._by_kind = {str(kind): subject for subject in self.all for kind in subject.record.kinds}

    @property
    def names(self) -> tuple[str, ...]:
        """What the face calls them."""
        return tuple(subject.name for subject in self.all)

    def of(self, rebuild: Rebuild) -> Subject[Any, Any]:
        """Who knows what a rebuild is of.

        Raises:
            Failed: ``unknown_kind``.
        """
        return self.of_kind(str(rebuild.kind))

    def find(self, kind: str) -> Subject[Any, Any] | None:
        """Who knows rebuilds of a kind, if anybody does."""
        return self._by_kind.get(kind)

    def of_kind(self, kind: str) -> Subject[Any, Any]:
        """Who knows rebuilds of a kind.

        Raises:
            Failed: ``unknown_kind``.
        """
        found = self.find(kind)
        if found is None:
            raise Failed(
                "unknown_kind", "nothing here rebuilds this", found=kind, expected=", ".join(sorted(self._by_kind))
            )
        return found

    def reclaims(self) -> dict[str, Callable[[Context, Reclaim], None]]:
        """Kind of `Reclaim` → how what such a note names is removed."""
        return {kind: act for subject in self.all for kind, act in subject.reclaims.items()}


NO_SUBJECTS = Subjects(())


def start_of(context: Context, rebuild: Rebuild) -> DriverStart[Any, Any]:
    """What the driver of a rebuild works with.

    Raises:
        NotFound: What it is of is gone.
    """
    subject = context.subjects.of(rebuild)
    return subject.start(rebuild=rebuild, subject=subject.document(context, rebuild))
