"""What a query's WHERE says about single columns, so that segments without such rows need not be opened."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from anew.sql.syntax import Node

Operator = Literal["=", "<", "<=", ">", ">=", "in"]
Value = bool | int | float | Decimal | str | dt.date | dt.datetime

_COMPARISONS: dict[str, tuple[Operator, Operator]] = {
    "COMPARE_EQUAL": ("=", "="),
    "COMPARE_LESSTHAN": ("<", ">"),
    "COMPARE_LESSTHANOREQUALTO": ("<=", ">="),
    "COMPARE_GREATERTHAN": (">", "<"),
    "COMPARE_GREATERTHANOREQUALTO": (">=", "<="),
}
"""As it is written, and with the sides exchanged."""

DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?")


@dataclass(frozen=True, slots=True)
class Predicate:
    """A comparison of a column with literals that each row of the answer meets; ``in`` has any number of values.

    The column is spelt as the query spells it.
    """

    column: str
    operator: Operator
    values: tuple[Value, ...]


def pruning_predicates(select: Node) -> dict[str, tuple[Predicate, ...]]:
    """Table → what the top of WHERE demands of its columns, for the tables that a SELECT node reads itself.

    A table is there only when rows that do not meet the predicates cannot add to the answer: it stands alone in FROM
    or in inner joins, is not sampled, and its columns have their own names.
    """
    sources = _inner_sources(select.get("from_table"))
    if sources is None or select.get("sample") is not None or select.get("where_clause") is None:
        return {}
    aliases = {(source["alias"] or source["table_name"]).lower(): source["table_name"] for source in sources}
    if len(aliases) < len(sources):
        return {}
    alone = next(iter(aliases)) if len(sources) == 1 and select["from_table"]["type"] == "BASE_TABLE" else None
    named = {item["alias"].lower() for item in select["select_list"] if item.get("alias")}
    found: dict[str, list[Predicate]] = {}
    for condition in _conditions(select["where_clause"]):
        for path, predicate in _predicates(condition):
            # WHERE may also name what SELECT computes, unless it says whose column it is.
            alias = path[0].lower() if len(path) == 2 else alone if path[0].lower() not in named else None
            if alias in aliases and len(path) <= 2:
                found.setdefault(aliases[alias], []).append(predicate)
    return {table: tuple(predicates) for table, predicates in found.items()}


def _inner_sources(tree: Node | None) -> list[Node] | None:
    """The base tables of FROM, or None when something else than inner joins makes the rows."""
    if tree is None or tree.get("sample") is not None:
        return None
    match tree["type"]:
        case "BASE_TABLE":
            return None if tree["column_name_alias"] or tree["at_clause"] is not None else [tree]
        case "JOIN" if tree["join_type"] == "INNER" and tree["ref_type"] in ("REGULAR", "CROSS", "NATURAL"):
            sides = (_inner_sources(tree["left"]), _inner_sources(tree["right"]))
            return None if sides[0] is None or sides[1] is None else [*sides[0], *sides[1]]
        case "SUBQUERY" | "TABLE_FUNCTION" | "EXPRESSION_LIST":
            return []
    return None


def _conditions(tree: Node) -> Iterator[Node]:
    if tree["type"] == "CONJUNCTION_AND":
        for child in tree["children"]:
            yield from _conditions(child)
    else:
        yield tree


def _predicates(tree: Node) -> Iterator[tuple[list[str], Predicate]]:
    match tree:
        case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in _COMPARISONS:
            straight, turned = _COMPARISONS[kind]
            yield from _compared(left, straight, right)
            yield from _compared(right, turned, left)
        case {"class": "BETWEEN", "type": "COMPARE_BETWEEN", "input": column, "lower": lower, "upper": upper}:
            yield from _compared(column, ">=", lower)
            yield from _compared(column, "<=", upper)
        case {"class": "OPERATOR", "type": "COMPARE_IN", "children": [column, *listed]}:
            yield from _compared(column, "in", *listed)


def _compared(column: Node, operator: Operator, *literals: Node) -> Iterator[tuple[list[str], Predicate]]:
    values = tuple(value for literal in literals if (value := _value(literal)) is not None)
    # A list with a part that is no literal says nothing: that part could be anything.
    if column["class"] == "COLUMN_REF" and values and len(values) == len(literals):
        path = column["column_names"]
        yield path, Predicate(path[-1], operator, values)


def _value(tree: Node) -> Value | None:
    """A literal's value; None: it is no literal, or null, or one that does not compare for sure."""
    match tree:
        case {"class": "CONSTANT", "literal": {"kind": kind, "text": text}}:
            return _plain(kind, text)
        case {"class": "CAST", "try_cast": False, "child": {"class": "CONSTANT", "literal": literal}, "type_expr": to}:
            return moment(literal["text"], _type(to)) if literal["kind"] == "STRING" else None
    return None


def _type(tree: Any) -> str:
    return str(tree["type_name"]).lower() if len(tree["qualified_name"]["path"]) == 1 else ""


def _plain(kind: str, text: str) -> Value | None:
    match kind:
        case "INTEGER":
            return int(text)
        case "NUMERIC":
            # DuckDB reads an exponent as a double and anything else as a decimal.
            return float(text) if "e" in text.lower() else Decimal(text)
        case "BOOLEAN":
            return text.lower() == "true"
        case "STRING":
            return text
    return None


def moment(text: str, kind: str) -> dt.date | dt.datetime | None:
    """A text as a date or timestamp, read as DuckDB reads it; None when the text is not in the plain ISO form."""
    try:
        if kind == "date" and DATE.fullmatch(text):
            return dt.date.fromisoformat(text)
        if kind in ("timestamp", "datetime") and (DATE.fullmatch(text) or MOMENT.fullmatch(text)):
            return dt.datetime.fromisoformat(text)
    except ValueError:
        pass
    return None
