"""The project's own files, read and parsed for the checks beside this module."""

from __future__ import annotations

import ast
import gc
import io
import os
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE_FOLDERS = ("src", "tests", "bench")
_NOT_OURS = {".anew", ".git", ".venv", "__pycache__", "build", "dist", "metastore_db", "spark-warehouse"} | {
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: where it lies below the root, its text and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    def at(self, node: ast.expr | ast.stmt | int) -> str:
        """``path:line`` of a node or a line number, as an editor opens it."""
        return f"{self.path}:{node if isinstance(node, int) else node.lineno}"

    def functions(self) -> Iterator[Function]:
        """All functions and methods, however deep."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    def comments(self, words: str) -> Iterator[tuple[int, str]]:
        """Each comment that has these words, with its line number."""
        if words not in self.text:
            return
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT and words in token.string:
                yield token.start[0], token.string


def modules(*folders: str) -> list[Module]:
    """The Python files below the given folders, in path order; at least one, so that no check is empty."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert paths, f"no Python files in {folders}"
    # Nothing of millions of nodes is garbage: looking for some takes as long as parsing.
    gc.disable()
    try:
        return [module(path) for path in paths]
    finally:
        gc.enable()


@cache
def module(path: Path) -> Module:
    """One Python file, parsed once."""
    text = path.read_text(encoding="utf-8")
    return Module(path.relative_to(ROOT), text, ast.parse(text))


def forget() -> None:
    """Let go of all trees: the collector would walk through them in all tests that come after."""
    module.cache_clear()


@cache
def text_files() -> tuple[tuple[Path, str], ...]:
    """Every text file that belongs to the project, with its content."""
    found = []
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(set(names) - _NOT_OURS)
        for path in (Path(folder) / name for name in sorted(files)):
            content = path.read_bytes()
            if b"\0" not in content:
                found.append((path.relative_to(ROOT), content.decode("utf-8", errors="replace")))
    return tuple(found)
