"""Opening a log by the kind and address that configuration and wire carry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anew.core.errors import InvalidRequest
from anew.log.interface import Log


def open_log(
    kind: str, address: str, *, clock: Callable[[], int], skew_limit_ms: int = 60_000, durable: bool = True
) -> Log:
    """The log of that kind at that address; ``embedded`` takes a directory. The other arguments: see `EmbeddedLog`.

    Raises:
        InvalidRequest: ``unknown_log_kind``.
    """
    if kind == "embedded":
        # Each kind brings libraries of its own, which those who open another one, or none, do without.
        from anew.log.embedded import EmbeddedLog

        return EmbeddedLog(Path(address), clock=clock, skew_limit_ms=skew_limit_ms, durable=durable)
    raise InvalidRequest("unknown_log_kind", "there is no such kind of log", found=kind, expected="embedded")
