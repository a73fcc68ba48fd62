"""The cluster of the tests of tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.controller.tables.tables_harness import Tables, opened_tables


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    """Two live nodes and no table."""
    with opened_tables(tmp_path) as opened:
        yield opened
