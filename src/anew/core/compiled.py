"""The parts of this package that are written in C, loaded from where they were compiled: beside their sources.

A library cannot be loaded from a zip, which is how executors get the package: it is unpacked first, into a file that
goes when the process ends.
"""

from __future__ import annotations

import atexit
import ctypes
from contextlib import ExitStack
from importlib.resources import as_file, files
from typing import TypeVar

from anew.core.errors import Failed

_Library = TypeVar("_Library", bound=ctypes.CDLL)

Version = tuple[int, int, int]
"""Major, minor and patch."""

_unpacked = ExitStack()
atexit.register(_unpacked.close)


def load_compiled(package: str, name: str, kind: type[_Library]) -> _Library:
    """A library of ours.

    Args:
        package: Where it lies, ``anew.core``.
        name: Its file.
        kind: ``ctypes.CDLL``, whose calls give the interpreter's lock away, or ``ctypes.PyDLL``, whose do not.

    Raises:
        Failed: ``not_compiled``.
    """
    place = files(package).joinpath(name)
    try:
        return kind(str(_unpacked.enter_context(as_file(place))))
    except OSError as error:
        raise Failed(
            "not_compiled",
            "a part of anew that is written in C was not compiled, or for another machine",
            found=str(error),
            expected=str(place),
            hint="install the package again where a C compiler (cc) is: in a clone, make setup",
        ) from None


def check_version(library: str, found: Version, *, least: Version, below: Version, hint: str) -> None:
    """Let a binding be made to a library whose structs and functions it knows, and to no other.

    Args:
        library: Its name.
        found: The version that the loaded library itself tells.
        least: The first one that the binding was written and tested for.
        below: The first one that may change what the binding declares.
        hint: Which package to install.

    Raises:
        Failed: ``unknown_library_version``.
    """
    if not least <= found < below:
        raise Failed(
            "unknown_library_version",
            f"this version of {library} is not one that anew's binding in C was made for",
            found=_dotted(found),
            expected=f"{_dotted(least)} or later, below {_dotted(below)}",
            hint=hint,
        )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
