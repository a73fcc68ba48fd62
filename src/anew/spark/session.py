"""Spark sessions: made here, or brought by the user and left as they are."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "SparkSession", "session_for_queries", "spark_session"]

_OURS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Only where the user says nothing else."""

_FOR_OUR_QUERIES = {
    # The number of output partitions and their order are part of the format: nothing may re-plan them.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Blocks are large rows: ten thousand of them would be gigabytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2097152",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_session(master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for one rebuild; one that runs already in this process (spark-submit, a notebook) is used and kept.

    Args:
        master: As in ``--master``; None: what Spark's own configuration says, else all local cores.
        conf: As in ``--conf``; wins over everything.
    """
    # Without it Python data sources run another interpreter, or none, and time out.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.Builder().appName("anew")
    builder = builder.master(master if master is not None else os.environ.get("MASTER", "local[*]"))
    for key, value in {**_OURS, **conf}.items():
        builder = builder.config(key, value)
    with _interrupts_held():
        session = builder.getOrCreate()
    try:
        session.sparkContext.setLogLevel("ERROR")
        yield session
    finally:
        session.stop()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold an interrupt (Ctrl-C) back until the block has ended.

    A launch that is interrupted removes the file through which the JVM would say its port; the JVM then neither serves
    nor ends, and outlives us.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread gets interrupts, and only it may say what becomes of them.
        yield
        return
    held = threading.Event()
    before = signal.signal(signal.SIGINT, lambda _number, _frame: held.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held.is_set():
        signal.raise_signal(signal.SIGINT)


def session_for_queries(session: SparkSession) -> SparkSession:
    """A session over the same context with the user's settings, and ours for what a rebuild's queries need."""
    ours = session.newSession()
    for key, value in session.conf.getAll.items():
        if session.conf.isModifiable(key):
            ours.conf.set(key, value)
    for key, value in _FOR_OUR_QUERIES.items():
        ours.conf.set(key, value)
    return ours
