"""Whether everything is paused: no scheduled rebuild, reclaim or gc starts then."""

from __future__ import annotations

from collections.abc import Mapping

from anew.controller.engine.context import Context

PAUSED = "paused"
"""The flag that keeps why."""


def cluster_paused(context: Context) -> str | None:
    """Why the cluster is paused, None when it is not."""
    return pause_among(context.catalog.flags())


def pause_among(flags: Mapping[str, str]) -> str | None:
    """Why the cluster is paused by its flags, None when it is not."""
    return flags.get(PAUSED)
