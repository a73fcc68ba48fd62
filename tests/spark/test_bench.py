"""The benches run to their end, check what both sides made, and say what they found."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anew.core.errors import AnewError, Unreachable
from anew.spark.session import SparkSession
from bench.__main__ import BENCHES, main
from bench.brokers import check_brokers, check_connector
from bench.measuring import Claim, exponent
from tests import brokers
from tests.needs import missing


@pytest.mark.timeout(300)  # some start servers and processes of their own
@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_ends_with_its_outcome(
    spark_started: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    """With ``--json`` the last line holds the machine, versions, date, seed, repetitions, each size's figures, how they
    grow, and each claim with its target; nothing is left behind."""
    assert spark_started is not None  # the benches use the session that runs
    if BENCHES[name].check in (check_brokers, check_connector):
        for variable, value in brokers.ENVIRONMENT.items():
            monkeypatch.setenv(variable, value)
    try:
        BENCHES[name].check()
    except AnewError as error:
        missing("Kafka", " ".join(str(error).split()))
    assert main([name, "--quick", "--json", "--folder", str(tmp_path)]) == 0
    outcome = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (outcome["bench"], outcome["seed"] > 0) == (name, True)
    assert (outcome["warm_ups"], outcome["repetitions"]) == (0, 1)
    assert {"cpu", "cores", "memory_gib", "system", "versions"} == set(outcome["machine"])
    assert {"python", "java", "pyspark", "pyarrow"} <= set(outcome["machine"]["versions"])
    assert len(outcome["date"]) == len("2026-01-01")
    assert [found["size"] for found in outcome["measured"]] == list(BENCHES[name].quick_sizes)
    for found in outcome["measured"]:
        _check_size(found)
    last = outcome["measured"][-1]
    grows = len(outcome["measured"]) > 1
    assert set(outcome["growth"]) == ({*last["sides"], *last["values"]} if grows else set())
    assert [claim["name"] for claim in outcome["claims"]] == [claim.name for claim in BENCHES[name].claims]
    assert all(claim["value"] > 0 for claim in outcome["claims"] if claim["target"] != "≤ 0")
    assert list(tmp_path.iterdir()) == []


def _check_size(found: dict[str, Any]) -> None:
    assert found["sides"] or found["values"]
    for side in found["sides"].values():
        assert 0 < side["min_seconds"] <= side["median_seconds"] <= side["max_seconds"]
        assert side["per_second"] > 0
    assert all(value > 0 for value in found["values"].values())


def test_a_bench_that_the_machine_lacks_something_for_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the bench and what is missing; of several benches the others run."""

    def lacks() -> None:
        raise Unreachable("maven_missing", "there is no Maven", found="no mvn on the PATH", expected="Maven")

    monkeypatch.setitem(BENCHES, "kafka-scan", replace(BENCHES["kafka-scan"], check=lacks))
    assert main(["kafka-scan", "--quick"]) == Unreachable.exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kafka-scan: skipped, because something is missing: there is no Maven;")
    assert len(said.err.splitlines()) == 1


def test_each_of_several_benches_runs_by_itself(tmp_path: Path) -> None:
    """Each has a process of its own, and its outcome comes in its turn; one that fails leaves the others alone."""
    bench = [sys.executable, "-m", "bench"]
    several = subprocess.run([*bench, "plan", "load", "--quick", "--json"], capture_output=True, text=True, check=True)
    outcomes = [json.loads(line) for line in several.stdout.splitlines() if line.startswith("{")]
    assert [outcome["bench"] for outcome in outcomes] == ["plan", "load"]
    nowhere = ["--folder", str(tmp_path / "nowhere")]
    failed = subprocess.run([*bench, "plan", "load", "--quick", *nowhere], capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert [line for line in failed.stderr.splitlines() if "failed, exit code" in line] == [
        "plan: failed, exit code 1",
        "load: failed, exit code 1",
    ]


def test_benches_are_listed_with_their_targets(capsys: pytest.CaptureFixture[str]) -> None:
    """``--list`` names every bench, what it compares, and what it is to reach."""
    assert main(["--list"]) == 0
    told = capsys.readouterr().out
    assert all(f"{bench.name}: {bench.about}" in told for bench in BENCHES.values())
    assert "ours ÷ bare (a): target ≥ 0.65" in told
    assert "peak at the largest ÷ at the smallest size: target ≤ 1.1" in told


def test_a_cost_in_proportion_has_the_exponent_one() -> None:
    """The exponent is the slope of the logarithms: 2 where the cost is squared, 0 where it stays."""
    sizes = (10, 100, 1_000)
    assert exponent(sizes, [3 * size for size in sizes]) == pytest.approx(1)
    assert exponent(sizes, [size**2 for size in sizes]) == pytest.approx(2)
    assert exponent(sizes, [7, 7, 7]) == pytest.approx(0)


def test_a_claim_knows_whether_it_is_reached() -> None:
    """A value below the least, or above the most, does not reach the target; a claim without one says nothing."""
    least, most, none = (Claim("x", lambda _: 0, *bounds) for bounds in ((2.0,), (None, 1.1), ()))
    assert [least.reached(2.0), least.reached(1.9)] == [True, False]
    assert [most.reached(1.1), most.reached(1.2)] == [True, False]
    assert none.reached(5.0) is None
