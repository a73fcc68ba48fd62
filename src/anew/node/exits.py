"""How a node's process ends, for those that started it."""

from __future__ import annotations

REMOVED = 77
"""The exit code of a node that the controller has removed: its supervisor does not start it again."""
