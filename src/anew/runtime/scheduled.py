"""A scheduled rebuild as a process of its own: ``python -m anew.runtime.scheduled URL WHAT NAME REQUEST_ID LOG``.

WHAT is ``store``, for a repush, ``table``, for a refresh, or ``job``, for the driver of a generation ``JOB@NUMBER``.

The controller launches it. A rebuild is planned when it runs, so that it reads what there is by then; the request id
makes of two launches of one start one rebuild.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from anew.core.errors import AnewError
from anew.core.jobs.rebuild import JOB
from anew.core.plan import PlanValue
from anew.core.stores.rebuild import STORE
from anew.core.tables.rebuild import TABLE
from anew.runtime.connect import Cluster, connect_with
from anew.runtime.driverprocesses import MODULE
from anew.runtime.logs import log_to_file
from anew.runtime.security import keep_files_private
from anew.runtime.settings import resolve
from anew.runtime.sparkchoice import SparkChoice


def _planned(plan: Callable[[Cluster, str], PlanValue]) -> Callable[[Cluster, str, str], None]:
    def run(cluster: Cluster, name: str, request_id: str) -> None:
        cluster.run_plan(plan(cluster, name), SparkChoice(), None, request_id)

    return run


def _driven(cluster: Cluster, name: str, _request_id: str) -> None:
    job, _, number = name.partition("@")
    cluster.drive_generation(job, int(number))


_STARTED: dict[str, Callable[[Cluster, str, str], None]] = {
    STORE: _planned(lambda cluster, name: cluster.plan_repush(name)),
    TABLE: _planned(lambda cluster, name: cluster.plan_refresh(name)),
    JOB: _driven,
}
"""What is started, by the kind of the subject: its plan, or the driver of a generation ``JOB@NUMBER``."""


def launcher(url: str, logs: Path, token_file: Path | None) -> Callable[[str, str, str], None]:
    """What starts a driver for a subject, by its kind and name, under a request id.

    Args:
        url: The controller's.
        logs: Where drivers write.
        token_file: Where the token is that they show; None: none is asked for.
    """
    shown = {} if token_file is None else {"ANEW_TOKEN_FILE": str(token_file)}
    children: list[subprocess.Popen[bytes]] = []

    def launch(kind: str, name: str, request_id: str) -> None:
        # Those that ended are collected here; nobody waits for one.
        children[:] = [child for child in children if child.poll() is None]
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = logs / f"{request_id}.log"
        with log.with_suffix(".out").open("wb") as printed:
            child = subprocess.Popen(
                [sys.executable, "-m", MODULE, url, kind, name, request_id, str(log)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                env={**os.environ, **shown, "ANEW_URL": url},
                start_new_session=True,
            )
        children.append(child)

    return launch


def main(url: str, kind: str, name: str, request_id: str, log: str) -> int:
    """Plan and run; returns the exit code of the face."""
    keep_files_private()
    settings = resolve({"url": url})
    log_to_file(Path(log), "scheduled", settings.text("log_level"))
    try:
        with connect_with(settings) as cluster:
            cluster.driver_log = log
            _STARTED[kind](cluster, name, request_id)
    except AnewError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
