"""Nothing that came from outside is ever run: what turns bytes into code or objects of any class is forbidden."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import Module, modules

_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle", "yaml", "xmlrpc"}
_CALLS = {"eval", "exec", "compile", "__import__"}
_ATTRIBUTES = {
    "read_pickle",
    "to_pickle",
    "binaryFiles",
    "pickleFile",
    "saveAsPickleFile",
    "register_extension_type",
    "PyExtensionType",
    "UnknownExtensionType",
    "deserialize_pandas",
    "unsafe_load",
}
_KEYWORDS = {"allow_pickle", "shell"}

ALLOWED = {
    (Path("src/anew/core/partitioning.py"), "compile"): (
        "a partitioner of a user's own: code by design, part of a configuration that takes the right to operate"
    ),
    (Path("src/anew/core/partitioning.py"), "exec"): "the same",
    (Path("src/anew/testing/memory/rocks.py"), "marshal"): "files that the same simulated process has just written",
}
"""What is used all the same, and why that is safe."""


def _uses(module: Module) -> Iterator[tuple[str, str]]:
    """(what is forbidden, where) for each use in a module."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.split(".")[0] in _MODULES:
                        yield alias.name.split(".")[0], module.at(node)
            case ast.ImportFrom(module=str(name)) if name.split(".")[0] in _MODULES:
                yield name.split(".")[0], module.at(node)
            case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
                yield name, module.at(node)
            case ast.Attribute(attr=name) if name in _ATTRIBUTES:
                yield name, module.at(node)
            case ast.keyword(arg=str(name), value=ast.Constant(value=value)) if (
                name in _KEYWORDS and value is not False
            ):
                yield name, module.at(node.value)


def _found(*folders: str) -> dict[tuple[Path, str], str]:
    return {(module.path, what): where for module in modules(*folders) for what, where in _uses(module)}


def test_nothing_from_outside_becomes_code() -> None:
    """Neither the wire nor the deep store is unpickled, evaluated or loaded by a format that can make any object."""
    found = _found("src")
    assert {where: what for (path, what), where in found.items() if (path, what) not in ALLOWED} == {}


def test_each_exception_is_still_used() -> None:
    """An exception that nothing needs any more would let the next use pass unseen."""
    assert set(ALLOWED) == set(_found("src"))


def test_the_check_sees_what_it_forbids() -> None:
    """Each kind of use is found in a text that has it."""
    text = "\n".join(
        (
            "import pickle, os",
            "from yaml import load",
            "import cloudpickle.compat",
            "eval('1')",
            "frame.read_pickle(path)",
            "numpy.load(path, allow_pickle=True)",
            "subprocess.run(command, shell=True)",
            "numpy.load(path, allow_pickle=False)",
            "re.compile('x')",
        )
    )
    module = Module(Path("x.py"), text, ast.parse(text))
    expected = {"pickle", "yaml", "cloudpickle", "eval", "read_pickle", "allow_pickle", "shell"}
    assert sorted(what for what, _ in _uses(module)) == sorted(expected)
