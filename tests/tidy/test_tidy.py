"""The code checks its own shape: sizes, names, docstrings, suppressed warnings, layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.tidy.source import CODE_FOLDERS, ROOT, Function, Module, modules, text_files

MAX_FILE_LINES = 500
MAX_BODY_LINES = 70
MAX_PARAMETERS = 6
VAGUE_NAMES = {"utils", "helpers", "manager", "data"}

_EXCUSED_TYPE = re.compile(r"# type: ignore\[[a-z0-9-]+(?:, ?[a-z0-9-]+)*\]  # \S")
_EXCUSED_LINT = re.compile(r"# noqa: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*(?:\s|$)")
_REGISTRY = re.compile(
    r"https?://\S*(?:pypi|pythonhosted|maven|artifactor|nexus|/simple\b)"
    r"|^\s*(?:--)?(?:extra-)?(?:index-url|find-links|trusted-host)\b",
    re.IGNORECASE | re.MULTILINE,
)
_UNFINISHED = re.compile(r"\b(?:T[O]DO|F[I]XME|X[X]X)\b")


def _body_lines(function: Function) -> int:
    """The lines of a function's statements, its docstring not counted."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return 0 if not body else (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def _parameter_count(function: Function) -> int:
    """How many parameters a caller sees: the receiver is not counted."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    receiver = bool(positional) and positional[0].arg in {"self", "cls"}
    stars = [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
    return len(positional) - receiver + len(arguments.kwonlyargs) + len(stars)


def _option_count(module: Module, function: Function) -> int:
    """The keyword-only parameters of the command line's functions: Typer makes an option of each."""
    return len(function.args.kwonlyargs) if module.path.is_relative_to("src/anew/cli") else 0


def _public_definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
    """Classes, functions and methods whose names have no leading underscore; not what lies inside functions."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node.body)


def _is_test(module: Module, function: Function) -> bool:
    return module.path.name.startswith("test_") and function.name.startswith("test")


def test_files_are_short() -> None:
    """No file is longer than 500 lines."""
    counts = {str(module.path): len(module.text.splitlines()) for module in modules(*CODE_FOLDERS)}
    assert {path: count for path, count in counts.items() if count > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    """No function's body is longer than 70 lines."""
    sizes = {
        f"{module.at(function)} {function.name}": _body_lines(function)
        for module in modules(*CODE_FOLDERS)
        for function in module.functions()
    }
    assert {place: lines for place, lines in sizes.items() if lines > MAX_BODY_LINES} == {}


def test_functions_take_few_parameters() -> None:
    """No function takes more than six parameters; a command's options are its face, not a caller's burden."""
    counts = {
        f"{module.at(function)} {function.name}": _parameter_count(function) - _option_count(module, function)
        for module in modules(*CODE_FOLDERS)
        for function in module.functions()
    }
    assert {place: count for place, count in counts.items() if count > MAX_PARAMETERS} == {}


def test_module_names_say_something() -> None:
    """No module or package is called utils, helpers, manager or data."""
    named = [
        str(module.path)
        for module in modules(*CODE_FOLDERS)
        if VAGUE_NAMES & {*module.path.parent.parts, module.path.stem}
    ]
    assert named == []


def test_public_names_are_documented() -> None:
    """Every public module, class, function and method of the product has a docstring."""
    bare = [str(module.path) for module in modules("src") if not ast.get_docstring(module.tree)]
    bare += [
        f"{module.at(node)} {node.name}"
        for module in modules("src")
        for node in _public_definitions(module.tree.body)
        if not ast.get_docstring(node)
    ]
    assert bare == []


def test_every_test_states_its_claim() -> None:
    """Every test has a docstring."""
    silent = [
        f"{module.at(function)} {function.name}"
        for module in modules("tests")
        for function in module.functions()
        if _is_test(module, function) and not ast.get_docstring(function)
    ]
    assert silent == []


def test_suppressed_type_errors_say_why() -> None:
    """Every ignored type error names its code and a reason."""
    bare = [
        f"{module.at(line)} {comment}"
        for module in modules(*CODE_FOLDERS)
        for line, comment in module.comments("type: ignore")
        if not _EXCUSED_TYPE.match(comment)
    ]
    assert bare == []


def test_suppressed_lint_names_its_rule() -> None:
    """Every suppressed lint names the rule that it suppresses."""
    bare = [
        f"{module.at(line)} {comment}"
        for module in modules(*CODE_FOLDERS)
        for line, comment in module.comments("noqa")
        if re.search(r"\bnoqa\b", comment) and not _EXCUSED_LINT.search(comment)
    ]
    assert bare == []


def test_no_registry_is_named() -> None:
    """No file names where packages come from: that belongs to the machine."""
    named = [f"{path}: {found[0]}" for path, text in text_files() if (found := _REGISTRY.search(text))]
    assert named == []


def test_nothing_is_left_unfinished() -> None:
    """No file carries a mark of unfinished work."""
    marked = [f"{path}: {found[0]}" for path, text in text_files() if (found := _UNFINISHED.search(text))]
    assert marked == []


@pytest.mark.processes
def test_layers_hold() -> None:
    """The import contracts of pyproject.toml are kept."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_names_in_texts_point_down_too() -> None:
    """A module that names another as text, such as for a process to import, is not below it."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    rank = {name.strip(): height for height, row in enumerate(reversed(layers)) for name in row.split("|")}
    upwards = [
        f"{module.at(node)}: {node.value}"
        for module in modules("src/anew")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_module(node.value)
        if rank.get(node.value.split(".")[1], 0) > rank.get(module.path.parts[2], len(rank))
    ]
    assert upwards == []


def _is_module(text: str) -> bool:
    path = (ROOT / "src").joinpath(*text.split("."))
    return text.startswith("anew.") and text.count(".") > 1 and path.with_suffix(".py").exists()
