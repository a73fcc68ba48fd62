"""What the streams demo knows of flights without any of this project's code paths: pandas alone.

Also the classifier, as the file that is submitted: it has a fault, and the corrected one differs in one parameter.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import pandas as pd

from anew.demo.flights import DECEMBER, KEY, data_file

FAULTY_MINUTES, RIGHT_MINUTES = 15, 60
"""From which delay on a flight is severely late: as it was taken for, and as it should be."""
EVENT_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Departure",
    "fields": [{"name": "dep_delay", "type": ["null", "double"]}],
}
CLASS_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "DelayClass",
    "fields": [{"name": "class", "type": "string"}],
}
CODE = '''"""Sorts departures by how late they were."""

from pyspark.sql import functions as F


def delay_class(flights, *, severe_minutes: float):
    delay = F.col("value.dep_delay")
    kind = (
        F.when(delay.isNull(), "cancelled")
        .when(delay >= severe_minutes, "severe")
        .when(delay > 0, "late")
        .otherwise("on time")
    )
    return flights.select("key", F.struct(kind.alias("class")).alias("value"), "deleted", "timestamp")
'''

Flight = tuple[dict[str, Any], float | None]
"""The key, and the delay in minutes; None: it never left."""


def departures(every: int) -> tuple[list[Flight], list[Flight]]:
    """The flights of January to November, and those of December; one of so many."""
    frame = _frame(every)
    december = frame["month"] == int(DECEMBER)
    return list(_flights(frame[~december])), list(_flights(frame[december]))


def classes(every: int, severe_minutes: int) -> dict[tuple[Any, ...], str]:
    """Key → class of each flight, computed in one piece."""
    frame = _frame(every)
    delay = frame["dep_delay"]
    kind = pd.Series("on time", index=frame.index)
    kind[delay > 0] = "late"
    kind[delay >= severe_minutes] = "severe"
    kind[delay.isna()] = "cancelled"
    return dict(zip(frame[list(KEY)].itertuples(index=False, name=None), kind, strict=True))


def _frame(every: int) -> pd.DataFrame:
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        content = archive.read("flights.csv")
    frame = pd.read_csv(io.BytesIO(content), usecols=[*KEY, "month", "dep_delay"])
    return frame.iloc[::every]


def _flights(frame: pd.DataFrame) -> Iterator[Flight]:
    for carrier, flight, origin, time_hour, delay in frame[[*KEY, "dep_delay"]].itertuples(index=False, name=None):
        key = {"carrier": carrier, "flight": int(flight), "origin": origin, "time_hour": time_hour}
        yield key, None if pd.isna(delay) else float(delay)
