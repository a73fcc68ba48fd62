"""Where this machine keeps the jars that it fetched.

``python -m anew.runtime.jars [NAME]…`` fetches them, unless they are there, and says where they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from anew.core.errors import AnewError, Refused
from anew.jars.fetching import NAMES, fetch


def jar_cache() -> Path:
    """The directory of all fetched jars: below ``XDG_CACHE_HOME``, or below ``.cache`` of the user's home.

    Raises:
        Refused: ``cache_unusable``: there is neither.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given, "anew", "jars")
    try:
        return Path.home() / ".cache" / "anew" / "jars"
    except RuntimeError as error:  # a user without a home, as services have
        raise Refused(
            "cache_unusable",
            "there is no place to keep jars",
            found=str(error),
            expected="a home, or XDG_CACHE_HOME",
            hint="set XDG_CACHE_HOME to a directory of this user's own",
        ) from error


def fetched(name: str) -> tuple[Path, ...]:
    """The jars of a POM, sorted; fetched the first time.

    Raises:
        Unreachable, Refused: As `anew.jars.fetching.fetch`.
    """
    return fetch(name, jar_cache())


def main(names: list[str]) -> int:
    """Fetch what is named, or all there is; prints a directory for each."""
    for name in names if names else NAMES:
        try:
            print(fetched(name)[0].parent)  # noqa: T201  # this is a command
        except AnewError as error:
            print(error, file=sys.stderr)  # noqa: T201  # this is a command
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
