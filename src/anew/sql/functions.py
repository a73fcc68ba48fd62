"""Which functions of DuckDB always answer the same for the same arguments, and which reach outside of the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache

from anew.sql.instance import session
from anew.sql.syntax import SyntaxFault, parse, walk

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
"""The table functions that make rows from their arguments alone."""

VALUE_WORDS = frozenset(
    {
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"),
        *("current_user", "current_role", "session_user", "user"),
        *("current_catalog", "current_database", "current_schema"),
    }
)
"""Words that SQL reads as functions where there is no column of the name."""

_OUTSIDE = frozenset(
    {
        *("getenv", "current_setting", "getvariable", "in_search_path", "write_log", "parse_duckdb_log_message"),
        *("nextval", "currval", "setval", "setseed", "sleep_ms", "pg_sleep", "glob", "query", "query_table"),
        *("json_serialize_plan", "json_execute_serialized_sql", "current_query", "get_block_size", "which_secret"),
    }
)
_OUTSIDE_PREFIXES = ("read_", "duckdb_", "pragma_", "parquet_", "sniff_", "pg_get_")

_CHANGING = frozenset({"version", "hash", "current_localtime", "current_localtimestamp"})
"""Called consistent by DuckDB, but they read the clock or change with its version."""


class Nature(Enum):
    """What a function is to an expression of a table's configuration."""

    FIXED = "fixed"
    CHANGING = "changing"
    AGGREGATE = "aggregate"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Known:
    kinds: set[str] = field(default_factory=set)
    stabilities: set[str] = field(default_factory=set)
    macros: list[tuple[frozenset[str], str]] = field(default_factory=list)


def reaches_outside(name: str) -> bool:
    """Whether a function reads or changes what is not the data: files, settings, sequences, the engine itself."""
    name = name.lower()
    return name in _OUTSIDE or name.startswith(_OUTSIDE_PREFIXES)


def nature(name: str, arguments: int) -> Nature:
    """What a function is when it is called with so many arguments."""
    name = name.lower()
    # With one argument it counts from today.
    if reaches_outside(name) or name in _CHANGING or (name == "age" and arguments < 2):
        return Nature.CHANGING
    known = _catalogue().get(name)
    if known is None or not known.kinds & {"scalar", "macro", "aggregate", "window"}:
        return Nature.UNKNOWN
    if known.kinds & {"aggregate", "window"}:
        return Nature.AGGREGATE
    if known.stabilities - {"CONSISTENT"}:
        return Nature.CHANGING
    return _nature_of_macros(name)


@cache
def _nature_of_macros(name: str) -> Nature:
    for parameters, definition in _catalogue()[name].macros:
        found = _nature_of_text(name, parameters, definition)
        if found is not Nature.FIXED:
            return found
    return Nature.FIXED


def _nature_of_text(name: str, parameters: frozenset[str], definition: str) -> Nature:
    try:
        statements = parse(f"SELECT {definition}")
    except SyntaxFault:
        return Nature.CHANGING
    for node in walk(statements):
        kind = node.get("class")
        if kind == "SUBQUERY" or (kind == "COLUMN_REF" and not parameters & {n.lower() for n in node["column_names"]}):
            return Nature.CHANGING
        if kind != "FUNCTION" or node["function_name"] == name:
            continue
        found = nature(node["function_name"], len(node["arguments"]))
        if found is not Nature.FIXED:
            return found
    return Nature.FIXED


@cache
def _catalogue() -> dict[str, _Known]:
    rows = session().execute(
        "SELECT lower(function_name), function_type, stability, parameters, macro_definition FROM duckdb_functions()"
    )
    known: dict[str, _Known] = {}
    for name, kind, stability, parameters, definition in rows.fetchall():
        entry = known.setdefault(name, _Known())
        entry.kinds.add(kind)
        if kind == "scalar":
            entry.stabilities.add(stability)
        if kind == "macro":
            entry.macros.append((frozenset(p.lower() for p in parameters), definition))
    return known
