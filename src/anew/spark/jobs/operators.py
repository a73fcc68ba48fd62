"""What decides whether a streaming frame can be run: operators that keep state, its streams, Spark's own check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

_RUN = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "Join",
        "TransformWithState",
        "TransformWithStateInPySpark",
    }
)
"""Of these: whose state can be copied to go on from it elsewhere."""

APPEND, UPDATE = "append", "update"


def stateful_operators(frame: DataFrame) -> list[str]:
    """The names of the operators of a streaming frame that keep state between batches, each once."""
    plan = frame._jdf.queryExecution().analyzed()
    return sorted(set(_stateful(plan)))


def streams_of(frame: DataFrame) -> list[tuple[str, dict[str, str]]]:
    """The format and the options of each stream that a frame is made of.

    A frame that is united with itself is read once. One that is joined with itself is two streams, as Spark plans it.
    """
    streams = _streams_in(frame._jdf.queryExecution().analyzed())
    return [(str(stream.sourceName()), dict(stream.extraOptions())) for stream in streams]


def _streams_in(node: Any) -> list[Any]:
    leaves, streams = node.collectLeaves(), list[Any]()
    for leaf in map(leaves.apply, range(leaves.size())):
        if leaf.isStreaming() and not any(leaf.equals(stream) for stream in streams):
            streams.append(leaf)
    return streams


def watermarks_of(frame: DataFrame) -> list[int]:
    """Of each watermark of a streaming frame, of how many streams it follows the times."""
    nodes, found = [frame._jdf.queryExecution().analyzed()], []
    while nodes:
        node = nodes.pop()
        if str(node.nodeName()) == "EventTimeWatermark":
            found.append(len(_streams_in(node)))
        nodes += [node.children().apply(place) for place in range(node.children().size())]
    return found


def never_run(operators: Sequence[str]) -> list[str]:
    """Those of `stateful_operators` that no job may have."""
    return [each for each in operators if each not in _RUN]


def why_not_run(frame: DataFrame, mode: str) -> str | None:
    """Why Spark would refuse to run a frame as a stream, as it says when a query is started; None: it would run it.

    Args:
        frame: Made of streams.
        mode: ``append`` or ``update``.
    """
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    try:
        checker.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), modes.Update() if mode == UPDATE else modes.Append()
        )
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
