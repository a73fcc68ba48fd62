"""A real Spark standalone cluster for tests: a master and two workers as processes, from PySpark's own ``spark-class``.

Each process runs under a guard of its own (`tests.guarded`), so that none outlives the test run, in a directory of
its own, in an environment that knows nothing of this project. Executors are processes of the workers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from tests.cluster.commands import wait_until
from tests.guarded import Guarded
from tests.java import SPARK
from tests.processes import kill_children

_HOSTS = ("127.0.0.1", "127.0.0.2")
"""Of the workers: Spark runs no speculative copy of a task on the host of the first one."""
_HOME = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")


class _Server(Guarded):
    """One process of the cluster: a class of Spark's on one of this machine's addresses."""

    def __init__(self, name: str, host: str, *arguments: str) -> None:
        """Start it."""
        super().__init__(f"spark-{name}")
        command = [str(_HOME / "bin" / "spark-class"), *arguments, "--host", host, "--webui-port", "0"]
        self.launch(command, _environment(host))

    def await_word(self, word: str) -> None:
        """Wait until it says something."""
        wait_until(lambda: word in self.log, f"Spark to say {word!r}; it said {self.log[-1_000:]}")


class SparkCluster:
    """A running cluster. Workers can be killed and come back."""

    def __init__(self) -> None:
        """Start it, and wait until both workers belong to it."""
        self._master = _Server("master", _HOSTS[0], _MASTER, "--port", "0")
        self._workers: dict[str, _Server] = {}
        self.url = ""
        self._master.await_word("Starting Spark master at ")
        found = _ADDRESS.search(self._master.log)
        assert found is not None
        self.url = found[1]
        self.heal()

    @property
    def conf(self) -> dict[str, str]:
        """Settings with which several drivers find room: each gets an executor of one core on either worker."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.extraJavaOptions": SPARK.options,
        }

    @property
    def options(self) -> list[str]:
        """The same as arguments of a command."""
        return ["--master", self.url, *(part for k, v in self.conf.items() for part in ("--conf", f"{k}={v}"))]

    def heal(self) -> None:
        """Make sure that two workers are there."""
        gone = [host for host in _HOSTS if host not in self._workers or not self._workers[host].runs]
        for host in gone:
            if host in self._workers:
                self._workers[host].remove()
            # One more than a driver on each needs: those of a session that lost one worker may both be on the other.
            own = ("--cores", "3", "--memory", "2g", self.url)
            self._workers[host] = _Server("worker", host, _WORKER, *own)
        for host in gone:
            self._workers[host].await_word("Successfully registered with master")

    def kill_worker_of(self, pid: int) -> None:
        """SIGKILL to the worker, with all that it started, under which a process runs."""
        above = {process.pid for process in psutil.Process(pid).parents()}
        (guard,) = [worker.guard_pid for worker in self._workers.values() if worker.guard_pid in above]
        kill_children(guard)

    def kill_workers(self) -> None:
        """SIGKILL to both workers and all that they started."""
        for worker in self._workers.values():
            kill_children(worker.guard_pid)

    def stop(self) -> None:
        """End everything."""
        for server in (*self._workers.values(), self._master):
            server.remove()


def _environment(host: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        # With -Xrs the guard's signals end Java as they end other programs.
        "SPARK_DAEMON_JAVA_OPTS": f"-Xrs {SPARK.options}",
    }


@contextmanager
def spark_standalone() -> Iterator[SparkCluster]:
    """A running cluster, which is gone in the end."""
    cluster = SparkCluster()
    try:
        yield cluster
    finally:
        cluster.stop()


def bare_python(folder: Path, *also: Path) -> Path:
    """An interpreter that has all packages that are installed here, but not anew, and what lies in some folders."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    # A folder named in a .pth file is searched; .pth files in it, such as that of an editable installation, are not.
    paths = [*also, *(Path(path) for path in sys.path if path.endswith("site-packages"))]
    (site / "elsewhere.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    return folder / "bin" / "python"
