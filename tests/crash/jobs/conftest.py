"""Histories have a cluster of their own: that of the tier's other tests is left alone."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def undisturbed() -> None:
    """Nothing is to be calm before a history; in place of the tier's fixture, which starts its cluster."""
