"""What a run of the tests has once, and a run of histories too: a guard over what it starts, and a Spark session."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tests import run_guard


def start_guard() -> subprocess.Popen[bytes]:
    """Whatever this process starts from now on carries its mark, and ends with it should it be killed."""
    mark = os.environ[run_guard.VARIABLE] = uuid.uuid4().hex
    guard = [sys.executable, "-I", run_guard.__file__, str(os.getpid()), mark]
    return subprocess.Popen(guard, env={}, stdin=subprocess.DEVNULL)


def let_go(guard: subprocess.Popen[bytes]) -> None:
    """End a guard, which leaves everything alone."""
    guard.terminate()
    guard.wait()


@contextmanager
def spark_of_run(name: str) -> Iterator[SparkSession]:
    """The one Spark session of a run."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.Builder()
        .master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
