"""``python -m bench NAME [--records N] [--json]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import load, repush
from bench.measuring import Outcome

_BENCHES: dict[str, tuple[Callable[[Path, int], Outcome], int]] = {
    "repush": (repush.run, repush.DEFAULT_RECORDS),
    "load": (load.run, load.DEFAULT_RECORDS),
}


def main(arguments: Sequence[str]) -> int:
    """Run one bench and print its table; with ``--json`` the last line is its outcome as JSON."""
    parser = argparse.ArgumentParser(prog="bench", description="Compare both sides of a claim in one run.")
    parser.add_argument("name", choices=sorted(_BENCHES))
    parser.add_argument("--records", type=_positive, help="how many records; each bench has its own default")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--folder", type=Path, help="where to work; default: the system's temporary folder")
    given = parser.parse_args(arguments)
    run, default_records = _BENCHES[given.name]
    with tempfile.TemporaryDirectory(prefix="anew-bench-", dir=given.folder) as folder:
        outcome = run(Path(folder), default_records if given.records is None else given.records)
    print(outcome.table())
    if given.json:
        print(outcome.to_json())
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
