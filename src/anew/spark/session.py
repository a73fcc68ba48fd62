"""Spark sessions: made here, or brought by the user and left as they are."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from anew.core.errors import Unreachable
from anew.spark.folders import held_folder
from anew.spark.package import build_of_package, write_package
from anew.spark.worker import is_local

__all__ = ["DataFrame", "SparkSession", "send_modules", "session_for_queries", "spark_session"]

_OURS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Only where the user says nothing else."""

_OURS_LOCALLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "anew.spark.daemon",
}
"""The executors of a cluster must reach the driver from their machines, and have the package only later."""

_SOCKETS, _SOCKET_FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
"""Over the network's loopback each task of a Python worker waits 40 ms for a delayed acknowledgement."""
_SOCKET_CHARACTERS = 50
"""So long may their folder's path be: the name that Spark adds has 42 more, and a system may take no more than 104."""
_FOLDER = "spark.anew.folder"
"""The session's folder on the driver's machine."""

_TOLD_BY_US = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
"""Loggers of what `anew.spark.failures.reason_of` says of a job that failed."""

_STANDALONE = "spark://"
_CONNECT_SECONDS = 10.0
_PYTHON = "spark.pyspark.python"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose master and settings then hold."""

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
    """A session for one rebuild; one that runs already in this process (a notebook) is used and kept.

    On another master than a local one the package itself is sent to the executors.

    Args:
        master: As in ``--master``; None: what spark-submit or ``MASTER`` says, else all local cores.
        conf: As in ``--conf``; wins over everything.

    Raises:
        Unreachable: ``spark_unreachable``.
    """
    # Without it Python data sources run another interpreter, or none, and time out.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    if _PYTHON in conf:
        # Only spark-submit looks at the setting; everybody else at the environment.
        os.environ["PYSPARK_PYTHON"] = conf[_PYTHON]
    _check_master(master)
    with held_folder("spark") as folder:
        session = _made(_builder(master, conf, str(folder)), master)
        try:
            _quiet(session)
            with _package_sent(session):
                yield session
        finally:
            session.stop()


def _folder_of(session: SparkSession) -> str | None:
    """Where files of a session go; None: where the system has temporary ones, if the session was not made here."""
    return session.conf.get(_FOLDER, None)


def _quiet(session: SparkSession) -> None:
    """Keep from the terminal what is told in our words: why tasks fail, for which Spark has the JVM's whole stack."""
    context = session.sparkContext
    context.setLogLevel("ERROR")
    log4j = context._gateway.jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # there is one once it is made
    for logger in _TOLD_BY_US:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


def _check_master(master: str | None) -> None:
    """Raise unless one of a standalone cluster's masters takes a connection: Spark itself would try for a minute.

    Raises:
        Unreachable: ``spark_unreachable``.
    """
    if master is None or not master.startswith(_STANDALONE):
        return
    refused = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            refused.append(f"{address}: {error}")
        else:
            return
    raise _unreachable("Spark's master does not answer", "; ".join(refused), "spark://HOST:PORT of a running master")


def _unreachable(message: str, found: str, expected: str) -> Unreachable:
    hint = "look at the master's address, --conf, and the driver's log"
    return Unreachable("spark_unreachable", message, found=found, expected=expected, hint=hint)


def _ours_locally(folder: str) -> dict[str, str]:
    if len(folder) > _SOCKET_CHARACTERS:
        return _OURS_LOCALLY
    return {**_OURS_LOCALLY, _SOCKETS: "true", _SOCKET_FOLDER: folder}


def _builder(master: str | None, conf: Mapping[str, str], folder: str) -> SparkSession.Builder:
    submitted = _SUBMITTED in os.environ
    if master is None and not submitted:
        master = os.environ.get("MASTER", "local[*]")
    builder = SparkSession.Builder().appName("anew")
    if master is not None:
        builder = builder.master(master)
    ours = {} if submitted else {**_OURS, **(_ours_locally(folder) if is_local(master) else {})}
    for key, value in {_FOLDER: folder, **ours, **conf}.items():
        builder = builder.config(key, value)
    return builder


def _made(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    try:
        with _interrupts_held():
            return builder.getOrCreate()
    except (Py4JError, RuntimeError) as error:
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
        found = lines[1 if len(lines) > 1 else 0] if lines else type(error).__name__
        expected = "a session" if master is None else f"a session on {master}"
        raise _unreachable("Spark does not start", found, expected) from error


@contextmanager
def _package_sent(session: SparkSession) -> Iterator[None]:
    """Executors import the driver's own build while the block runs; the file that they fetch it from goes after it."""
    if is_local(session.sparkContext.master):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="anew-package-", dir=_folder_of(session)) as folder:
        package, before = write_package(Path(folder) / f"anew-{build_of_package()}.zip"), list(sys.path)
        session.sparkContext.addPyFile(str(package))
        # It was put into the driver's own path as well.
        sys.path[:] = before
        yield


@contextmanager
def send_modules(session: SparkSession, archive: bytes) -> Iterator[None]:
    """Executors import the modules of a zip while the block runs; the driver's own path stays as it is."""
    with tempfile.TemporaryDirectory(prefix="anew-modules-", dir=_folder_of(session)) as folder:
        path, before = Path(folder) / "modules.zip", list(sys.path)
        path.write_bytes(archive)
        session.sparkContext.addPyFile(str(path))
        sys.path[:] = before
        yield


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
