"""What a function keeps of the records of its input, as Spark's analysed plan of its frame says (rule R26).

Told is what can be proved: a frame that is its input with other columns, and nothing else. Whatever filters, joins,
unites, groups or maps rows in Python may leave rows out or give them other keys.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from anew.core.jobs.code import Shape

_ONLY_COLUMNS = frozenset({"Project", "SubqueryAlias"})
"""Operators that give each row of their child once."""
_ALIAS, _ATTRIBUTE = "Alias", "AttributeReference"


def shape_of(frame: DataFrame) -> Shape:
    """What each record of a function's frame has of the record that it is made of."""
    nodes = [frame._jdf.queryExecution().analyzed()]
    while str(nodes[-1].nodeName()) in _ONLY_COLUMNS:
        nodes.append(nodes[-1].children().head())
    leaf = nodes[-1]
    if leaf.children().size() or not leaf.isStreaming():
        return Shape(rows=False, key=False, time=False)
    written = "written_at" if "written_at" in frame.columns else "timestamp"
    return Shape(rows=True, key=_from(nodes, "key") == "key", time=_from(nodes, written) == "timestamp")


def _from(nodes: list[Any], name: str) -> str | None:
    """The column of the input that a column of the frame is, as it is; None: it is made of others."""
    columns = _listed(nodes[0].output())
    wanted = next((_id(each) for each in columns if str(each.name()) == name), None)
    for node in nodes[:-1]:
        if wanted is not None and str(node.nodeName()) == "Project":
            made = next((each for each in _listed(node.projectList()) if _id(each) == wanted), None)
            wanted = None if made is None else _id(_source(made))
    leaf = _listed(nodes[-1].output())
    return next((str(each.name()) for each in leaf if wanted is not None and _id(each) == wanted), None)


def _source(expression: Any) -> Any:
    """What an expression of a projection renames, or itself."""
    return expression.child() if _kind(expression) == _ALIAS else expression


def _id(expression: Any) -> int | None:
    return int(expression.exprId().id()) if _kind(expression) in (_ALIAS, _ATTRIBUTE) else None


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _listed(scala: Any) -> list[Any]:
    return [scala.apply(place) for place in range(scala.size())]
