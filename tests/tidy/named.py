"""The tests that documents name."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.source import ROOT, module

_CONTRACTS = ROOT / "src" / "anew" / "testing"


def missing(tests: list[str]) -> list[str]:
    """Those of some tests, ``tests/FOLDER/FILE.py::NAME``, that are not there."""
    files = {test.partition("::")[0] for test in tests}
    there = {f"{file}::{name}" for file in files if (ROOT / file).is_file() for name in tests_of(ROOT / file)}
    return [test for test in tests if test not in there]


def tests_of(path: Path) -> set[str]:
    """The tests of a file: functions, and ``Class::method`` for those of its classes, of a contract or their own."""
    contracts = [node for file in _CONTRACTS.glob("*_contract.py") for node in _classes(file)]
    methods: dict[str, set[str]] = {}
    # A class comes after those that it builds on.
    for node in [*contracts, *_classes(path)]:
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        own = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
        methods[node.name] = own.union(*(methods.get(base, set()) for base in bases))
    functions = {node.name for node in _tree(path).body if isinstance(node, ast.FunctionDef)}
    return functions | {f"{node.name}::{name}" for node in _classes(path) for name in methods[node.name]}


def _classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in _tree(path).body if isinstance(node, ast.ClassDef)]


def _tree(path: Path) -> ast.Module:
    return module(path).tree
