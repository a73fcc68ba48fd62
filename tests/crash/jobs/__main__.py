"""``python -m tests.crash.jobs``: histories of stream jobs on real Spark, on the embedded log or on Kafka."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests import run_guard
from tests.brokers import ENVIRONMENT, running_brokers
from tests.crash.jobs.drawing import history_of
from tests.crash.jobs.place import running_place
from tests.crash.jobs.telling import Outcome, tell_all
from tests.java import SPARK


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
        stack.enter_context(_guarded())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="job-histories-")))
        log = {}
        if asked.kafka:
            brokers = stack.enter_context(running_brokers()).cluster
            log = {**ENVIRONMENT, "ANEW_LOG": f"kafka://{brokers.bootstrap}"}
        place = stack.enter_context(running_place(folder, stack.enter_context(_session()), log))
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


@contextmanager
def _guarded() -> Iterator[None]:
    """Whatever is started ends with this process, however that ends."""
    mark = os.environ[run_guard.VARIABLE] = uuid.uuid4().hex
    guard = subprocess.Popen(
        [sys.executable, "-I", run_guard.__file__, str(os.getpid()), mark], env={}, stdin=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        guard.terminate()
        guard.wait()


@contextmanager
def _session() -> Iterator[SparkSession]:
    """A session of this process; drivers get the same archive of classes."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SPARK.options)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master("local[2]").appName("job histories")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
