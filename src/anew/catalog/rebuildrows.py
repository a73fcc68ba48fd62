"""Rebuilds as rows: one table for all kinds, each parsed by the class that its kind names."""

from __future__ import annotations

import json
from functools import lru_cache

import sqlalchemy as sa

from anew.catalog.change import PutRebuild
from anew.catalog.conflicts import check_swapped
from anew.catalog.tables import REBUILDS
from anew.core.plan import PlanValue
from anew.core.rebuild import Rebuild, class_of, plan_class_of

_KEPT = 4_096
_PLANS_KEPT = 256


def put_rebuild(connection: sa.Connection, put: PutRebuild) -> None:
    """Insert or replace a rebuild; its plan stays what it was.

    Raises:
        Refused: ``revision_conflict``.
    """
    rebuild, subject = put.rebuild, put.rebuild.subject
    revision = 1 if put.fence is None else put.fence + 1
    row = {
        "kind": str(rebuild.kind),
        "subject_uid": subject.uid,
        "running": not rebuild.ended,
        "created_at_ms": rebuild.created_at_ms,
        "revision": revision,
        "document": rebuild.model_copy(update={"revision": revision}).model_dump_json(exclude={"plan"}),
    }
    if put.fence is None:
        plan = rebuild.plan.model_dump_json()
        connection.execute(sa.insert(REBUILDS).values(id=rebuild.id, plan=plan, **row))
        return
    update = sa.update(REBUILDS).where(REBUILDS.c.id == rebuild.id, REBUILDS.c.revision == put.fence)
    check_swapped(connection.execute(update.values(**row)).rowcount, f"the rebuild {rebuild.id}", put.fence)


def find_rebuilds(
    connection: sa.Connection, *conditions: sa.ColumnElement[bool], limit: int | None = None
) -> list[Rebuild]:
    """Rebuilds, newest first, at most so many."""
    row = REBUILDS.c
    query = sa.select(row.kind, row.document, row.plan).where(*conditions)
    query = query.order_by(row.created_at_ms.desc(), row.id).limit(limit)
    return [_rebuild(*each) for each in connection.execute(query)]


@lru_cache(_KEPT)
def _rebuild(kind: str, document: str, plan: str) -> Rebuild:
    # Most of what is read was read before, a round or a request ago, and nobody changes what was read.
    return class_of(kind).model_validate({**json.loads(document), "plan": _plan(kind, plan)})


@lru_cache(_PLANS_KEPT)
def _plan(kind: str, text: str) -> PlanValue:
    return plan_class_of(kind).model_validate_json(text)
