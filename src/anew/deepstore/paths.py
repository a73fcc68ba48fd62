"""Names of files in a deep store: what callers may ask for, and what a file is called while it is being written."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

from anew.core.errors import InvalidRequest

_TEMPORARY = re.compile(r".+\.[0-9]+-[0-9]+\.tmp")
_COUNTER = itertools.count()


def check_path(path: str) -> None:
    """Raise unless this is the path of a file below the root.

    Raises:
        InvalidRequest: ``bad_path``.
    """
    parts = path.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or "\\" in path or "\0" in path or is_temporary(path):
        raise InvalidRequest(
            "bad_path",
            "this is not a path below the deep store's root",
            found=path,
            expected="names joined by /, none of them empty, . or .., and not a temporary file's name",
        )


def is_temporary(path: str) -> bool:
    """Whether a path is the name of a file that is still being written, or was when its writer died."""
    return _TEMPORARY.fullmatch(path) is not None


def temporary_names(path: str) -> Iterator[str]:
    """Names for writing ``path``, no two alike in this process; another machine's process may use the same ones."""
    return (f"{path}.{os.getpid()}-{number}.tmp" for number in _COUNTER)
