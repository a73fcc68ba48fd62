"""Every row of docs/failure-modes.md names tests, and these are there."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.failure_modes import rows

_ROOT = Path(__file__).parents[2]
_CONTRACTS = _ROOT / "src" / "anew" / "testing"


def _tests_of(path: Path) -> set[str]:
    """The tests of a file: functions, and ``Class::method`` for those of its classes, of a contract or their own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inherited = {
        node.name: {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
        for file in _CONTRACTS.glob("*_contract.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            found |= {f"{node.name}::{name}" for name in names.union(*(inherited.get(base, set()) for base in bases))}
    return found


def test_each_failure_mode_has_its_test() -> None:
    """A row without a test, or with one that is not there, is named."""
    listed = list(rows())
    assert len(listed) > 50
    assert [row.what for row in listed if not row.tests] == []
    files = {test.partition("::")[0] for row in listed for test in row.tests}
    there = {f"{file}::{name}" for file in files if (_ROOT / file).is_file() for name in _tests_of(_ROOT / file)}
    assert [test for row in listed for test in row.tests if test not in there] == []
