"""The SQL expressions of table configurations: judged before anything is computed with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from anew.core.errors import InvalidRequest
from anew.core.suggest import did_you_mean
from anew.core.tables.columns import Column
from anew.core.tables.config import SegmentConfig
from anew.sql.functions import VALUE_WORDS, Nature, nature
from anew.sql.instance import Fault, first_line, quoted, select, session
from anew.sql.syntax import Node, SyntaxFault, parse, text_of, walk, without_places

_CLASSES = frozenset(
    {
        *("CONSTANT", "COLUMN_REF", "FUNCTION", "OPERATOR", "COMPARISON", "CONJUNCTION"),
        *("BETWEEN", "CASE", "CAST", "COLLATE", "LAMBDA", "TYPE"),
    }
)
_REFUSED = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "* or COLUMNS",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a positional reference",
    "DEFAULT": "DEFAULT",
}
_NUMBERS = {"boolean", "smallint", "integer", "bigint", "real", "double", "decimal"}
_TIMES = {"date", "timestamp"}
_TEXTS = {"varchar", "json"}
_GROUPS = {
    **dict.fromkeys((*_NUMBERS, "tinyint", "hugeint", "float", "bignum"), _NUMBERS),
    **dict.fromkeys(("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"), _NUMBERS),
    **dict.fromkeys((*_TIMES, "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"), _TIMES),
    "blob": {"blob"},
}
"""DuckDB's type → the types of columns that it converts to, besides varchar."""

_ROW_FILTER = "the row filter"


def check_expressions(config: SegmentConfig) -> None:
    """Check every derived column and the row filter of a configuration.

    Raises:
        InvalidRequest: ``bad_expression``: no scalar expression, a type that does not fit, a circle;
            ``unknown_column``, with the nearest name; ``not_deterministic``: two runs could answer differently.
    """
    columns = config.by_name
    derived_order(config)
    for name, expression in config.derived.items():
        where = f"the derived column {name}"
        _check_functions(where, expression)
        found = _bound_type(where, expression, _used(where, expression, columns))
        if not _casts(found, columns[name].type):
            raise _bad(where, f"{expression}: {found}", f"a value that becomes {columns[name].type}")
    if config.row_filter is None:
        return
    used = _used(_ROW_FILTER, config.row_filter, columns)
    _check_functions(_ROW_FILTER, config.row_filter)
    found = _bound_type(_ROW_FILTER, config.row_filter, used)
    if found != "boolean":
        raise _bad(_ROW_FILTER, f"{config.row_filter}: {found}", "a condition: an expression of type boolean")


def derived_order(config: SegmentConfig) -> tuple[str, ...]:
    """The derived columns in an order in which each finds those that it needs.

    Raises:
        InvalidRequest: ``bad_expression``: a circle, or no expression; ``unknown_column``.
    """
    columns = config.by_name
    needs = {
        name: sorted(c.name for c in _used(f"the derived column {name}", expression, columns))
        for name, expression in config.derived.items()
    }
    graph = {name: [need for need in found if need in needs] for name, found in needs.items()}
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        expected = "derived columns that do not need themselves"
        raise _bad("a derived column", circle, expected, "derive one of them from stored columns alone") from None


def columns_of(expression: str) -> frozenset[str]:
    """The columns that an expression uses, spelt as it spells them.

    Raises:
        InvalidRequest: ``bad_expression``.
    """
    return frozenset(_references("the expression", expression))


def used_columns(expression: str, columns: Mapping[str, Column]) -> tuple[Column, ...]:
    """The columns that an expression uses, matched as SQL does, without regard to upper and lower case.

    Raises:
        InvalidRequest: ``bad_expression``, ``unknown_column``, ``not_deterministic`` (a word such as CURRENT_DATE).
    """
    return _used("the expression", expression, columns)


def conjuncts(condition: str | None) -> frozenset[str]:
    """The parts of a condition that AND joins, in canonical text; a superset of them only tightens it.

    Raises:
        InvalidRequest: ``bad_expression``.
    """
    if condition is None:
        return frozenset()
    return frozenset(text_of(_canonical(part)) for part in _parts(_scalar("the condition", condition)))


def _parts(tree: Node) -> Iterator[Node]:
    if tree["type"] == "CONJUNCTION_AND":
        for child in tree["children"]:
            yield from _parts(child)
    else:
        yield tree


def _canonical(tree: Node) -> Node:
    tree = without_places(tree)
    for node in walk(tree):
        match node.get("class"):
            case "COLUMN_REF":
                node["column_names"] = [name.lower() for name in node["column_names"]]
            case "FUNCTION":
                node["function_name"] = node["function_name"].lower()
                node["qualified_name"] = {"path": [name.lower() for name in node["qualified_name"]["path"]]}
            case "TYPE":
                node["type_name"] = node["type_name"].upper()
                node["qualified_name"] = {"path": [name.upper() for name in node["qualified_name"]["path"]]}
    return tree


# -- what an expression is ---------------------------------------------------------------------------------------------


