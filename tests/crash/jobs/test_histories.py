"""Ten histories of stream jobs on real Spark, beside one another in one cluster; `make soak` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.jobs.drawing import POINTS
from tests.crash.jobs.place import running_place
from tests.crash.jobs.telling import tell_all

SEEDS = range(10)


@pytest.mark.timeout(1_500)
@pytest.mark.case("streams:A4", "streams:B2", "streams:B7", "streams:C7", "streams:E1", "streams:E3", "streams:E7")
@pytest.mark.case("streams:F1", "streams:N1", "streams:N8", "rules:R9", "rules:R20")
def test_what_readers_see_is_what_the_oracle_says(spark: SparkSession, tmp_path: Path) -> None:
    """Keys, values and times, in the end and in each read meanwhile, whatever dies, is rewound, cut over, repushed."""
    with running_place(tmp_path, spark, {}) as place:
        found = tell_all(SEEDS, place)
    broken = found.broken()
    assert not broken, "\n\n".join(broken)
    assert len(found.of) == len(SEEDS)
    counts = found.counts
    happened = (
        "cut_over",
        "cut_back",
        "reclaim",
        "deploy",
        "rest",
        "grow",
        "repush",
        "refuse",
        "start newest",
        "start offsets",
    )
    missing = [what for what in (*happened, *(f"kill {point}" for point in POINTS)) if not counts[what]]
    assert not missing, counts
    # Readers read all the time: of stores keys and scans, of topics what counts.
    assert counts["reads"] > 100 * len(SEEDS), counts
    assert counts["records of topics"] > 100, counts
