"""Every row of docs/failure-modes.md names tests, and these are there."""

from __future__ import annotations

from tests.failure_modes import rows
from tests.tidy.named import missing


def test_each_failure_mode_has_its_test() -> None:
    """A row without a test, or with one that is not there, is named."""
    listed = list(rows())
    assert len(listed) > 50
    assert [row.what for row in listed if not row.tests] == []
    assert missing([test for row in listed for test in row.tests]) == []
