"""The demo of tables plays on real data, and every check passes; `test_scenarios` has the scenario table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.commands import Anew
from tests.ports import port_of


@pytest.mark.timeout(600)
def test_the_demo_of_tables_plays(tmp_path: Path) -> None:
    """One flight of eight: segments are refreshed once, no query fails, a fresh node rewrites nothing."""
    anew = Anew(tmp_path / "home", {"ANEW_PORT": str(port_of("tables demo"))})
    summary = anew.done("demo", "tables", "--every", "8", "--no-scenarios")
    assert summary["passed"] is True
    assert (summary["segments"], summary["refreshed"], summary["drift"]) == (13, 13, 13)
    assert summary["reader"]["asked"] > 10
    assert not anew.home.exists()
