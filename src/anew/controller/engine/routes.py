"""The controller's routes for rebuilds, whatever they are of.

What depends on the subjects is made of them: the plans that a begin takes, and the parameters of the list.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Annotated, Any, Union

from fastapi import FastAPI, Response
from pydantic import Discriminator, Tag, create_model
from starlette.concurrency import run_in_threadpool

from anew.api.models import BeginRebuild, EndRebuild, FinishRebuild, Heartbeat, HeartbeatAnswer, ResumeRebuild
from anew.api.pages import DEFAULT_ITEMS, Page
from anew.api.rebuilds import FailureSeen, RebuildView, view_class_of
from anew.api.rights import READ_REBUILD, READ_SUBJECT, REBUILD, WRITE_PLAN, takes
from anew.controller.engine import drivers, listing
from anew.controller.engine.begin import begin as begin_rebuild
from anew.controller.engine.context import Context
from anew.controller.engine.fail import fail as fail_rebuild
from anew.controller.engine.finish import finish as finish_rebuild
from anew.controller.engine.kill import kill as kill_rebuild
from anew.controller.engine.lease import heartbeat as give_sign
from anew.controller.engine.parameters import Actor, After, Limit, WaitSeconds
from anew.controller.engine.resume import resume as resume_rebuild
from anew.controller.engine.subjects import Subjects, start_of
from anew.core.rebuild import Stage

_PATH = "/v1/rebuilds/{rebuild_id}"
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def add_rebuilds(app: FastAPI, context: Context) -> None:
    """What drivers say, and what is asked about rebuilds."""
    _add_begin_and_list(app, context)
    _add_drivers(app, context)

    views = _views(context.subjects)

    @app.get(_PATH, tags=["rebuilds"], response_model=views)
    @takes(READ_REBUILD)
    async def show(rebuild_id: str, after: Stage | None = None, wait_seconds: WaitSeconds = 0.0) -> Response:
        """One rebuild; as soon as it is in another stage than ``after``, or has ended, or the wait is over."""
        deadline, waits = time.monotonic() + wait_seconds, True
        while True:
            # Before the record is read: what becomes of it afterwards ends the wait.
            revision = await run_in_threadpool(context.catalog.revision)
            view = await run_in_threadpool(listing.view, context, rebuild_id)
            if view.stage is not after or view.ended or not waits:
                text = await run_in_threadpool(view.model_dump_json)
                return Response(text, media_type="application/json")
            # Progress moves without the catalog's revision, so that the record is read once more in the end.
            waits = await context.watch.wait_beyond(revision, deadline - time.monotonic())

    @app.post(f"{_PATH}/seen", tags=["rebuilds"])
    @takes(REBUILD)
    def seen(rebuild_id: str, actor: Actor = "anonymous") -> FailureSeen:
        """Somebody knows that the rebuild failed: the status does not tell it any more."""
        return drivers.see_failure(context, rebuild_id, actor)

    @app.post(f"{_PATH}/kill", tags=["rebuilds"], response_model=views)
    @takes(REBUILD)
    def kill(rebuild_id: str, actor: Actor = "anonymous") -> RebuildView:
        """End a rebuild from outside, or give up what an ended one made and nobody uses yet."""
        return listing.rebuild_view(context, kill_rebuild(context, rebuild_id, actor))


def _add_drivers(app: FastAPI, context: Context) -> None:
    views = _views(context.subjects)

    @app.post(f"{_PATH}/heartbeat", tags=["rebuilds"])
    @takes(REBUILD)
    def heartbeat(rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """A driver's sign of life."""
        return give_sign(context, rebuild_id, request)

    @app.post(f"{_PATH}/finish", tags=["rebuilds"], response_model=views)
    @takes(REBUILD)
    def finish(rebuild_id: str, request: FinishRebuild) -> RebuildView:
        """End a rebuild whose driver is done."""
        return listing.rebuild_view(context, finish_rebuild(context, rebuild_id, request))

    @app.post(f"{_PATH}/fail", tags=["rebuilds"], response_model=views)
    @takes(REBUILD)
    def fail(rebuild_id: str, request: EndRebuild) -> RebuildView:
        """The driver gives up."""
        return listing.rebuild_view(context, fail_rebuild(context, rebuild_id, request))

    @app.post(f"{_PATH}/resume", tags=["rebuilds"], response_model=_starts(context.subjects))
    @takes(REBUILD)
    def resume(rebuild_id: str, request: ResumeRebuild, actor: Actor = "anonymous") -> Any:
        """Take a rebuild over whose driver is gone."""
        return start_of(context, resume_rebuild(context, rebuild_id, request, actor))


