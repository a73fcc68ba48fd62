"""The guide's scenario table: 6 cases, 3 modes, on real nodes, with real reloads and a real refresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import Anew
from tests.cluster.tables.making import Trips, rows

_MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "reloadOnly": ("--reload-only",),
    "forceReload": ("--reload-only", "--force-reload"),
}
_NOTHING, _REFRESHED, _STAMPED, _DRIFT = "not refreshed", "refreshed", "stamped", "drift"

_TABLE: dict[str, dict[str, str]] = {
    "B1": {"default": _STAMPED, "reloadOnly": _DRIFT, "forceReload": _STAMPED},
    "B2": {"default": _REFRESHED, "reloadOnly": _DRIFT, "forceReload": _REFRESHED},
    "B3": {"default": _REFRESHED, "reloadOnly": _REFRESHED, "forceReload": _REFRESHED},
    "B4": {"default": _NOTHING, "reloadOnly": _NOTHING, "forceReload": _NOTHING},
    "B5": {"default": _REFRESHED, "reloadOnly": _DRIFT, "forceReload": _REFRESHED},
    "B6": {"default": _REFRESHED, "reloadOnly": _REFRESHED, "forceReload": _REFRESHED},
}
"""Imported segments have no hash, so that reloadOnly reports those that nodes serve right as drift (B1, B2)."""

_CELLS = [
    pytest.param(case, mode, marks=pytest.mark.case(f"tables:{case}"), id=f"{case}-{mode}")
    for case in _TABLE
    for mode in _MODES
]


def _prepared(anew: Anew, case: str, name: str, folder: Path) -> Trips:
    """A table of one segment in the state that the case describes."""
    trips = Trips.create(anew, name, folder)
    if case in ("B1", "B2", "B3"):
        trips.import_rows("old", rows(), compression="zstd", write_page_index=True)
    else:
        trips.load(rows())
    if case in ("B2", "B3", "B5", "B6"):
        trips.update(sort=["city"])
    if case in ("B2", "B5"):
        anew.here("table", "reload", name)
        trips.await_hashes(trips.wanted)
    return trips


@pytest.mark.parametrize(("case", "mode"), _CELLS)
def test_a_cell_of_the_scenario_table(anew: Anew, tmp_path: Path, case: str, mode: str) -> None:
    """A refresh does once what the table says, and the next one of that mode nothing more (case B7)."""
    name = f"scenario_{case.lower()}_{mode.lower()}"
    trips = _prepared(anew, case, name, tmp_path)
    before = trips.segments()[0]
    assert before["stale"] is (case != "B4")
    done = trips.refresh(*_MODES[mode])
    assert _outcome(done) == _TABLE[case][mode]
    after = trips.segments()[0]
    refreshed = _TABLE[case][mode] == _REFRESHED
    assert (after["build"] != before["build"]) is refreshed
    assert after["stale"] is (_TABLE[case][mode] == _DRIFT)
    trips.await_served()
    again = trips.refresh(*_MODES[mode])
    assert _outcome(again) == (_DRIFT if _TABLE[case][mode] == _DRIFT else _NOTHING)
    assert trips.query(f"SELECT count(*), sum(id), sum(fare) FROM {name}") == [
        [len(rows()), sum(row["id"] for row in rows()), sum(row["fare"] for row in rows())]
    ]


def _outcome(done: dict[str, Any]) -> str:
    if done["refreshed"]:
        return _REFRESHED
    if done["stamped"]:
        return _STAMPED
    return _DRIFT if done["drift"] else _NOTHING
