"""How a process comes up: what it imports it keeps for its whole life, and what it never uses it keeps out.

Imports make some hundred thousand objects none of which is ever garbage; collecting among them takes a tenth to a fifth
of a start, and would go on to take its share of every full collection while the process serves.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType


@contextmanager
def imports_kept() -> Iterator[None]:
    """Nothing is collected while this lasts, and what is there at its end never is."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def keep_pandas_out() -> None:
    """Let Arrow find no pandas in this process; whoever imports it later gets it all the same.

    Arrow looks once, with the first array that it makes, for the sake of those who have data frames. Where it is
    installed, as it is wherever Spark's Python side is, that takes a quarter of a second and 36 MB.
    """
    finder = _Missing("pandas")
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


class _Missing:
    """A finder that answers for one package, and says that there is none."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Leave every other package to the finders behind this one."""
        del path, target
        if name == self._package:
            raise ModuleNotFoundError(f"{name} is kept out", name=name)
        return None
