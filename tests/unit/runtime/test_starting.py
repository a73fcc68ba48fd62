"""How processes come up: what they import is not looked through for garbage, what they leave out is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

_STARTED = """
import gc, sys
from anew.runtime.starting import imports_kept, leave_out
leave_out("pandas")
with imports_kept():
    assert not gc.isenabled()
    import {module}
assert gc.isenabled()
import pyarrow as pa
assert pa.array([1, 2]).to_pylist() == [1, 2]
print("pandas" in sys.modules, gc.get_freeze_count() > 10_000)
"""


@pytest.mark.parametrize("module", ["anew.controller.process", "anew.node.process"])
def test_a_process_of_the_cluster_comes_up_without_pandas(module: str) -> None:
    """Arrow works without it, although it is installed here; what was imported is out of the collector's way."""
    started = subprocess.run(
        [sys.executable, "-c", _STARTED.format(module=module)], capture_output=True, text=True, check=False
    )
    assert started.stdout.split() == ["False", "True"], started.stderr


def test_what_is_left_out_is_missing_and_the_rest_is_not() -> None:
    """The error is the one that a package gives that is not installed."""
    script = """
from anew.runtime.starting import leave_out
leave_out("json")
import csv
try:
    import json
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    started = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert started.stdout == "json json is left out of this process\n", started.stderr
