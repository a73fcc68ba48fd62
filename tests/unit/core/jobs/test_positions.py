"""Positions that were edited are read back, or refused with the place that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.errors import InvalidRequest
from anew.core.jobs.positions import positions_of

_SHOWN = {"flights": {"0": {"offset": 12, "time_ms": 5, "lag": 3}, "1": {"offset": 0, "time_ms": None, "lag": 0}}}


@pytest.mark.case("streams:A2")
@pytest.mark.parametrize(
    "document",
    [
        {"job": "j", "checkpoints": [{"generation": 1, "batch": 3, "positions": _SHOWN}]},
        {"generation": 1, "positions": _SHOWN},
        _SHOWN,
        {"flights": {"0": 12, "1": 0}},
    ],
)
def test_what_is_shown_is_accepted(document: Any) -> None:
    """Verbatim, or what is left when a person cuts it down to the offsets."""
    assert positions_of(document) == {"flights": {0: 12, 1: 0}}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"checkpoints": [{"positions": _SHOWN}, {"positions": _SHOWN}]}, "which_generation"),
        ({"checkpoints": []}, "which_generation"),
        ([], "bad_positions"),
        ({}, "bad_positions"),
        ({"flights": 3}, "bad_positions"),
        ({"flights": {"x": 3}}, "bad_positions"),
        ({"flights": {"0": -1}}, "bad_positions"),
        ({"flights": {"0": {"lag": 1}}}, "bad_positions"),
        ({"flights": {"0": True}}, "bad_positions"),
    ],
)
def test_anything_else_is_refused(document: Any, code: str) -> None:
    """Nothing is guessed of a file that was cut too far."""
    with pytest.raises(InvalidRequest) as caught:
        positions_of(document)
    assert caught.value.code == code
