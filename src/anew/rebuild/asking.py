"""Requests that are made again under the same id: known by what was asked for, and answered as before (rule R22)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from anew.api.http import ControllerClient
from anew.api.rebuilds import RebuildView
from anew.api.waiting import wait_seconds
from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest
from anew.core.rebuild import Stage
from anew.rebuild.ending import check_ended_well, followed
from anew.rebuild.inputs import PushRequest
from anew.rebuild.observer import Observer


def asked_for(what: str, name: str, **options: Any) -> str:
    """The hash of a request: what is to be done, to which store or table, and everything else that was said.

    Where Spark runs does not belong to it, nor how the outcome is shown.
    """
    return value_hash({"what": what, "name": name, "options": options})


def input_said(request: PushRequest) -> dict[str, Any]:
    """What was said of an input, whatever folder it was said in."""
    return {**asdict(request), "inputs": [str(Path(path).expanduser().resolve()) for path in request.inputs]}


def begun_before(controller: ControllerClient, request_id: str | None, asked: str) -> RebuildView | None:
    """The ``rebuild`` shape of what the same request began before; None for a new request, or one without an id.

    Asked before anything is planned: what the first plan was made from may have gone since.

    Raises:
        InvalidRequest: ``request_id_reused``: the id was used for another request.
    """
    found = [] if request_id is None else controller.begun_by(request_id)
    view = found[0] if found else None
    if view is None or view.plan.asked == asked:
        return view
    raise InvalidRequest(
        "request_id_reused",
        "the request id was used before for another request",
        found=f"{request_id}, of {view.kind} {view.id} of {view.name}",
        expected="a new id for a new request, or the same request again",
    )


def follow(controller: ControllerClient, rebuild_id: str, observer: Observer) -> RebuildView:
    """Follow a rebuild of whatever kind until it has ended; returns its ``rebuild`` shape.

    Raises:
        Failed: ``rebuild_failed``, ``rebuild_killed``.
        Unreachable: The controller does not answer; the rebuild goes on.
    """

    def look(after: Stage | None, seconds: float) -> RebuildView:
        return controller.rebuild(rebuild_id, after=after, wait_seconds=seconds)

    view = followed(look, observer, wait_seconds)
    check_ended_well(
        view, f"the {view.kind}", expected="one that succeeds", hint="what was there before goes on serving"
    )
    return view
