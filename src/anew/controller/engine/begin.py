"""The begin of a rebuild: the record of a plan, if nothing that the plan was made from has moved."""

from __future__ import annotations

from typing import Any

from anew.api.models import BeginRebuild
from anew.catalog.change import PutRebuild, PutRequest
from anew.controller.engine.commit import again_on_conflict, commit
from anew.controller.engine.context import Context
from anew.controller.engine.records import find
from anew.controller.engine.requests import check_unaltered, made_before, request_id_reused
from anew.core.errors import InvalidRequest, Refused
from anew.core.rebuild import Rebuild, RebuildStatus, Stage


def begin(context: Context, request: BeginRebuild, actor: str) -> Rebuild:
    """Begin what a plan says; idempotent by request id.

    Raises:
        InvalidRequest: ``plan_altered``, ``request_id_reused``.
        Refused: ``plan_outdated``, and what the subject refuses.
        NotFound: What the plan is of is gone.
    """

    def attempt() -> Rebuild:
        begun = _begun_before(context, request)
        if begun is not None:
            return begun
        try:
            return _begin(context, request, actor)
        except (Refused, InvalidRequest):
            # The same request may be under way twice, and the other one was faster: what it made moved the subject.
            begun = _begun_before(context, request)
            if begun is None:
                raise
            return begun

    # Where the subject moved between load and commit the plan is judged again on what it is now.
    return again_on_conflict(attempt)


def _begun_before(context: Context, request: BeginRebuild) -> Rebuild | None:
    """What the request id made; None for a new one.

    Raises:
        InvalidRequest: ``request_id_reused``.
    """
    plan = request.plan
    made = made_before(context, request.request_id, plan.request_hash)
    if made is None:
        return None
    begun = find(context, made)
    if (begun.subject.kind, begun.subject.name) != (context.subjects.of_kind(plan.kind).name, plan.subject_name):
        # What the hash was made of is the client's to say: it opens no other subject's rebuild.
        raise request_id_reused(request.request_id, plan.request_hash)
    return begun


def _begin(context: Context, request: BeginRebuild, actor: str) -> Rebuild:
    plan = request.plan
    check_unaltered(plan)
    subject, now_ms, rebuild_id = context.subjects.of_kind(plan.kind), context.clock(), context.new_id()
    opening: dict[str, Any] = {
        "id": rebuild_id,
        "kind": plan.kind,
        "plan": plan,
        "status": RebuildStatus.RUNNING,
        "stage": Stage.BEGIN,
        "epoch": 1,
        "lease_until_ms": context.lease_until_ms(),
        "created_at_ms": now_ms,
        "stage_since_ms": now_ms,
        "driver": request.driver,
    }
    begun = subject.begin(context, plan, opening)
    said = {} if request.why is None else {"why": request.why}
    detail = {"rebuild": rebuild_id, "plan": plan.id, **subject.detail(begun.record), **begun.detail, **said}
    commit(
        context,
        context.operation(f"begin {plan.kind}", plan.subject_name, actor, **detail),
        PutRebuild(begun.record, None),
        PutRequest(request.request_id, plan.request_hash, rebuild_id),
        *begun.puts,
    )
    committed: Rebuild = begun.record.model_copy(update={"revision": 1})
    subject.begun(context, committed)
    return committed
