"""What a command sets for its whole process does not reach the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Logging that a command directed to its stderr is directed back: that stream is closed with its test."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    if before is not None:
        structlog.configure(**before)
