"""Judging the queries of users: one SELECT over tables, and nothing that reaches outside of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb

from anew.core.errors import InvalidRequest
from anew.sql.functions import TABLE_FUNCTIONS, reaches_outside
from anew.sql.instance import Fault, first_line, session
from anew.sql.predicates import Predicate, pruning_predicates
from anew.sql.syntax import Node, SyntaxFault, parse, walk

_EXPLAIN = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)
_ANALYZE = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*\(?\s*analy[sz]e\b", re.IGNORECASE | re.DOTALL)
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_OWN_TABLES = ("duckdb_", "pragma_", "sqlite_", "pg_")

_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_SOURCES = frozenset({"BASE_TABLE", "TABLE_FUNCTION", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "PIVOT"})
_REST = frozenset(
    {
        *("ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"),
        *("ORDER_DEFAULT", "ORDER_ASCENDING", "ORDER_DESCENDING", "ASCENDING", "DESCENDING"),
    }
)
_EXPRESSIONS = frozenset(
    {
        *("CONSTANT", "COLUMN_REF", "FUNCTION", "OPERATOR", "COMPARISON", "CONJUNCTION", "BETWEEN", "CASE", "CAST"),
        *("COLLATE", "LAMBDA", "TYPE", "SUBQUERY", "WINDOW", "STAR", "POSITIONAL_REFERENCE", "DEFAULT"),
    }
)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement that may run.

    Attributes:
        text: The SELECT itself, without EXPLAIN.
        explain: Whether only its plan is asked for.
        tables: The tables that it names, as it spells them.
        predicates: Table → what rows of it have to meet; tables without any are not there.
    """

    text: str
    explain: bool
    tables: frozenset[str]
    predicates: dict[str, tuple[Predicate, ...]] = field(default_factory=dict)


def check_query(sql: str) -> Query:
    """What a text asks for, when it is one SELECT (or EXPLAIN of one) that reads nothing but tables.

    Raises:
        InvalidRequest: ``not_a_query``: anything else, with what was found.
    """
    explained = _EXPLAIN.match(sql)
    text = sql if explained is None else sql[explained.end() :]
    if explained is not None and _ANALYZE.match(text):
        raise _refused("EXPLAIN ANALYZE", "it would run the statement; EXPLAIN alone shows the plan")
    _check_one_select(text)
    try:
        (node,) = parse(text)
        named = list(_named_tables(node))
    except (SyntaxFault, RecursionError) as fault:
        raise _refused(str(fault)) from None
    _check_nodes(node)
    tables = frozenset(_checked_name(source) for source in named)
    return Query(text, explained is not None, tables, _predicates(node, named))


def _check_one_select(text: str) -> None:
    connection = session()
    try:
        statements = connection.extract_statements(text)
    except Fault as error:
        raise _refused(first_line(error)) from None
    finally:
        connection.close()
    if len(statements) != 1:
        raise _refused(f"{len(statements)} statements")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise _refused(f"a statement of type {statements[0].type.name}")


def _check_nodes(tree: Node) -> None:
    """Refuse whatever is not known to read tables alone: what DuckDB learns later is refused until it is known here.

    Raises:
        InvalidRequest: ``not_a_query``.
    """
    for node in walk(tree):
        kind = node.get("type")
        if "class" in node:
            if node["class"] not in _EXPRESSIONS:
                raise _refused(str(node["class"]).lower().replace("_", " "))
        elif isinstance(kind, str) and kind not in _NODES | _SOURCES | _REST:
            raise _refused(kind.lower().replace("_", " "), "SELECT … FROM a table")
        if kind == "TABLE_FUNCTION" and node["function"]["function_name"].lower() not in TABLE_FUNCTIONS:
            hint = f"of the table functions there are {', '.join(sorted(TABLE_FUNCTIONS))}"
            raise _refused(f"{node['function']['function_name']}() in FROM", hint)
        if node.get("class") in ("FUNCTION", "WINDOW") and reaches_outside(node["function_name"]):
            raise _refused(f"{node['function_name']}()", "a query reads tables, nothing else")


def _named_tables(tree: Node) -> Iterator[Node]:
    """The references to tables that no WITH around them defines."""
    waiting: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        value, defined = waiting.pop()
        if isinstance(value, list):
            waiting.extend((child, defined) for child in reversed(value))
        elif isinstance(value, dict):
            if _is_table(value) and (len(value["qualified_name"]["path"]) > 1 or _lower(value) not in defined):
                yield value
            if value.get("type") == "RECURSIVE_CTE_NODE":
                defined |= {value["cte_name"].lower()}
            for entry in value.get("cte_map", {}).get("map", []):
                # One sees those before it; a table of its own name is a table.
                waiting.append((entry["value"], defined))
                defined |= {entry["key"].lower()}
            waiting.extend((child, defined) for key, child in value.items() if key != "cte_map")


def _is_table(node: Node) -> bool:
    return node.get("type") == "BASE_TABLE" and "class" not in node


def _lower(table: Node) -> str:
    return str(table["table_name"]).lower()


def _checked_name(source: Node) -> str:
    path, name = source["qualified_name"]["path"], str(source["table_name"])
    if len(path) > 2 or (len(path) == 2 and path[0].lower() != "main"):
        raise _refused(f"the table {'.'.join(path)}", "name tables alone: FROM mytable")
    if not _TABLE.fullmatch(name) or name.lower().startswith(_OWN_TABLES):
        raise _refused(
            f"the table {name}", "a query reads tables by their names, never files or the engine's own tables"
        )
    return name


def _predicates(tree: Node, named: list[Node]) -> dict[str, tuple[Predicate, ...]]:
    """Those of tables that the whole statement names once: another reading of them could need all rows."""
    times = Counter(_lower(source) for source in named)
    own = {id(source) for source in named}
    found: dict[str, tuple[Predicate, ...]] = {}
    for node in walk(tree):
        if node.get("type") != "SELECT_NODE" or "class" in node:
            continue
        read = {str(n["table_name"]) for n in walk(node.get("from_table")) if id(n) in own}
        predicates = pruning_predicates(node)
        found |= {name: p for name, p in predicates.items() if name in read and times[name.lower()] == 1}
    return found


def _refused(found: str, hint: str | None = None) -> InvalidRequest:
    return InvalidRequest(
        "not_a_query",
        "this is not a query over tables",
        found=found,
        expected="one SELECT statement, or EXPLAIN with one",
        hint=hint,
    )
