"""``python -m tests.simulation``: histories by the thousand, in as many processes as asked for."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass

from tests.simulation.history import History
from tests.simulation.jobs.search import JobsFound, report_jobs, search_jobs
from tests.simulation.jobs.story import run_job
from tests.simulation.run import run
from tests.simulation.search import Found, report, search

_PORTION, _JOBS_PORTION = 50, 25


@dataclass(frozen=True, slots=True)
class _Portion:
    """What a process found in some histories; ``broken`` is for people."""

    histories: int
    counts: Counter[str]
    broken: str | None


def _portion(seed: int) -> _Portion:
    found = search(seed, _PORTION)
    return _Portion(found.histories, found.counts, None if found.history is None else report(found))


def _jobs_portion(seed: int) -> _Portion:
    found = search_jobs(range(seed * _JOBS_PORTION, (seed + 1) * _JOBS_PORTION))
    broken = None if found.history is None else report_jobs(found)
    return _Portion(found.counts["histories"], found.counts, broken)


def main(arguments: list[str]) -> int:
    """Run what is asked for; 1 when something is broken."""
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--seconds", type=float, default=None, help="go on for so long instead")
    parser.add_argument("--seed", type=int, default=0, help="the first portion's seed; the next one has the next")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--jobs", action="store_true", help="histories of stream jobs")
    parser.add_argument("--history", default=None, help="run this one alone, as a failure printed it")
    asked = parser.parse_args(arguments)
    _forget_quietly()
    if asked.history is not None and asked.jobs:
        history = History.from_json(asked.history)
        outcome = run_job(history)
        print(report_jobs(JobsFound(None, history if outcome.breaches else None, outcome)))
        return 1 if outcome.breaches else 0
    if asked.history is not None:
        history = History.from_json(asked.history)
        outcome = run(history)
        print(report(Found(1, history if outcome.breaches else None, outcome)))
        return 1 if outcome.breaches else 0
    return _many(asked)


def _forget_quietly() -> None:
    """What a killed process had open is not closed but forgotten, which Arrow's writers complain of."""
    sys.unraisablehook = lambda _: None


def _many(asked: argparse.Namespace) -> int:
    began, histories, counts = time.monotonic(), 0, Counter[str]()
    seeds = iter(range(asked.seed, sys.maxsize))
    portion, size = (_jobs_portion, _JOBS_PORTION) if asked.jobs else (_portion, _PORTION)
    with ProcessPoolExecutor(asked.processes, initializer=_forget_quietly) as pool:

        def wanted(ordered: int) -> bool:
            if asked.seconds is not None:
                return time.monotonic() - began < float(asked.seconds)
            return ordered < int(asked.histories)

        ordered, running = 0, list[Future[_Portion]]()
        while running or wanted(ordered):
            while len(running) < asked.processes and wanted(ordered):
                running.append(pool.submit(portion, next(seeds)))
                ordered += size
            found = running.pop(0).result()
            histories += found.histories
            counts += found.counts
            if found.broken is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                print(found.broken)
                return 1
    seconds = time.monotonic() - began
    print(f"{histories} histories in {seconds:.0f} s, nothing broken; {dict(counts.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
