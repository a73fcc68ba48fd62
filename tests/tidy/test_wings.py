"""The engine names no subject: what it would say of one, it could not say of the next."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import Module, modules

_ENGINE = (Path("src/anew/controller/engine"), Path("src/anew/rebuild/driving.py"), Path("src/anew/core/rebuild.py"))
_SUBJECTS = re.compile(
    r"(?:^|[^a-z])(stores?|tables?|segments?|repush(?:es)?|refresh(?:es)?)(?:$|[^a-z])", re.IGNORECASE
)
_NO_SUBJECTS = {"deep_store", "DeepStore", "anew.deepstore.interface", "repush_source_wait_seconds"}
"""Where files lie; and a setting of stores, which is kept with the others."""


def _names(module: Module) -> Iterator[tuple[int, str]]:
    """Every name of the code, with its line: what it imports, defines, reads and sets."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
                if isinstance(node, ast.ImportFrom):
                    yield node.lineno, str(node.module)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.lineno, name


def _words(name: str) -> str:
    """A name as words: ``StoreRebuild`` as ``Store Rebuild``, ``store_uid`` as ``store uid``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").replace(".", " ")


def test_the_engine_names_no_subject() -> None:
    """No name in the engine's code is of stores, tables, or anything else that is rebuilt."""
    engine = [m for m in modules("src") if any(m.path == part or m.path.is_relative_to(part) for part in _ENGINE)]
    assert len(engine) > 20
    found = [
        f"{module.path}:{line} {name}"
        for module in engine
        for line, name in _names(module)
        if name not in _NO_SUBJECTS and name.lower() not in _NO_SUBJECTS and _SUBJECTS.search(_words(name))
    ]
    assert found == []


def test_the_check_sees_subjects() -> None:
    """Names of subjects are seen however they are written, and words that only look like them are not."""
    seen = ["store_uid", "PutStore", "anew.core.tables.plan", "repush", "StoreRebuild", "table"]
    assert [name for name in seen if not _SUBJECTS.search(_words(name))] == []
    assert [name for name in ("restore", "restored", "stable", "Restoring") if _SUBJECTS.search(_words(name))] == []
