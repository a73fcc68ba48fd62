"""What the checks read is let go of after the last of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tidy.source import forget


@pytest.fixture(scope="package", autouse=True)
def _forgotten_afterwards() -> Iterator[None]:
    """The syntax trees of the whole project."""
    yield
    forget()
