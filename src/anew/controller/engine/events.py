"""What was done, line by line: the history backwards, and events forwards from a revision of the catalog."""

from __future__ import annotations

from typing import Any

from anew.api.upkeep import EventLine, Events
from anew.catalog.change import Operation
from anew.controller.engine.context import Context


def shown(operation: Operation) -> dict[str, Any]:
    """The fields of a line of history."""
    return {
        "id": operation.id,
        "at_ms": operation.at_ms,
        "actor": operation.actor,
        "what": operation.what,
        "subject": operation.subject,
        "detail": operation.detail,
    }


def events_after(context: Context, after: int, limit: int, subject: str | None) -> Events:
    """What was committed after a revision, to one subject or, for None, to all; at most so many, and where to go on."""
    # Read first: what is committed from now on lies behind it, and comes with this answer or the next.
    revision = context.catalog.revision()
    found = context.catalog.events(after, limit, subject) if after <= revision else []
    oldest = context.catalog.events(0, 1)
    last = found[-1].revision if found else 0
    return Events(
        items=tuple(EventLine(revision=event.revision, **shown(event.operation)) for event in found),
        next=last if len(found) == limit else max(last, revision),
        oldest=oldest[0].revision if oldest else 0,
    )
