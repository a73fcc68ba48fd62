"""A subject of rebuilds that the product does not have: texts, which are rebuilt in capitals.

All that another wing needs is here: plan, record, subject, and the work of its driver.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

from anew.api.models import FinishRebuild
from anew.api.rebuilds import DriverStart, RebuildView
from anew.catalog.change import Put, PutFlag, PutReclaim, Reclaim
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import forget_failure
from anew.controller.engine.subjects import Begun, Step, Subject
from anew.core.errors import NotFound, Refused
from anew.core.plan import PlanValue
from anew.core.rebuild import Rebuild, RebuildStatus, Stage, SubjectId, end
from anew.deepstore.interface import DeepStore
from anew.rebuild.driving import Job, Run
from anew.rebuild.lease import Lease
from anew.testing.builders import FABRIC

_FLAG = "text/"


class TextPlan(PlanValue):
    """What a text was when its rebuild was planned."""

    kind: Literal["shout"] = "shout"
    text: str
    digest: str

    @property
    def subject_name(self) -> str:
        """The text's."""
        return self.text


class TextRebuild(Rebuild):
    """One making of a text in capitals."""

    kinds: ClassVar = ("shout",)

    plan: TextPlan
    letters: int = 0

    @property
    def subject(self) -> SubjectId:
        """The text."""
        return SubjectId("text", self.plan.text, self.plan.text)

    @property
    def path(self) -> str:
        """Where its driver writes."""
        return f"texts/{self.plan.text}/{self.id}-e{self.epoch}"


def original(name: str) -> str:
    """Where a text lies."""
    return f"texts/{name}/original"


def plan_of(deep_store: DeepStore, name: str) -> TextPlan:
    """The plan of a rebuild of a text as it is."""
    digest = hashlib.sha256(deep_store.get(original(name))).hexdigest()
    return TextPlan(text=name, digest=digest).sealed()


class TextRebuildView(RebuildView):
    """The ``rebuild`` shape of a text's rebuild."""

    subject = "text"

    text: str
    plan: TextPlan
    letters: int


TextStart = DriverStart[TextRebuild, str]


class TextSubject(Subject[TextRebuild, TextPlan]):
    """Texts."""

    name: ClassVar[str] = "text"
    record = TextRebuild
    plan = TextPlan
    start = TextStart

    def begin(self, context: Context, plan: TextPlan, opening: Mapping[str, Any]) -> Begun[TextRebuild]:
        """Unless the text is another one by now."""
        if plan_of(_deep(context), plan.text) != plan.model_copy(update={"asked": None}):
            raise Refused("plan_outdated", "the text was changed", found=plan.text)
        return Begun(TextRebuild(**opening))

    def document(self, context: Context, rebuild: TextRebuild) -> str:
        """Its name is all there is of it."""
        return rebuild.plan.text

    def finished(self, context: Context, rebuild: TextRebuild) -> Step[TextRebuild]:
        """What was written takes the place of what was before."""
        letters = len(_deep(context).get(rebuild.path))
        before = context.catalog.flags().get(f"{_FLAG}{rebuild.plan.text}")
        ended = end(rebuild.model_copy(update={"letters": letters}), RebuildStatus.SUCCEEDED, None, context.clock())
        puts = [PutFlag(f"{_FLAG}{rebuild.plan.text}", rebuild.path), forget_failure(rebuild.subject)]
        return ended, (*puts, *([_note(context, before)] if before else []))

    def taken_over(self, context: Context, before: TextRebuild, after: TextRebuild) -> Step[TextRebuild]:
        """The new driver writes elsewhere."""
        return after, (_note(context, before.path),)

    def ended(self, context: Context, before: TextRebuild, ended: TextRebuild) -> tuple[Put, ...]:
        """Nothing takes the text's place."""
        return (_note(context, before.path),)

    def uid_of(self, context: Context, name: str) -> str:
        """A text is its name."""
        if _deep(context).stat(original(name)) is None:
            raise NotFound("unknown_text", f"there is no text {name}", found=name)
        return name

    def well_since(self, context: Context) -> Mapping[str, int]:
        """Each has its failures forgotten."""
        return {stored.path.split("/")[1]: 0 for stored in _deep(context).list("texts")}

    def view(self, context: Context, rebuild: TextRebuild) -> dict[str, Any]:
        """How long it is."""
        return {"letters": rebuild.letters}

    def again(self, rebuild: TextRebuild) -> str:
        """See `Subject.again`."""
        return f"shout {rebuild.plan.text} again"

    @staticmethod
    def _remove(context: Context, reclaim: Reclaim) -> None:
        if reclaim.target not in context.catalog.flags().values():
            _deep(context).delete(reclaim.target)

    reclaims: ClassVar = {"text": _remove}


def shouting(
    run: Run, deep_store: DeepStore, meanwhile: Iterable[Callable[[TextRebuild], None]] = ()
) -> Job[TextRebuild, str]:
    """The job of a driver; ``meanwhile`` happens before it writes."""

    def work(start: DriverStart[TextRebuild, str], lease: Lease) -> RebuildView:
        rebuild = start.rebuild
        run.observer.stage(Stage.BUILD)
        for act in meanwhile:
            act(rebuild)
        deep_store.put(rebuild.path, deep_store.get(original(start.subject)).upper())
        return run.controller.finish_rebuild(rebuild.id, FinishRebuild(epoch=rebuild.epoch))

    return Job(TextStart, work, expected="a text in capitals", hint="the one before is there")


def _deep(context: Context) -> DeepStore:
    return context.fabrics[FABRIC].deep_store


def _note(context: Context, path: str) -> PutReclaim:
    return PutReclaim(Reclaim(f"{path}@{FABRIC}", "text", FABRIC, path, context.reclaim_due_ms(), "no text any more"))
