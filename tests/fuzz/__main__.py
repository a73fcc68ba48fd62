"""``python -m tests.fuzz TARGET --seconds N``: atheris looks for bytes that a parser does not take as it should.

Without a target all are searched, one after the other, and a find in one is a failure of the whole. Each has a process
of its own, because libFuzzer ends the process when it is done: a fork of one that has instrumented the code once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from pathlib import Path

_MOST_INPUT_BYTES = 4_096
_MEMORY_MIB = 1_500


def main(arguments: list[str]) -> int:
    """Run one target or all; 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--seconds", type=int, default=5, help="for each target")
    parser.add_argument("--runs", type=int, default=-1, help="for each target, at most; -1: as many as fit")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)

    import atheris

    with atheris.instrument_imports(include=["anew"]):
        from tests.fuzz.targets import TARGETS

    names = TARGETS if chosen.target is None else [chosen.target]
    limits = [f"-max_total_time={chosen.seconds}", f"-runs={chosen.runs}", f"-seed={chosen.seed}"]
    failed = [name for name in names if not _finds_nothing(name, limits)]
    print(f"{len(names)} targets, failed: {', '.join(failed) if failed else 'none'}")
    return 1 if failed else 0


def _finds_nothing(name: str, limits: list[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as corpus:
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        try:
            _fuzz(name, limits, Path(corpus))
        except BaseException:  # noqa: BLE001  # the child must not go on as its parent
            traceback.print_exc()
        os._exit(1)  # libFuzzer has ended the process before, unless it could not start


def _fuzz(name: str, limits: list[str], corpus: Path) -> None:
    import atheris

    from tests.fuzz.targets import TARGETS, run

    for number, content in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{number}").write_bytes(content)
    options = [*limits, f"-max_len={_MOST_INPUT_BYTES}", f"-rss_limit_mb={_MEMORY_MIB}", "-timeout=10"]
    options += [f"-artifact_prefix={tempfile.gettempdir()}/fuzz-{name}-", "-print_final_stats=1"]
    atheris.Setup([f"fuzz-{name}", *options, str(corpus)], lambda content: run(name, content))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
