"""Documents and comments name modules that are there."""

from __future__ import annotations

import re

from tests.tidy.source import ROOT, modules

_PATH = re.compile(r"`([a-z][a-z0-9_]*(?:/[a-z0-9_.]+)+)`")
_CODE = re.compile(r"`anew((?:\.[a-z][a-z0-9_]*)+)")
_BELOW = ("", "src", "src/anew", "tests")


def _is_there(path: str) -> bool:
    return any((ROOT / below / path).exists() for below in _BELOW)


def test_documents_name_files_that_are_there() -> None:
    """Each path to a module or a folder of the code in a document leads somewhere."""
    texts = {
        path: path.read_text(encoding="utf-8") for path in (*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md")
    }
    found = [(path.name, named) for path, text in texts.items() for named in _PATH.findall(text)]
    assert len(found) > 100
    code = [(name, path) for name, path in found if path.endswith((".py", ".c")) or name == "where.md"]
    assert [(name, path) for name, path in code if not _is_there(path)] == []


def test_docstrings_name_modules_that_are_there() -> None:
    """Each module, or name in one, that a docstring or a comment refers to is there."""
    missing = []
    for module in modules("src"):
        for dotted in _CODE.findall(module.text):
            parts = dotted.strip(".").split(".")
            here = ROOT / "src" / "anew"
            while parts and ((here / parts[0]).is_dir() or (here / f"{parts[0]}.py").is_file()):
                here = here / parts.pop(0)
            if parts and here.is_dir() and not re.search(rf"\b{parts[0]}\b", (here / "__init__.py").read_text("utf-8")):
                missing.append((str(module.path), dotted))
    assert missing == []
