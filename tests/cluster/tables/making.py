"""Tables for the tier: a small one of trips, its files, and what the command line says of it."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.cluster.commands import Anew, wait_until

COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "bigint", "nullable": False},
    {"name": "city", "type": "varchar"},
    {"name": "left_at", "type": "timestamp", "role": "time"},
    {"name": "fare", "type": "double", "role": "metric"},
]
ROWS = 600


def rows(count: int = ROWS, first: int = 0) -> list[dict[str, Any]]:
    """Trips of three months, in no order of any column but the id."""
    return [
        {
            "id": number,
            "city": f"city-{number * 7 % 11}",
            "left_at": f"2013-{number % 3 + 1:02d}-{number % 27 + 1:02d} 05:00:00",
            "fare": float(number * 13 % 101),
        }
        for number in range(first, first + count)
    ]


def write_csv(path: Path, found: list[dict[str, Any]]) -> Path:
    """The rows as CSV."""
    with path.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.DictWriter(sink, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    return path


def arrow_table(found: list[dict[str, Any]]) -> pa.Table:
    """The rows with the types of `COLUMNS`."""
    table = pa.Table.from_pylist(found)
    at = table.schema.get_field_index("left_at")
    return table.set_column(at, "left_at", table.column("left_at").cast(pa.timestamp("us")))


def write_parquet(path: Path, found: list[dict[str, Any]], **options: Any) -> Path:
    """The rows as somebody else's Parquet file."""
    pq.write_table(arrow_table(found), path, **options)
    return path


@dataclass(frozen=True, slots=True)
class Trips:
    """One table of the shared cluster."""

    anew: Anew
    name: str
    folder: Path

    @classmethod
    def create(cls, anew: Anew, name: str, folder: Path, **settings: Any) -> Trips:
        """Make it, with two replicas."""
        schema = folder / f"{name}.json"
        schema.write_text(json.dumps({"columns": COLUMNS}))
        config = folder / f"{name}-config.json"
        config.write_text(json.dumps(settings))
        anew.here("table", "create", name, "--schema", str(schema), "--config", str(config))
        return cls(anew, name, folder)

    @classmethod
    def monthly(cls, anew: Anew, name: str, folder: Path, **settings: Any) -> Trips:
        """Make one whose loads become a segment per month."""
        return cls.create(anew, name, folder, time_column="left_at", bucket="month", **settings)

    def update(self, columns: list[dict[str, Any]] | None = None, **settings: Any) -> Any:
        """Change columns or settings."""
        config = self.folder / "update.json"
        config.write_text(json.dumps(settings))
        arguments = ["table", "update", self.name, "--config", str(config)]
        if columns is not None:
            schema = self.folder / "columns.json"
            schema.write_text(json.dumps({"columns": columns}))
            arguments += ["--schema", str(schema)]
        return self.anew.here(*arguments)

    def load(self, found: list[dict[str, Any]], prefix: str = "trips") -> Any:
        """Load rows of a CSV file, and wait for nodes to serve them."""
        view = self.load_unserved(found, prefix)
        self.await_served()
        return view

    def load_unserved(self, found: list[dict[str, Any]], prefix: str = "trips") -> Any:
        """Load rows of a CSV file."""
        path = write_csv(self.folder / "in.csv", found)
        return self.anew.here("table", "load", self.name, str(path), "--prefix", prefix)

    def import_rows(self, segment: str, found: list[dict[str, Any]], **options: Any) -> Any:
        """Import a Parquet file."""
        path = write_parquet(self.folder / f"{segment}.parquet", found, **options)
        view = self.anew.here("table", "import", self.name, str(path))
        self.await_served()
        return view

    def refresh(self, *options: str) -> Any:
        """Refresh, in this process's Spark session."""
        return self.anew.here("table", "refresh", self.name, *options)

    def segments(self) -> list[dict[str, Any]]:
        """The ``segments`` shape."""
        found: list[dict[str, Any]] = self.anew.here("table", "segments", self.name)
        return found

    def query(self, sql: str, *options: str) -> list[list[Any]]:
        """The rows of an answer."""
        found: list[list[Any]] = self.anew.here("table", "query", sql, *options)["rows"]
        return found

    def await_served(self) -> None:
        """Until every replica serves the build that the catalog names."""
        wait_until(self._served, f"nodes to serve {self.name}")

    def await_hashes(self, config_hash: str) -> None:
        """Until every replica serves that configuration."""
        wait_until(lambda: self.hashes() == {config_hash}, f"nodes to serve {config_hash}")

    def hashes(self) -> set[str | None]:
        """The configurations that replicas serve."""
        return {copy["config_hash"] for segment in self.segments() for copy in segment["replicas"]}

    @property
    def wanted(self) -> str:
        """The hash of the wanted configuration."""
        found: str = self.anew.here("table", "show", self.name)["config_hash"]
        return found

    def _served(self) -> bool:
        found = self.segments()
        return (
            bool(found)
            and all(
                copy["state"] == "serving" and copy["build"] == segment["build"]
                for segment in found
                for copy in segment["replicas"]
            )
            and all(len(segment["replicas"]) == 2 for segment in found)
        )
