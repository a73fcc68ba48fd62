"""Finding fabrics by name, and names in their logs that are free."""

from __future__ import annotations

from collections.abc import Collection

from anew.controller.engine.context import Context, Fabric
from anew.core.errors import InvalidRequest, Refused
from anew.core.suggest import did_you_mean


def fabric_named(context: Context, name: str | None) -> Fabric:
    """The fabric of that name, the first one for None.

    Raises:
        InvalidRequest: ``unknown_fabric``.
    """
    if name is None:
        return next(iter(context.fabrics.values()))
    if name not in context.fabrics:
        raise InvalidRequest(
            "unknown_fabric",
            f"there is no fabric {name}",
            found=name,
            expected=", ".join(context.fabrics),
            hint=did_you_mean(name, context.fabrics),
        )
    return context.fabrics[name]


def check_no_topic(fabric: Fabric, name: str, *, hint: str, besides: Collection[str] = ()) -> None:
    """Refuse where a log has a topic of that name, unless its uid is one of ``besides``.

    Raises:
        Refused: ``topic_exists``.
        Unreachable: The log does not answer.
    """
    present = fabric.log.topic(name)
    if present is not None and present.uid not in besides:
        raise Refused(
            "topic_exists",
            f"the log of {fabric.name} has a topic {name} already",
            found=f"uid {present.uid}",
            expected="no topic of that name",
            hint=hint,
        )
