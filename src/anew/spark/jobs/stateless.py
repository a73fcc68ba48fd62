"""What decides whether a streaming frame can be run: operators that keep state, its streams, Spark's own check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException
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


def streams_of(frame: DataFrame) -> list[tuple[str, dict[str, str]]]:
    """The format and the options of each stream that a frame is made of."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    streams = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
    return [(str(stream.sourceName()), dict(stream.extraOptions())) for stream in streams]


def why_not_run(frame: DataFrame) -> str | None:
    """Why Spark would refuse to run a frame as a stream, as it says when a query is started; None: it would run it."""
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except AnalysisException as error:
        return str(error).partition("\n")[0].rstrip(";")
    return None


def _stateful(node: Any) -> Iterator[str]:
    name = str(node.nodeName())
    children = [node.children().apply(place) for place in range(node.children().size())]
    streams = [child for child in children if child.isStreaming()]
    if streams and (name.startswith(_KEEPS_STATE) or (name == "Join" and len(streams) > 1)):
        yield name
    for child in streams:
        yield from _stateful(child)
