"""The benches run to their end and say what they found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anew.spark.session import SparkSession
from bench.__main__ import main


@pytest.mark.parametrize(
    ("name", "ratios"),
    [
        (
            "repush",
            {
                "ours_to_noop",
                "ours_to_parquet",
                "copartitioned_4_to_4_to_parquet",
                "copartitioned_4_to_8_to_parquet",
            },
        ),
        ("load", {"sorted_to_records"}),
    ],
)
def test_a_bench_ends_with_its_outcome(
    spark_started: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, ratios: set[str]
) -> None:
    """With ``--json`` the last line holds the bench's name, figures with machine, cores and versions, and ratios."""
    assert spark_started is not None  # the repush bench uses the session that runs
    assert main([name, "--records", "4000", "--json", "--folder", str(tmp_path)]) == 0
    outcome = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(outcome) == {"bench", "figures", "ratios"}
    assert outcome["bench"] == name
    assert {"records", "machine", "cores", "versions"} <= set(outcome["figures"])
    assert set(outcome["ratios"]) == ratios
    assert all(ratio > 0 for ratio in outcome["ratios"].values())
    assert list(tmp_path.iterdir()) == []
