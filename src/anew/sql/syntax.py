"""SELECT statements as syntax trees, as DuckDB's own parser sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from anew.sql.instance import Fault, first_line, session

Node = dict[str, Any]

_PLACES = frozenset({"query_location", "query_location_length"})


class SyntaxFault(Exception):
    """A text that is no SELECT statement, or one that cannot be shown as a tree."""


@lru_cache(maxsize=256)
def _parsed(sql: str) -> str:
    try:
        row = session().execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    except Fault as error:
        raise SyntaxFault(first_line(error)) from None
    assert row is not None
    return str(row[0])


def parse(sql: str) -> list[Node]:
    """The query nodes of a text's statements, all of them SELECT.

    Raises:
        SyntaxFault: It does not parse, or holds something else.
    """
    try:
        document = json.loads(_parsed(sql))
    except RecursionError:
        raise SyntaxFault("it is nested too deeply") from None
    if document["error"]:
        raise SyntaxFault(str(document["error_message"]))
    return [statement["node"] for statement in document["statements"]]


def walk(tree: Any) -> Iterator[Node]:
    """All nodes of a tree, the tree itself first; without recursion, whatever its depth."""
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def without_places(tree: Any) -> Any:
    """The tree without where its parts stood in the text, so that equal texts make equal trees.

    Raises:
        RecursionError: It is nested too deeply.
    """
    if isinstance(tree, dict):
        return {key: without_places(value) for key, value in tree.items() if key not in _PLACES}
    return [without_places(value) for value in tree] if isinstance(tree, list) else tree


def text_of(expression: Node) -> str:
    """An expression as DuckDB writes it: the same text for texts that mean the same tree."""
    (statement,) = parse("SELECT 1")
    document = {
        "error": False,
        "statements": [{"node": {**statement, "select_list": [expression]}, "named_param_map": []}],
    }
    row = session().execute("SELECT json_deserialize_sql($1::JSON)", [json.dumps(document)]).fetchone()
    assert row is not None
    return str(row[0]).removeprefix("SELECT ")
