"""The expressions of table configurations: what is taken, what is refused, and as what."""

from __future__ import annotations

import pytest

from anew.core.errors import InvalidRequest
from anew.sql.expressions import check_expressions, columns_of, conjuncts, derived_order
from tests.component.sql.tables import config


@pytest.mark.parametrize(
    "expression",
    [
        "a + 1",
        "A % 7 -- in any case",
        "f / 2",
        "coalesce(a, 1)",
        "CASE WHEN a > 1 THEN 2 END",
        "extract(year FROM ts)",
        "epoch_ms(ts)",
        "date_diff('day', d, ts)",
        "a IN (1, 2) AND b LIKE 'x%' AND b SIMILAR TO 'y' AND NOT flag",
        "nullif(a, 1)",
        "length(split_part(b, ',', 1))",
        "list_sum(list_transform(string_split(b, ','), lambda part: part::INT))",
        "TRY_CAST(b AS INTEGER)",
        "NULL",
    ],
)
def test_plain_expressions_are_taken(expression: str) -> None:
    """Scalar expressions of the columns of one row pass, macros and lambdas among them."""
    check_expressions(config({"x": expression}))


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1) , (2",
        "a) + (a",
        "1) FROM (SELECT 1",
        "1) UNION SELECT (2",
        "a; SELECT 1",
        "a;",
        "a, a",
        "a AS q",
        "a ORDER BY 1",
        "/* never closed",
        "(SELECT 1)",
        "a IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "count(*)",
        "sum(a)",
        "first(a)",
        "geomean(a)",
        "sum(a) OVER ()",
        "row_number() OVER ()",
        "*",
        "COLUMNS('a')",
        "?",
        "$1",
        "#1",
        "DEFAULT",
        "unnest([a])",
        "generate_subscripts([a], 1)",
        "b.upper()",
        "t.a",
        "nosuchfunction(a)",
        "a::nosuchtype",
        "a + b",
        "ts",
        "range(a)",
        "INTERVAL 1 DAY",
    ],
)
def test_what_is_no_scalar_expression_of_the_type_is_refused(expression: str) -> None:
    """Several expressions, clauses, subqueries, aggregates and wrong types are `bad_expression`."""
    with pytest.raises(InvalidRequest) as refused:
        check_expressions(config({"x": expression}))
    assert refused.value.code == "bad_expression"


@pytest.mark.parametrize(
    "expression",
    [
        "now()::VARCHAR",
        "today()",
        "current_date",
        "CURRENT_TIMESTAMP",
        "current_localtimestamp()",
        "current_user",
        "age(ts)",
        "ago(INTERVAL 1 DAY)",
        "random()",
        "uuid()",
        "gen_random_uuid()",
        "nextval('s')",
        "getenv('HOME')",
        "getvariable('x')",
        "current_setting('threads')",
        "read_text('/etc/passwd')",
        "read_blob('x')",
        "version()",
        "hash(a)",
        "txid_current()",
        "upper(CASE WHEN a > 1 THEN uuid()::VARCHAR END)",
    ],
)
def test_what_could_differ_between_two_runs_is_refused(expression: str) -> None:
    """Clocks, chance, settings, files and what changes with the engine are `not_deterministic`, in filters too."""
    for given in (config({"y": expression}), config({}, row_filter=f"({expression}) IS NULL")):
        with pytest.raises(InvalidRequest) as refused:
            check_expressions(given)
        assert refused.value.code == "not_deterministic"


def test_an_unknown_column_is_named_with_the_nearest() -> None:
    """An unknown column is refused with the name that it may have meant."""
    with pytest.raises(InvalidRequest) as refused:
        check_expressions(config({"x": "a + flagg::INT"}))
    assert (refused.value.code, refused.value.found, refused.value.hint) == (
        "unknown_column",
        "flagg",
        "did you mean flag?",
    )


@pytest.mark.parametrize("condition", ["a", "b", "NULL", "sum(a) > 1", "(SELECT true)"])
def test_a_row_filter_is_a_condition(condition: str) -> None:
    """A row filter that is not boolean, or no scalar, is refused."""
    with pytest.raises(InvalidRequest) as refused:
        check_expressions(config({}, row_filter=condition))
    assert refused.value.code == "bad_expression"


def test_derived_columns_are_ordered_by_their_needs() -> None:
    """A derived column comes after those that it uses, however they spell one another."""
    order = derived_order(config({"x": "length(Y)", "y": "'v' || Z", "z": "d"}))
    assert order == ("z", "y", "x")


@pytest.mark.parametrize(
    ("derived", "circle"),
    [({"x": "X + 1"}, {"x"}), ({"x": "length(y)", "y": "z", "z": "d + x"}, {"x", "y", "z"})],
)
def test_a_circle_of_derived_columns_is_named(derived: dict[str, str], circle: set[str]) -> None:
    """Derived columns that need themselves are refused, with the way around."""
    with pytest.raises(InvalidRequest) as refused:
        check_expressions(config(derived))
    assert refused.value.code == "bad_expression"
    assert set(refused.value.found.split(" → ")) == circle


def test_the_columns_of_an_expression_are_those_it_names() -> None:
    """Columns are named once; what a lambda binds is none of them."""
    assert columns_of("a + A2 * list_sum(list_transform([b], lambda a2: a2 + c))") == {"a", "A2", "b", "c"}


def test_a_condition_is_tightened_by_more_parts() -> None:
    """Parts joined by AND compare without regard to order, spaces, parentheses and the case of names."""
    old = conjuncts("a > 1 AND d >= DATE '2013-01-01'")
    assert conjuncts("(D >= date  '2013-01-01' and b = 'X')and A>1") > old
    assert not conjuncts("a > 1 OR d >= DATE '2013-01-01'") >= old
    assert not conjuncts("a > 2 AND d >= DATE '2013-01-01'") >= old
    assert conjuncts("b = 'x'") != conjuncts("b = 'X'")
    assert conjuncts(None) == frozenset()
