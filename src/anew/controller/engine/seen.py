"""What a round goes by, read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from anew.api.models import NodeReport
from anew.controller.engine.context import Context
from anew.controller.engine.nodes import heard_nodes, live_reports, usable_nodes
from anew.controller.engine.pause import pause_among
from anew.core.rebuild import Rebuild

R = TypeVar("R", bound=Rebuild)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a round goes by: what is decided on it holds, or loses against whoever was faster.

    Attributes:
        running: Uid of a subject → its rebuilds that run.
        reports: Fabric → the last reports of the nodes that are alive; ``usable``: those that may get something.
        paused: Whether the cluster is.
    """

    running: Mapping[str, list[Rebuild]]
    reports: Mapping[str, list[NodeReport]]
    usable: Mapping[str, list[str]]
    paused: bool

    def running_of(self, uid: str, of: type[R]) -> list[R]:
        """A subject's rebuilds that run."""
        return [rebuild for rebuild in self.running.get(uid, ()) if isinstance(rebuild, of)]


def running_rebuilds(context: Context) -> dict[str, list[Rebuild]]:
    """Uid of a subject → its rebuilds that run."""
    running = defaultdict[str, list[Rebuild]](list)
    for rebuild in context.catalog.rebuilds(subject_uid=None, running_only=True):
        running[rebuild.subject.uid].append(rebuild)
    return running


def look(context: Context, running: Mapping[str, list[Rebuild]]) -> Seen:
    """See what is, beside the rebuilds that run, which were read before."""
    nodes, flags = heard_nodes(context), context.catalog.flags()
    return Seen(
        running,
        live_reports(context, context.fabrics, nodes),
        usable_nodes(context, context.fabrics, nodes, flags),
        pause_among(flags) is not None,
    )