def _add_begin_and_list(app: FastAPI, context: Context) -> None:
    subjects = context.subjects

    @takes(WRITE_PLAN)
    def begin(request: BeginRebuild, actor: str) -> Any:
        """Begin what a plan says."""
        return start_of(context, begin_rebuild(context, request, actor))

    _sign(
        begin,
        inspect.Parameter("request", _KEYWORD, annotation=_begin_body(subjects)),
        inspect.Parameter("actor", _KEYWORD, annotation=Actor, default="anonymous"),
    )
    app.post("/v1/rebuilds", status_code=201, tags=["rebuilds"], response_model=_starts(subjects))(begin)

    @takes(READ_SUBJECT)
    def list_rebuilds(
        *, running: bool, request_id: str | None, limit: int, after: str | None, **of: str | None
    ) -> Page[RebuildView]:
        """Rebuilds of one thing, or all, newest first; or the one that a request began."""
        if request_id is not None:
            return listing.begun_by(context, request_id)
        named = {kind: name for kind, name in of.items() if name is not None}
        return listing.listed(context, listing.Listed(named, running, limit, after))

    _sign(
        list_rebuilds,
        *(inspect.Parameter(name, _KEYWORD, annotation=str | None, default=None) for name in subjects.names),
        inspect.Parameter("running", _KEYWORD, annotation=bool, default=False),
        inspect.Parameter("request_id", _KEYWORD, annotation=str | None, default=None),
        inspect.Parameter("limit", _KEYWORD, annotation=Limit, default=DEFAULT_ITEMS),
        inspect.Parameter("after", _KEYWORD, annotation=After, default=None),
    )
    app.get("/v1/rebuilds", tags=["rebuilds"], response_model=Page[_views(subjects)])(list_rebuilds)  # type: ignore[misc]  # made of values


def _sign(handler: Callable[..., Any], *parameters: inspect.Parameter) -> None:
    """Give a handler the parameters that FastAPI is to see."""
    handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions have it


def _begin_body(subjects: Subjects) -> type[BeginRebuild]:
    """The body of a begin: a plan of any subject, known by its kind."""
    tagged = [Annotated[subject.plan, Tag(subject.name)] for subject in subjects.all]
    plan: Any = tagged[0] if len(tagged) == 1 else Annotated[Union[tuple(tagged)], Discriminator(_named(subjects))]  # noqa: UP007 - made of values
    return create_model("BeginRebuild", __base__=BeginRebuild, __doc__=BeginRebuild.__doc__, plan=(plan, ...))


def _named(subjects: Subjects) -> Callable[[Any], str | None]:
    def name_of(plan: Any) -> str | None:
        kind = plan.get("kind") if isinstance(plan, dict) else getattr(plan, "kind", None)
        subject = subjects.find(str(kind))
        return None if subject is None else subject.name

    return name_of


def _starts(subjects: Subjects) -> Any:
    """What a driver of any subject's rebuild works with."""
    return Union[tuple(subject.start for subject in subjects.all)]  # noqa: UP007 - made of values


def _views(subjects: Subjects) -> Any:
    """The view of any subject's rebuild."""
    return Union[tuple(view_class_of(name) for name in subjects.names)]  # noqa: UP007 - made of values
