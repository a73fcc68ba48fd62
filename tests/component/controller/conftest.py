"""The cluster of the controller's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.controller.harness import Cluster, opened_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two live nodes and no store."""
    with opened_cluster(tmp_path) as opened:
        yield opened
