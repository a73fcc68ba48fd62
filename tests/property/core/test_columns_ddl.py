"""Columns of JSON values: any text is columns, or is refused; what can be written is read."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from anew.core.errors import InvalidRequest
from anew.core.topics.ddl import parse_columns_ddl

_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)
_SIMPLE = st.sampled_from(["STRING", "int", "BigInt", "DECIMAL(10,2)", "decimal( 5 )", "timestamp", "binary"])


def _struct(of: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.dictionaries(_NAMES.map(str.lower), of, min_size=1, max_size=3)
    return fields.map(lambda found: f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in found.items())}>")


_TYPES = st.recursive(
    _SIMPLE,
    lambda of: of.map(lambda kind: f"ARRAY<{kind}>") | _struct(of),
    max_leaves=6,
)


@given(st.text(max_size=60) | st.text("a`<>(),: STRINGARYnotul09", max_size=60))
def test_any_text_is_columns_or_is_refused(text: str) -> None:
    """Never another error, and always a name at least."""
    with suppress(InvalidRequest):
        assert parse_columns_ddl(text)


@given(st.dictionaries(_NAMES.map(str.lower), st.tuples(_TYPES, st.booleans()), min_size=1, max_size=5))
def test_what_is_written_is_read(columns: dict[str, tuple[str, bool]]) -> None:
    """Types in types, with and without NOT NULL."""
    written = (f"{name} {kind}{' NOT NULL' if required else ''}" for name, (kind, required) in columns.items())
    assert parse_columns_ddl(", ".join(written)) == tuple(columns)