def _scalar(where: str, text: str) -> Node:
    """The tree of exactly one scalar expression.

    Raises:
        InvalidRequest: ``bad_expression``.
    """
    try:
        tree = _expression_tree(text)
    except (SyntaxFault, RecursionError) as fault:
        raise _bad(where, text, "one scalar SQL expression", str(fault)) from None
    for node in walk(tree):
        kind = node.get("class")
        if kind is not None and kind not in _CLASSES:
            raise _bad(where, f"{_REFUSED.get(kind, kind)} in {text}", "an expression of the columns of one row")
        if kind == "FUNCTION" and len(node["qualified_name"]["path"]) > 1:
            name = ".".join(node["qualified_name"]["path"])
            raise _bad(where, f"{name}() in {text}", "functions by their plain names", "write f(x), not x.f()")
    return tree


@lru_cache(maxsize=256)
def _expression_tree(text: str) -> Node:
    # In parentheses it can bring no clause of its own; without them it cannot close ours. Both have to mean the same.
    inside, bare = (_single(parse(sql)) for sql in (f"SELECT (\n{text}\n)", f"SELECT \n{text}\n"))
    if inside is None or bare is None or inside != bare:
        raise SyntaxFault("it is more than one expression")
    return inside


def _single(statements: list[Node]) -> Node | None:
    """The one expression that a statement selects, or None when it does anything else."""
    (plain,) = parse("SELECT 1")
    if len(statements) != 1 or statements[0]["type"] != "SELECT_NODE":
        return None
    statement, blank = without_places(statements[0]), without_places(plain)
    chosen = statement["select_list"]
    if len(chosen) != 1 or chosen[0]["alias"] or {**statement, "select_list": []} != {**blank, "select_list": []}:
        return None
    tree: Node = chosen[0]
    return tree


def _check_functions(where: str, text: str) -> None:
    for node in walk(_scalar(where, text)):
        if node.get("class") != "FUNCTION":
            continue
        match nature(node["function_name"], len(node["arguments"])):
            case Nature.CHANGING:
                raise _changing(where, f"{node['function_name']}() in {text}")
            case Nature.UNKNOWN:
                raise _bad(where, f"{node['function_name']}() in {text}", "functions of DuckDB that make one value")
            case Nature.AGGREGATE:
                found = f"the aggregate {node['function_name']}() in {text}"
                raise _bad(where, found, "an expression of the columns of one row")


# -- columns -----------------------------------------------------------------------------------------------------------


def _references(where: str, text: str) -> Iterator[str]:
    """The columns as they are written; what a lambda binds is none."""
    waiting: list[tuple[object, frozenset[str]]] = [(_scalar(where, text), frozenset())]
    while waiting:
        value, bound = waiting.pop()
        if isinstance(value, list):
            waiting.extend((child, bound) for child in value)
        elif isinstance(value, dict):
            if value.get("class") == "COLUMN_REF":
                path = value["column_names"]
                if path[0].lower() in bound:
                    continue
                if len(path) > 1:
                    raise _bad(where, f"{'.'.join(path)} in {text}", "columns by their plain names")
                yield path[0]
            elif value.get("syntax_type") == "LAMBDA_KEYWORD":
                bound |= {name.lower() for node in walk(value["lhs"]) for name in node.get("column_names", ())}
            waiting.extend((child, bound) for child in value.values())


def _used(where: str, text: str, columns: Mapping[str, Column]) -> tuple[Column, ...]:
    exact = {name.lower(): column for name, column in columns.items()}
    used = {}
    for name in _references(where, text):
        column = exact.get(name.lower())
        if column is None and name.lower() in VALUE_WORDS:
            raise _changing(where, f"{name} in {text}")
        if column is None:
            raise InvalidRequest(
                "unknown_column",
                f"{where} names a column that the table does not have",
                found=name,
                expected=", ".join(columns),
                hint=did_you_mean(name, columns),
            )
        used[column.name] = column
    return tuple(used[name] for name in sorted(used))


def _bound_type(where: str, expression: str, used: tuple[Column, ...]) -> str:
    """The type that DuckDB gives an expression over columns of these types; nothing is computed."""
    row = ", ".join(f"CAST(NULL AS {column.type}) AS {quoted(column.name)}" for column in used) or "1"
    try:
        bound = session().sql(select(f"({expression}\n) AS value", f"(SELECT {row}) AS given"))
        return str(bound.types[0]).lower().strip('"')
    except Fault as error:
        raise _bad(where, expression, "an expression that DuckDB takes", first_line(error)) from None


def _casts(found: str, wanted: str) -> bool:
    """Whether DuckDB converts one type into the other; it says so itself only when it meets a value."""
    held = _plain(found)
    return held in _TEXTS or held == "null" or _plain(wanted) in _GROUPS.get(held, set()) | {"varchar"}


def _plain(kind: str) -> str:
    return kind.partition("(")[0]


def _bad(where: str, found: str, expected: str, hint: str | None = None) -> InvalidRequest:
    message = f"{where} has an expression that does not work"
    return InvalidRequest("bad_expression", message, found=found, expected=expected, hint=hint)


def _changing(where: str, found: str) -> InvalidRequest:
    return InvalidRequest(
        "not_deterministic",
        f"{where} could have another value each time it is computed",
        found=found,
        expected="functions that answer the same for the same row, always",
        hint="store the value as a column of its own when the row is written",
    )
