"""Which operators of a streaming frame keep state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

_KEEPS_STATE = (
    "Aggregate",
    "Deduplicate",
    "Distinct",
    "Except",
    "FlatMapCoGroups",
    "FlatMapGroups",
    "GlobalLimit",
    "Intersect",
    "LocalLimit",
    "Offset",
    "Sort",
    "TransformWithState",
    "Window",
)
"""How the names of the plan's operators begin that need what came before; joins count where both sides stream."""


def stateful_operators(frame: DataFrame) -> list[str]:
    """The names of the operators of a streaming frame that keep state between batches, each once."""
    plan = frame._jdf.queryExecution().analyzed()
    return sorted(set(_stateful(plan)))


def _stateful(node: Any) -> Iterator[str]:
    name = str(node.nodeName())
    children = [node.children().apply(place) for place in range(node.children().size())]
    streams = [child for child in children if child.isStreaming()]
    if streams and (name.startswith(_KEEPS_STATE) or (name == "Join" and len(streams) > 1)):
        yield name
    for child in streams:
        yield from _stateful(child)
