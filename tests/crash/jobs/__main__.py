"""``python -m tests.crash.jobs``: histories of stream jobs on real Spark, on the embedded log or on Kafka."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.brokers import ENVIRONMENT, running_brokers
from tests.crash.jobs.drawing import history_of
from tests.crash.jobs.place import running_place
from tests.crash.jobs.telling import Outcome, tell_all
from tests.java import SPARK
from tests.runs import let_go, spark_of_run, start_guard


def main(arguments: list[str]) -> int:
    """Run what is asked for; 1 when something is broken."""
    parser = argparse.ArgumentParser(prog="tests.crash.jobs", description=__doc__)
    parser.add_argument("--histories", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed; the next one has the next")
    parser.add_argument("--seconds", type=float, default=None, help="after so long no other one begins")
    parser.add_argument("--kafka", action="store_true", help="on a Kafka broker, which is started for it")
    parser.add_argument("--steps", action="store_true", help="tell what happened in each")
    parser.add_argument("--show", action="store_true", help="only print what is drawn")
    asked = parser.parse_args(arguments)
    seeds = range(asked.seed, asked.seed + asked.histories)
    if asked.show:
        for history in map(history_of, seeds):
            print(history.seed, history.output, history.function, history.start, *map(str, history.steps), sep="; ")
        return 0
    with ExitStack() as stack:
        # Drivers get the same archive of classes as this process.
        os.environ.setdefault("SPARK_SUBMIT_OPTS", SPARK.options)
        stack.callback(let_go, start_guard())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="job-histories-")))
        log = {}
        if asked.kafka:
            brokers = stack.enter_context(running_brokers()).cluster
            log = {**ENVIRONMENT, "ANEW_LOG": f"kafka://{brokers.bootstrap}"}
        place = stack.enter_context(running_place(folder, stack.enter_context(spark_of_run("job histories")), log))
        flags = " --kafka" if asked.kafka else ""

        def told(outcome: Outcome) -> None:
            if asked.steps or outcome.broken is not None:
                print(outcome.report(flags), flush=True)

        found = tell_all(seeds, place, asked.seconds, told)
    broken = found.broken(flags)
    where = "Kafka" if asked.kafka else "the embedded log"
    verdict = f"{len(broken)} broken" if broken else "nothing broken"
    counts = dict(sorted(found.counts.items()))
    print(f"{len(found.of)} histories on {where} in {found.seconds:.0f} s from seed {asked.seed}, {verdict}; {counts}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
