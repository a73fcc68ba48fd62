"""How processes come up: what they import is not looked through for garbage, what they leave out is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

_STARTED = """
import gc, sys
from anew.runtime.starting import imports_kept, keep_pandas_out
keep_pandas_out()
with imports_kept():
    assert not gc.isenabled()
    import {module}
assert gc.isenabled()
import pyarrow as pa
assert pa.array([1, 2]).to_pylist() == [1, 2]
print("pandas" in sys.modules, gc.get_freeze_count() > 10_000)
import pandas
print(pa.table({{"a": [1, 2]}}).to_pandas()["a"].sum(), pa.array(pandas.Series([3])).to_pylist())
"""


@pytest.mark.parametrize("module", ["anew.controller.process", "anew.node.process"])
def test_a_process_of_the_cluster_comes_up_without_pandas(module: str) -> None:
    """What was imported is out of the collector's way; whoever wants pandas, a partitioner of somebody's, gets it."""
    started = subprocess.run(
        [sys.executable, "-c", _STARTED.format(module=module)], capture_output=True, text=True, check=False
    )
    assert started.stdout.splitlines() == ["False True", "3 [3]"], started.stderr


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("anew.runtime.supervise", ("pyarrow", "numpy", "httpx", "sqlalchemy")),
        ("anew.cli.main", ("pyarrow", "numpy", "httpx")),
        ("anew.cli.kafka", ("pyarrow", "numpy", "httpx", "confluent_kafka")),
        ("anew.cli.stores.commands", ("pandas", "sqlalchemy", "fastapi", "pyspark")),
    ],
)
def test_what_starts_others_does_without_what_they_need(module: str, left_out: tuple[str, ...]) -> None:
    """A supervisor waits and a command asks: neither spends a start on libraries of controller, node or driver."""
    program = f"import sys, {module}; print([name for name in {left_out!r} if name in sys.modules])"
    started = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert started.stdout.strip() == "[]", started.stderr
