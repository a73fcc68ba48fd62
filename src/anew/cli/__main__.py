"""The console script ``anew``, also ``python -m anew.cli``."""

from __future__ import annotations

import sys

from anew.runtime.starting import imports_kept


def main() -> None:
    """Run the command that the process was started with."""
    with imports_kept():
        from anew.cli.main import prepare, run

        prepare(sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
