"""Homes for commands that start and end brokers of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import ENVIRONMENT, broker_home
from tests.cluster.commands import Anew


@pytest.fixture
def anew() -> Iterator[Anew]:
    """Commands on a home without brokers; whatever they start ends with the test."""
    with broker_home() as home:
        yield Anew(home.path, ENVIRONMENT)
