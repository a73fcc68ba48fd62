"""Queries about many names: some at a time, because databases take a bounded number of parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

_NAMED_AT_ONCE = 500


def rows_named(
    connection: sa.Connection, query: sa.Select[Any], name: sa.Column[Any], names: Collection[str]
) -> Iterator[sa.Row[Any]]:
    """The rows that a query finds for some names."""
    for some in in_parts(sorted(names)):
        yield from connection.execute(query.where(name.in_(some)))


def in_parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Names, as many at a time as one query may have."""
    for first in range(0, len(names), _NAMED_AT_ONCE):
        yield names[first : first + _NAMED_AT_ONCE]
