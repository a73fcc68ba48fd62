"""A cut-over that people planned: once a generation has caught up, and not before a time (case E7)."""

from __future__ import annotations

from anew.core.plan import Value


class PlannedCut(Value):
    """What is to happen by itself.

    Attributes:
        generation: Which is to serve.
        before: Which served when it was planned: another one since, and it is called off.
        not_before_ms: From when on; None: as soon as it has caught up.
        actor: Who planned it.
        error: Why it could not be done when it was tried last, for a reason that does not pass with time.
    """

    generation: int
    before: int | None
    not_before_ms: int | None = None
    actor: str
    error: str | None = None
