"""Doors: each heavy library and each source of time, chance and settings is reached from one place alone.

The linters know doors by folder: a folder that may use one banned name may use them all, and the root module belongs
to no contract. Here each name is checked against its own doors.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tidy.source import ROOT, modules

BANNED_DOORS = {
    "datetime.datetime.now": {"runtime", "testing"},
    "datetime.datetime.utcnow": {"runtime", "testing"},
    "os.environ": {"runtime", "spark"},
    "os.getenv": {"runtime", "spark"},
    "pyarrow.fs": {"deepstore"},
    "pyarrow.parquet": {"segments"},
    "random": {"runtime"},
    "secrets": {"runtime"},
    "sqlite3": {"log"},
    "time.sleep": set[str](),
    "time.time": {"runtime", "testing"},
    "time.time_ns": {"runtime", "testing"},
    "uuid.uuid4": {"runtime"},
}
"""Which folders of ``src/anew`` may use a name that ruff bans everywhere else."""


def _pyproject() -> dict[str, Any]:
    tools: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return tools


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := _dotted(node.value)) is not None:
        return f"{left}.{node.attr}"
    return None


def _aliases(tree: ast.Module) -> dict[str, str]:
    """The full name behind each name that the file's imports bind, wherever they stand."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                bound = item.asname or item.name.partition(".")[0]
                names[bound] = item.name if item.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    return names


def _names_used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each imported or dotted name in full, with its line."""
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, item.name) for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.lineno, f"{node.module}.{item.name}") for item in node.names)
        elif isinstance(node, ast.Attribute) and (name := _dotted(node)) is not None:
            head, _, rest = name.partition(".")
            if head in aliases:
                yield node.lineno, f"{aliases[head]}.{rest}"


def _is_or_within(name: str, banned: str) -> bool:
    return name == banned or name.startswith(f"{banned}.")


def _folder(path: Path) -> str:
    """``codec`` for src/anew/codec/datum.py, empty for src/anew/__init__.py."""
    return path.parts[2] if len(path.parts) > 3 else ""


def _doors(contract: dict[str, Any]) -> set[str]:
    """The packages of a contract whose id is ``door-`` and their names."""
    return set(contract["id"].split("-")[1:])


def _library_doors() -> dict[str, set[str]]:
    """Library → its door, as the import contracts have them."""
    contracts = _pyproject()["importlinter"]["contracts"]
    return {
        library: _doors(contract)
        for contract in contracts
        if contract["id"].startswith("door-")
        for library in contract["forbidden_modules"]
    }


def test_doors_open_only_their_own_names() -> None:
    """A name with a door is used in the folders of its door alone."""
    doors = BANNED_DOORS | _library_doors()
    strays = [
        f"{module.at(line)} {name}"
        for module in modules("src")
        for line, name in _names_used(module.tree)
        for banned, folders in doors.items()
        if _is_or_within(name, banned) and _folder(module.path) not in folders
    ]
    assert strays == []


def test_tests_wait_for_conditions() -> None:
    """No test and no part of the product sleeps."""
    sleeping = [
        module.at(line)
        for module in modules("src", "tests")
        for line, name in _names_used(module.tree)
        if name == "time.sleep"
    ]
    assert sleeping == []


def test_every_banned_name_has_its_doors_here() -> None:
    """The table of doors above and the linter's table of banned names are about the same names."""
    assert set(_pyproject()["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]) == set(BANNED_DOORS)


def test_door_contracts_bind_every_other_package() -> None:
    """Each contract for a heavy library names all packages except its door."""
    packages = {f"anew.{path.parent.name}" for path in (ROOT / "src" / "anew").glob("*/__init__.py")}
    contracts = [entry for entry in _pyproject()["importlinter"]["contracts"] if entry["id"].startswith("door-")]
    unbound = {
        entry["id"]: packages - {f"anew.{door}" for door in _doors(entry)} - set(entry["source_modules"])
        for entry in contracts
    }
    assert contracts
    assert {door: missing for door, missing in unbound.items() if missing} == {}
