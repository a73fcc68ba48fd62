"""Requests that are made twice: the same id with the same body is the same request (rule R22)."""

from __future__ import annotations

from anew.controller.engine.context import Context
from anew.core.errors import InvalidRequest
from anew.core.plan import PlanValue


def made_before(context: Context, request_id: str | None, body_hash: str) -> str | None:
    """What a request of that id made, as the catalog keeps it; None for a new one, or one without an id (rule R22).

    Raises:
        InvalidRequest: ``request_id_reused``: that was with another body.
    """
    known = None if request_id is None else context.catalog.request(request_id)
    if known is None:
        return None
    if known.body_hash != body_hash:
        raise request_id_reused(request_id, known.body_hash)
    return known.result


def request_id_reused(request_id: str | None, body_hash: str) -> InvalidRequest:
    """The error of a request whose id was used before with another body (rule R22)."""
    return InvalidRequest(
        "request_id_reused",
        "the request id was used before with another body",
        found=request_id,
        expected=f"a new id for a new request; this one is of {body_hash}",
    )


def check_unaltered(plan: PlanValue) -> None:
    """Check that a plan is still the one that its id was made of.

    Raises:
        InvalidRequest: ``plan_altered``.
    """
    if plan.id != plan.value_id():
        raise InvalidRequest(
            "plan_altered", "the plan was changed after it was made", found=plan.id, expected=plan.value_id()
        )
