"""The tables demo's data: each flight with the weather at its start and the plane that flew it, as one CSV file.

Also an account of it by month, made with plain ``csv`` and sums, so that a check against it means something.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from anew.demo.flights import all_flights, data_file

TABLE = "trips"
_MISSING = "NA"
_OF_FLIGHT = ("carrier", "flight", "origin", "dest", "tailnum", "dep_delay", "arr_delay", "air_time", "distance")
_OF_WEATHER = ("temp", "wind_speed", "precip", "visib")
_OF_PLANE = ("manufacturer", "model", "seats")

_TYPES = {
    **dict.fromkeys(("carrier", "origin", "dest", "tailnum", "manufacturer", "model"), "varchar"),
    **dict.fromkeys(("flight", "seats"), "integer"),
    **dict.fromkeys(("dep_delay", "arr_delay", "air_time", "distance"), "double"),
    **dict.fromkeys(_OF_WEATHER, "double"),
}

COLUMNS: list[dict[str, Any]] = [
    {"name": "left_at", "type": "timestamp", "role": "time", "nullable": False},
    *({"name": name, "type": _TYPES[name]} for name in (*_OF_FLIGHT, *_OF_WEATHER, *_OF_PLANE)),
]

CHANGED: list[dict[str, Any]] = [
    *({**column, "type": "bigint"} if column["name"] == "distance" else column for column in COLUMNS),
    {"name": "miles_per_hour", "type": "double", "role": "metric"},
]
"""The columns after the change: another type, and one that is computed."""


def write_trips(target: Path, every: int) -> int:
    """Write the trips as CSV; returns how many.

    Args:
        target: The file.
        every: One flight of so many is taken.

    Raises:
        Unreachable: ``demo_data_missing``.
    """
    weather = {(row["origin"], row["time_hour"]): row for row in _rows("weather.csv")}
    planes = {row["tailnum"]: row for row in _rows("planes.csv")}
    count = 0
    with target.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow([column["name"] for column in COLUMNS])
        for flight in all_flights(every):
            seen, plane = weather.get((flight["origin"], flight["time_hour"]), {}), planes.get(flight["tailnum"], {})
            writer.writerow(
                [
                    flight["time_hour"],
                    *(flight[name] for name in _OF_FLIGHT),
                    *(seen.get(name, _MISSING) for name in _OF_WEATHER),
                    *(plane.get(name, _MISSING) for name in _OF_PLANE),
                ]
            )
            count += 1
    return count


def months(trips: Path) -> dict[str, tuple[int, int]]:
    """Month → how many trips, and how many miles together."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    with trips.open(encoding="utf-8", newline="") as source:
        for row in csv.DictReader(source):
            totals = found[row["left_at"][:7]]
            totals[0] += 1
            totals[1] += int(row["distance"])
    return {month: (count, miles) for month, (count, miles) in sorted(found.items())}


def write_schema(target: Path, columns: list[dict[str, Any]]) -> Path:
    """The columns as a schema file."""
    target.write_text(json.dumps({"columns": columns}, indent=1), encoding="utf-8")
    return target


def _rows(name: str) -> list[dict[str, str]]:
    with data_file(name).open(encoding="utf-8", newline="") as source:
        return list(csv.DictReader(source))
