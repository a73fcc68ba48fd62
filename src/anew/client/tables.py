"""Queries over tables: any node answers; another one is asked when it does not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa

from anew.api.http import ControllerClient
from anew.api.models import NodeView
from anew.api.node_http import NodeClient
from anew.core.errors import Unreachable

QUERY_TIMEOUT_SECONDS = 600.0
_PASSED_ON = frozenset({"node_unreachable", "queries_busy", "not_ready"})


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a query, and what was read for it, table by table."""

    table: pa.Table
    reads: tuple[str, ...]
    node: str


class TableClient:
    """Asks the nodes of a cluster; safe to use from several threads.

    The nodes that were alive when the controller last answered are remembered: queries go on while it is away.
    """

    def __init__(self, controller: ControllerClient, nodes: NodeClient) -> None:
        """Nothing is asked yet."""
        self._controller, self._nodes = controller, nodes
        self._known: list[NodeView] = []
        self._turns = itertools.count()

    def query(self, sql: str, node: str | None = None) -> Answered:
        """Ask the nodes that are alive, one after the other, until one answers; or the one that is named.

        Raises:
            InvalidRequest: ``not_a_query``, ``bad_query``, or a limit.
            NotFound: ``unknown_table``.
            Unreachable: ``no_node``: none answers.
        """
        reasons = []
        for view in self._in_turn(node):
            try:
                stream, reads = self._nodes.query(view.url, sql, QUERY_TIMEOUT_SECONDS)
            except Unreachable as error:
                if error.code not in _PASSED_ON:
                    raise
                reasons.append(f"{view.id}: {error}")
            else:
                with pa.ipc.open_stream(stream) as reader:
                    return Answered(reader.read_all(), tuple(reads), view.id)
        raise Unreachable(
            "no_node",
            "no node answers the query",
            found="; ".join(reasons) or "none is alive",
            expected="a node that is alive",
            hint="anew node list",
        )

    def _in_turn(self, node: str | None) -> list[NodeView]:
        """The nodes to ask, each query beginning with another one."""
        try:
            found = [view for view in self._controller.nodes() if view.alive]
            # A node that does not report just now may answer all the same.
            self._known = found + [view for view in self._known if view.id not in {each.id for each in found}]
        except Unreachable:
            if not self._known:
                raise
        if node is not None:
            return [view for view in self._known if view.id == node]
        first = next(self._turns) % max(len(self._known), 1)
        return self._known[first:] + self._known[:first]
