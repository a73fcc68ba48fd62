"""Finding fabrics by name."""

from __future__ import annotations

from anew.controller.engine.context import Context, Fabric
from anew.core.errors import InvalidRequest
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
