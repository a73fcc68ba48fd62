"""Rebuilds as the face shows them: one, those of a subject, or all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anew.api.pages import Page, page_of, parse_timed_key, timed_key
from anew.api.rebuilds import RebuildView, view_class_of
from anew.catalog.interface import TimedKey
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


@dataclass(frozen=True, slots=True)
class Listed:
    """Which rebuilds a page holds.

    Attributes:
        of: The kind of a subject → its name, of one subject at most; of all for none.
        running_only: Whether those that have ended are left out.
        limit: How many at most.
        after: Only those behind this key, unless None.
    """

    of: Mapping[str, str]
    running_only: bool
    limit: int
    after: str | None


def listed(context: Context, asked: Listed) -> Page[RebuildView]:
    """The ``rebuild`` shapes of a subject's rebuilds, or of all, newest first.

    Raises:
        NotFound: ``unknown_…``.
        InvalidRequest: ``bad_page_key``.
    """
    after = None if asked.after is None else TimedKey(*parse_timed_key(asked.after))
    named = (
        subject.uid_of(context, asked.of[subject.name]) for subject in context.subjects.all if subject.name in asked.of
    )
    found = context.catalog.rebuilds(
        subject_uid=next(named, None), running_only=asked.running_only, limit=asked.limit + 1, after=after
    )
    page = page_of(found, asked.limit, lambda rebuild: timed_key(rebuild.created_at_ms, rebuild.id))
    return Page(items=tuple(rebuild_view(context, rebuild) for rebuild in page.items), next=page.next)


def begun_by(context: Context, request_id: str) -> Page[RebuildView]:
    """The ``rebuild`` shape of the rebuild that a request began (rule R22); none where it began none."""
    known = context.catalog.request(request_id)
    if known is None:
        return Page(items=())
    try:
        return Page(items=(view(context, known.result),))
    except NotFound:
        # It made something else, or its record is gone.
        return Page(items=())
