"""Rebuilds as the face shows them: one, those of a subject, or all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anew.api.rebuilds import RebuildView, view_class_of
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import driver_view
from anew.controller.engine.records import find
from anew.core.errors import NotFound
from anew.core.rebuild import Rebuild


def rebuild_view(context: Context, rebuild: Rebuild) -> RebuildView:
    """The ``rebuild`` shape: the envelope, and what its subject has to say."""
    subject = context.subjects.of(rebuild)
    envelope: Mapping[str, Any] = {
        "id": rebuild.id,
        "kind": str(rebuild.kind),
        rebuild.subject.kind: rebuild.subject.name,
        "status": rebuild.status.value,
        "stage": rebuild.stage.value,
        "plan": subject.shown_plan(rebuild.plan),
        "ledger": None,
        "fingerprint": None,
        "timings": rebuild.timings,
        "records_per_s": rebuild.records_per_s,
        "error": rebuild.error,
        "epoch": rebuild.epoch,
        "driver": driver_view(context, rebuild),
        "progress": rebuild.progress,
        "created_at_ms": rebuild.created_at_ms,
        "ended_at_ms": rebuild.ended_at_ms,
    }
    return view_class_of(subject.name).model_validate({**envelope, **subject.view(context, rebuild)})


def view(context: Context, rebuild_id: str) -> RebuildView:
    """The ``rebuild`` shape of the one of that id.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    return rebuild_view(context, find(context, rebuild_id))


def listed(context: Context, of: dict[str, str], *, running_only: bool) -> list[RebuildView]:
    """The ``rebuild`` shapes of some subjects' rebuilds, of all for none, newest first.

    Args:
        context: The controller's collaborators.
        of: The kind of a subject → its name.
        running_only: Whether those that have ended are left out.

    Raises:
        NotFound: ``unknown_…``.
    """
    uids = [subject.uid_of(context, of[subject.name]) for subject in context.subjects.all if subject.name in of]
    found = [
        rebuild
        for uid in (uids if of else [None])
        for rebuild in context.catalog.rebuilds(subject_uid=uid, running_only=running_only)
    ]
    found.sort(key=lambda rebuild: (-rebuild.created_at_ms, rebuild.id))
    return [rebuild_view(context, rebuild) for rebuild in found]


def begun_by(context: Context, request_id: str) -> list[RebuildView]:
    """The ``rebuild`` shape of the rebuild that a request began (rule R22); none where it began none."""
    known = context.catalog.request(request_id)
    if known is None:
        return []
    try:
        return [view(context, known.result)]
    except NotFound:
        # It made something else, or its record is gone.
        return []
