"""``python -m bench NAME… | all [--json] [--quick]`` and ``python -m bench --list``."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from anew.core.errors import AnewError
from bench import (
    deepstore,
    freshness,
    hotkey,
    join,
    kafkascan,
    load,
    memory,
    nearline,
    nearlinekafka,
    plan,
    push,
    query,
    read,
    refresh,
    refreshscale,
    repush,
    repushkafka,
    rounds,
    streams,
    transport,
)
from bench.machine import machine
from bench.measuring import QUICK, THOROUGH, Bench, Outcome, Repeats

_MODULES = (
    repush,
    push,
    hotkey,
    memory,
    load,
    nearline,
    freshness,
    read,
    plan,
    deepstore,
    kafkascan,
    repushkafka,
    nearlinekafka,
    transport,
    refresh,
    refreshscale,
    rounds,
    join,
    query,
    streams,
)
BENCHES: dict[str, Bench] = {bench.name: bench for module in _MODULES for bench in module.BENCHES}
_END_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run benches and print their tables; with ``--json`` each ends with its outcome as one line of JSON."""
    parser = argparse.ArgumentParser(prog="bench", description="Compare both sides of a claim in one run.")
    parser.add_argument("names", nargs="*", type=_name, metavar="NAME", help="benches, or all of them")
    parser.add_argument("--list", action="store_true", help="name the benches and their targets")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON per bench")
    parser.add_argument("--quick", action="store_true", help="small sizes, once: shows that a bench runs, no figures")
    parser.add_argument("--sizes", type=_sizes, help="three sizes instead of the bench's own, as in 1000,2000,4000")
    parser.add_argument("--repetitions", type=_positive, help="measured runs of each side")
    parser.add_argument("--folder", type=Path, help="where to work; default: the system's temporary folder")
    given = parser.parse_args(arguments)
    if given.list:
        for bench in BENCHES.values():
            print(f"{bench.name}: {bench.about}")
            for claim in bench.claims:
                print(f"  {claim.name}: target {claim.target()}")
        return 0
    names = [*BENCHES] if "all" in given.names else given.names
    if not names:
        parser.error("name a bench, or say all or --list")
    if len(names) > 1:
        options = [argument for argument in arguments if argument not in given.names]
        return max(_run_apart(BENCHES[name], options) for name in names)
    return _run(BENCHES[names[0]], given)


def _run(bench: Bench, given: argparse.Namespace) -> int:
    """Run a bench in this process; the exit code."""
    if lacking := _lacking(bench):
        return lacking
    repeats = QUICK if given.quick else THOROUGH
    if given.repetitions is not None:
        repeats = Repeats(repeats.warm_ups, given.repetitions)
    sizes = given.sizes or (bench.quick_sizes if given.quick else bench.sizes)
    with tempfile.TemporaryDirectory(prefix="anew-bench-", dir=given.folder) as folder:
        measured = bench.run(Path(folder), sizes, repeats)
    outcome = Outcome(bench, repeats, datetime.now(UTC).date().isoformat(), machine(), measured)
    print(outcome.table(), flush=True)
    if given.json:
        print(outcome.to_json(), flush=True)
    return 0


def _run_apart(bench: Bench, options: Sequence[str]) -> int:
    """Run one of several benches, unless something is missing for it; the exit code.

    In a process of its own: what the JVM of one was started with and has compiled, and what its memory went to, is
    nothing to the next; one that fails leaves the others alone.
    """
    if _lacking(bench):
        return 0
    process = subprocess.Popen([sys.executable, "-m", "bench", bench.name, *options])
    try:
        code = process.wait()
    finally:
        # So that it ends its brokers and clusters when this process is told to end.
        process.terminate()
        process.wait(_END_SECONDS)
    if code:
        print(f"{bench.name}: failed, exit code {code}", file=sys.stderr, flush=True)
    return 1 if code else 0


def _lacking(bench: Bench) -> int:
    """Say what a bench needs that is missing; the exit code, 0 when nothing is."""
    try:
        bench.check()
    except AnewError as error:
        lacking = " ".join(str(error).split())
        print(f"{bench.name}: skipped, because something is missing: {lacking}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _name(text: str) -> str:
    if text not in {*BENCHES, "all"}:
        raise argparse.ArgumentTypeError(f"found: {text}; expected: one of {', '.join(BENCHES)}, all")
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(sorted(_positive(part) for part in text.split(",")))
    if len(set(sizes)) != 3:
        raise ValueError(text)
    return sizes


if __name__ == "__main__":
    # So that whoever ends a bench does not leave its brokers and clusters behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
