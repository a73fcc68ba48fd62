"""Loaded by each Python process whose path has this folder: makes it stand still at a point that a test armed.

``HALT_POINTS`` names the points, ``module:function`` or ``module:Class.method``, split by commas. Each is wrapped when
its module is loaded. ``HALT_FOLDER`` is where a test arms them: a file ``POINT@before`` or ``POINT@after`` whose lines
must all be in what the call was given. Who comes there first takes the file and stops itself by SIGSTOP, all threads at
once; the test kills it, or lets it go on. ``clock_shift_ms`` in the same folder moves the process's wall clock.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_CLOCK = "anew.runtime.clock"


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that have points, and wraps these once the module is loaded."""

    def __init__(self, points: dict[str, list[str]], folder: Path) -> None:
        self._points, self._folder, self._busy = points, folder, False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._busy or name not in self._points:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._points[name], self._folder)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, points: list[str], folder: Path) -> None:
        self._inner, self._names, self._folder = inner, points, folder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        for name in self._names:
            holder: Any = module
            *path, last = name.split(".")
            for part in path:
                holder = getattr(holder, part)
            found = vars(holder)[last]
            wrap: Callable[..., Any] = (
                self._shifted if module.__name__ == _CLOCK else functools.partial(self._halting, module, name)
            )
            if isinstance(found, classmethod):
                setattr(holder, last, classmethod(wrap(found.__func__)))
            else:
                setattr(holder, last, wrap(found))

    def _halting(self, module: ModuleType, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        point = f"{module.__name__}:{name}"

        @functools.wraps(call)
        def halting(*given: Any, **named: Any) -> Any:
            _halt(self._folder, f"{point}@before", (given, named))
            made = call(*given, **named)
            _halt(self._folder, f"{point}@after", (given, named))
            return made

        return halting

    def _shifted(self, clock: Callable[[], int]) -> Callable[[], int]:
        shift = self._folder / "clock_shift_ms"

        @functools.wraps(clock)
        def shifted() -> int:
            try:
                return clock() + int(shift.read_text() or 0)
            except FileNotFoundError:
                return clock()

        return shifted


def _halt(folder: Path, point: str, given: object) -> None:
    armed = folder / point
    try:
        wanted = armed.read_text().splitlines()
    except FileNotFoundError:
        return
    shown = repr(given)
    if not all(part in shown for part in wanted):
        return
    try:
        armed.rename(folder / f"{point}@{os.getpid()}")
    except FileNotFoundError:
        return
    # To this thread: a signal to the process may go to another one, and this one would run on until that has its turn.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _install() -> None:
    points: dict[str, list[str]] = {_CLOCK: ["now_ms"]}
    for point in filter(None, os.environ.get("HALT_POINTS", "").split(",")):
        module, _, name = point.partition(":")
        points.setdefault(module, []).append(name)
    sys.meta_path.insert(0, _Finder(points, Path(os.environ["HALT_FOLDER"])))


if "HALT_FOLDER" in os.environ:
    _install()
