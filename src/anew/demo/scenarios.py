"""The guide's scenario table, played on small tables: what a refresh does in each case and mode, with real nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anew.demo.stage import Stage, wait_for

_ROWS = 200
_MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "reloadOnly": ("--reload-only",),
    "forceReload": ("--reload-only", "--force-reload"),
}
_COLUMNS = [{"name": "id", "type": "bigint"}, {"name": "city", "type": "varchar"}]
_REFRESH, _NOTHING, _DRIFT = "refresh", "–", "drift"


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table.

    Attributes:
        stamped: Whether its segment was made here, and not imported.
        updated: Whether the table's configuration changed since.
        reloaded: Whether nodes made their copies again.
        expected: What each mode does.
    """

    name: str
    text: str
    stamped: bool
    updated: bool
    reloaded: bool
    expected: tuple[str, str, str]


_CASES = (
    Case("B1", "imported; table as it was", False, False, False, (_REFRESH, _DRIFT, _REFRESH)),
    Case("B2", "imported; updated, nodes reloaded", False, True, True, (_REFRESH, _DRIFT, _REFRESH)),
    Case("B3", "imported; updated", False, True, False, (_REFRESH, _REFRESH, _REFRESH)),
    Case("B4", "made by anew; table as it was", True, False, False, (_NOTHING, _NOTHING, _NOTHING)),
    Case("B5", "made by anew; updated, nodes reloaded", True, True, True, (_REFRESH, _DRIFT, _REFRESH)),
    Case("B6", "made by anew; updated", True, True, False, (_REFRESH, _REFRESH, _REFRESH)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What was seen in one case."""

    case: Case
    found: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether each mode did what the guide's table says."""
        return self.found == self.case.expected

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"case": self.case.name, **dict(zip(_MODES, self.found, strict=True)), "right": self.right}

    @staticmethod
    def lines(rows: list[Row]) -> list[str]:
        """The table for people."""
        head = f"{'case':<44}" + "".join(f"{mode:<13}" for mode in _MODES)
        return [
            head,
            *(f"{row.case.name} {row.case.text:<41}" + "".join(f"{f:<13}" for f in row.found) for row in rows),
        ]


def play_scenarios(stage: Stage, data: Path) -> list[Row]:
    """Bring a small table into each case's state, and ask what each mode would do.

    Raises:
        Failed: A command did not do what it should.
    """
    schema = data / "scenarios.json"
    schema.write_text(json.dumps({"columns": _COLUMNS}))
    rows = data / "rows.csv"
    rows.write_text("id,city\n" + "".join(f"{number},city-{number % 7}\n" for number in range(_ROWS)))
    made = _made_file(stage, schema, rows)
    return [_played(stage, case, schema, rows, made) for case in _CASES]


def _made_file(stage: Stage, schema: Path, rows: Path) -> Path:
    """A Parquet file for the imports: a segment of a table like the others."""
    stage.anew("table", "create", "scenario_source", "--schema", str(schema))
    stage.anew("table", "load", "scenario_source", str(rows), "--prefix", "old")
    (segment,) = stage.quietly("table", "segments", "scenario_source")
    return stage.home / "deepstore" / "dc-0" / str(segment["path"])


def _played(stage: Stage, case: Case, schema: Path, rows: Path, made: Path) -> Row:
    name = f"scenario_{case.name.lower()}"
    stage.quietly("table", "create", name, "--schema", str(schema))
    if case.stamped:
        stage.quietly("table", "load", name, str(rows), "--prefix", "old")
    else:
        stage.quietly("table", "import", name, str(made))
    _await(stage, name, lambda copy, segment: bool(copy["build"] == segment["build"]))
    if case.updated:
        stage.quietly("table", "update", name, "--set", "sort=city")
    if case.reloaded:
        stage.quietly("table", "reload", name)
        _await(stage, name, lambda copy, segment: bool(copy["config_hash"] == segment["wanted_hash"]))
    found = tuple(_seen(stage.quietly("table", "refresh", name, *flags, "--dry-run")) for flags in _MODES.values())
    stage.say(f"   {case.name} {case.text}: {', '.join(found)}")
    return Row(case, found)


def _seen(plan: dict[str, Any]) -> str:
    if plan["segments"]:
        return _REFRESH
    return _DRIFT if plan["drift"] else _NOTHING


def _await(stage: Stage, name: str, holds: Any) -> None:
    def done() -> bool:
        found = stage.quietly("table", "segments", name)
        return all(
            copy["state"] == "serving" and holds(copy, segment) for segment in found for copy in segment["replicas"]
        ) and all(segment["replicas"] for segment in found)

    wait_for(done, f"nodes to serve {name}")
