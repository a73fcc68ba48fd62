"""What code, tests and documents cite is in the repository, and what is written down there has its tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.named import missing
from tests.tidy.source import CODE_FOLDERS, ROOT, Module, modules, text_files

_RULES, _CASES = Path("docs/rules.md"), Path("docs/cases")
_RULE = re.compile(r"\bR(\d{1,2})\b")
_CASE_CITED = re.compile(r"\bcases? ((?:[A-Z]\d+(?:, | and )?)+)")
_CASE_LISTED = re.compile(r"^(?:- |\| )([A-Z]\d+) ", re.MULTILINE)
_ELSEWHERE = re.compile(r"\bdesign (?:section )?\d")


def _rules() -> dict[str, str]:
    """Number of each rule → all that is written below its heading."""
    parts = re.split(r"^### (R\d+): .*$", (ROOT / _RULES).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _cases(name: str) -> list[str]:
    return _CASE_LISTED.findall((ROOT / _CASES / f"{name}.md").read_text(encoding="utf-8"))


def _listed() -> set[str]:
    """All that a test may claim: ``rules:R1``, ``stores:A1``."""
    files = [path.stem for path in sorted((ROOT / _CASES).glob("*.md"))]
    return {f"rules:{rule}" for rule in _rules()} | {f"{name}:{case}" for name in files for case in _cases(name)}


def _claims() -> Iterator[tuple[str, str]]:
    """(what a test claims to show, where); of a claim that is put together, each of its literals."""
    for module in modules("tests"):
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case"):
                continue
            for claim in node.args:
                if isinstance(claim, ast.Constant):
                    yield str(claim.value), module.at(node)
                elif isinstance(claim, ast.JoinedStr):
                    prefix = str(ast.literal_eval(claim.values[0]))
                    yield from ((f"{prefix}{case}", module.at(node)) for case in _literal_cases(module))


def _subject(path: Path) -> str:
    """What a module is about, by its folder or its name."""
    if "jobs" in path.parts:
        return "streams"
    return "tables" if "tables" in path.parts or path.stem.startswith(("table", "segment")) else "stores"


def _literal_cases(module: Module) -> set[str]:
    return set(re.findall(r"\"([A-Z]\d+)\"", module.text))


def test_rules_that_are_cited_are_written_down() -> None:
    """``R6`` in code, tests or documents is a heading of docs/rules.md."""
    known = set(_rules())
    assert len(known) > 20
    unknown = [
        f"{path}: R{number}"
        for path, text in text_files()
        if path.suffix in (".py", ".md") and path.parts[0] in (*CODE_FOLDERS, "docs") and path != _RULES
        for number in _RULE.findall(text)
        if f"R{number}" not in known
    ]
    assert unknown == []


def test_cases_that_are_cited_are_written_down() -> None:
    """``case A9`` is one of docs/cases/stores.md, in a module about tables or jobs of the page about these."""
    cited = [
        (f"{_subject(module.path)}:{case}", str(module.path))
        for module in modules("src", "bench")
        for cases in _CASE_CITED.findall(module.text)
        for case in re.findall(r"[A-Z]\d+", cases)
    ]
    listed = _listed()
    assert len(cited) > 50
    assert [(case, where) for case, where in cited if case not in listed] == []


def test_tests_claim_what_is_written_down() -> None:
    """What a test is marked with is a rule or a case, and each of these has a test."""
    listed, claims = _listed(), list(_claims())
    assert [f"{where}: {claim}" for claim, where in claims if claim not in listed] == []
    assert listed - {claim for claim, _ in claims} == set()


def test_rules_name_tests_that_are_there() -> None:
    """Each rule names tests, and each of them is there."""
    named = {rule: re.findall(r"`([\w/]+\.py::[\w:]+)`", text) for rule, text in _rules().items()}
    assert [rule for rule, tests in named.items() if not tests] == []
    assert missing([f"tests/{test}" for tests in named.values() for test in tests]) == []


def test_nothing_is_cited_that_is_elsewhere() -> None:
    """A comment names a document of the repository, not a section of one that readers do not have."""
    assert [module.path for module in modules(*CODE_FOLDERS) if _ELSEWHERE.search(module.text)] == []
