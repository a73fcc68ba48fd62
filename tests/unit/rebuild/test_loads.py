"""The plan of a load: what its prefix decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.api.tables.requests import TableSnapshot
from anew.cli.main import run_command
from anew.core.tables.plan import TablePlan
from anew.rebuild.inputs import PushRequest
from anew.rebuild.tables.load import plan_load
from anew.testing.clock import NOON_MS
from anew.testing.table_builders import a_segment, a_table


def _plan(folder: Path, prefix: str | None, *, now_ms: int = NOON_MS) -> TablePlan:
    path = folder / "in.csv"
    path.write_text("id\n1\n", encoding="utf-8")
    snapshot = TableSnapshot(
        table=a_table(), deep_store=str(folder), segments=(a_segment("p_all_0", prefix="p"),), now_ms=now_ms
    )
    return plan_load(snapshot, PushRequest(inputs=(str(path),), key=()), prefix)


def test_a_load_without_a_prefix_adds_and_says_so(tmp_path: Path) -> None:
    """Each gets a fresh prefix and replaces nothing, as its plan tells; with a prefix it replaces that one's."""
    first, again = _plan(tmp_path, None), _plan(tmp_path, None, now_ms=NOON_MS + 1)
    prefixes = {plan.source.prefix for plan in (first, again) if plan.source is not None}
    assert (len(prefixes), first.replaces, again.replaces) == (2, (), ())
    assert any("added to what is there" in why for why in first.why)
    named = _plan(tmp_path, "p")
    assert (named.replaces, any("added" in why for why in named.why)) == (("p_all_0",), False)


def test_the_help_says_what_a_load_without_a_prefix_does(capsys: pytest.CaptureFixture[str]) -> None:
    """That the same files again add their rows again is said where the option is."""
    assert run_command(["table", "load", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "a fresh one for each load, so that the same files again add their rows again" in words
