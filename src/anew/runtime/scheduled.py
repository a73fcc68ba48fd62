"""A scheduled repush as a process of its own: ``python -m anew.runtime.scheduled URL STORE REQUEST_ID LOG``.

The controller launches it. It plans when it runs, so that it reads what there is by then; the request id makes of two
launches of one start one rebuild.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from anew.core.errors import AnewError
from anew.core.planning import RepushRequest
from anew.rebuild.planner import make_checked_repush_plan
from anew.runtime.connect import SparkChoice, connect_with
from anew.runtime.logs import log_to_file
from anew.runtime.settings import resolve


def launcher(url: str, logs: Path) -> Callable[[str, str], None]:
    """What starts a driver for a store under a request id, writing below ``logs``."""
    children: list[subprocess.Popen[bytes]] = []

    def launch(store: str, request_id: str) -> None:
        # Those that ended are collected here; nobody waits for one.
        children[:] = [child for child in children if child.poll() is None]
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{request_id}.log"
        with log.with_suffix(".out").open("wb") as printed:
            child = subprocess.Popen(
                [sys.executable, "-m", "anew.runtime.scheduled", url, store, request_id, str(log)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                env={**os.environ, "ANEW_URL": url},
                start_new_session=True,
            )
        children.append(child)

    return launch


def main(url: str, store: str, request_id: str, log: str) -> int:
    """Plan and run; returns the exit code of the face."""
    settings = resolve({"url": url})
    log_to_file(Path(log), "scheduled", settings.text("log_level"))
    try:
        with connect_with(settings) as cluster:
            plan = make_checked_repush_plan(cluster.controller, store, RepushRequest())
            cluster.run_plan(plan, SparkChoice(), None, request_id)
    except AnewError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
