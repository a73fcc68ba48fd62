"""Queries about many names: some at a time, because databases take a bounded number of parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import sqlalchemy as sa

_NAMED_AT_ONCE = 500


def rows_named(
    connection: sa.Connection, query: sa.Select[Any], name: sa.Column[Any], names: Collection[str]
) -> Iterator[sa.Row[Any]]:
    """The rows that a query finds for some names."""
    ordered = sorted(names)
    for first in range(0, len(ordered), _NAMED_AT_ONCE):
        yield from connection.execute(query.where(name.in_(ordered[first : first + _NAMED_AT_ONCE])))
