"""Tiers: a test's folder is its marker, and the cheap tiers run first."""

from __future__ import annotations

from pathlib import Path

import pytest

TIERS = ("unit", "property", "tidy", "component", "spark", "cluster")
_HERE = Path(__file__).parent


def _tier(item: pytest.Item) -> str:
    tier = item.path.relative_to(_HERE).parts[0]
    if tier not in TIERS:
        raise pytest.UsageError(f"{item.nodeid}: found outside of the tiers; expected a folder of {', '.join(TIERS)}")
    return tier


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its folder and put the tiers in order, keeping the order within each."""
    for item in items:
        item.add_marker(_tier(item))
    items.sort(key=lambda item: TIERS.index(_tier(item)))
