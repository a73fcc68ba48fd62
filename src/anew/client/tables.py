"""Queries over tables: any node answers; another one is asked when it does not."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, KeysView
from dataclasses import dataclass

import pyarrow as pa

from anew.api.http import ControllerClient
from anew.api.models import NodeView
from anew.api.node_http import NodeClient
from anew.core.errors import Failed, Unreachable

QUERY_TIMEOUT_SECONDS = 600.0
NODES_SECONDS = 2.0
"""For so long the list of nodes is taken to be right."""
_PASSED_ON = frozenset({"node_unreachable", "queries_busy", "not_ready", "checksum_mismatch", "file_missing"})
"""Another node may answer all the same: it may have a copy of a segment whose file was lost."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a query, and what was read for it, table by table."""

    table: pa.Table
    reads: tuple[str, ...]
    node: str


class TableClient:
    """Asks the nodes of a cluster; safe to use from several threads.

    The nodes that were alive when the controller last answered are remembered: queries go on while it is away, and it
    is not asked for each of them.
    """

    def __init__(self, controller: ControllerClient, nodes: NodeClient) -> None:
        """Nothing is asked yet."""
        self._controller, self._nodes = controller, nodes
        self._known: list[NodeView] = []
        self._looked_at = -math.inf
        self._turns = itertools.count()

    def query(self, sql: str, node: str | None = None) -> Answered:
        """Ask the nodes that are alive, one after the other, until one answers; or the one that is named.

        Raises:
            InvalidRequest: ``not_a_query``, ``bad_query``, or a limit.
            NotFound: ``unknown_table``.
            Unreachable: ``no_node``: none answers.
        """
        reasons: dict[str, str] = {}
        for view in self._in_turn(node, reasons.keys()):
            try:
                stream, reads = self._nodes.query(view.url, sql, QUERY_TIMEOUT_SECONDS)
            except (Unreachable, Failed) as error:
                if error.code not in _PASSED_ON:
                    raise
                reasons[view.id] = f"{view.id}: {error}"
            else:
                with pa.ipc.open_stream(stream) as reader:
                    return Answered(reader.read_all(), tuple(reads), view.id)
        raise Unreachable(
            "no_node",
            "no node answers the query",
            found="; ".join(reasons.values()) or "none is alive",
            expected="a node that is alive",
            hint="anew node list",
        )

    def _in_turn(self, node: str | None, asked: KeysView[str]) -> Iterator[NodeView]:
        """The nodes to ask, each query beginning with another one; a list that is not quite new is looked at again."""
        if time.monotonic() - self._looked_at > NODES_SECONDS:
            self._look()
        looked_at, first = self._looked_at, next(self._turns) % max(len(self._known), 1)
        yield from self._wanted(node, self._known[first:] + self._known[:first])
        if self._looked_at == looked_at:
            self._look()
        yield from [view for view in self._wanted(node, self._known) if view.id not in asked]

    def _wanted(self, node: str | None, views: list[NodeView]) -> list[NodeView]:
        return [view for view in views if node in (None, view.id)]

    def _look(self) -> None:
        try:
            found = [view for view in self._controller.nodes() if view.alive]
            # A node that does not report just now may answer all the same.
            self._known = found + [view for view in self._known if view.id not in {each.id for each in found}]
        except Unreachable:
            if not self._known:
                raise
        self._looked_at = time.monotonic()
