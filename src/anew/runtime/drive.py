"""A driver as a process of its own: ``python -m anew.runtime.drive ORDER`` runs the plan of an order file.

`start_driver` writes the order and starts the process; it outlives whoever started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from anew.api.rebuilds import RebuildView
from anew.core.errors import AnewError, Failed
from anew.core.plan import PlanValue
from anew.core.rebuild import parse_plan
from anew.runtime.connect import Cluster, connect_with
from anew.runtime.logs import log_to_file
from anew.runtime.security import keep_files_private, write_private
from anew.runtime.settings import resolve
from anew.runtime.sparkchoice import SparkChoice

_BEGIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a detached driver is to do.

    Attributes:
        plan: The plan as JSON.
        log: Where the driver writes its events.
    """

    plan: str
    request_id: str
    master: str | None
    conf: dict[str, str]
    url: str
    log: str


def start_driver(cluster: Cluster, plan: PlanValue, spark: SparkChoice, request_id: str, folder: Path) -> RebuildView:
    """Start a driver for a plan and wait until its rebuild exists; returns the ``rebuild`` shape.

    Raises:
        Failed: ``driver_not_started``, with the last thing that it said.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = folder / f"driver-{plan.id}.log"
    conf = {} if spark.conf is None else dict(spark.conf)
    order = Order(plan.model_dump_json(), request_id, spark.master, conf, cluster.url, str(log))
    file = folder / f"order-{request_id}.json"
    write_private(file, json.dumps(asdict(order)))
    output = log.with_suffix(".out")
    with output.open("wb") as printed:
        driver = subprocess.Popen(
            [sys.executable, "-m", "anew.runtime.drive", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            env={**os.environ, "ANEW_URL": cluster.url},
            start_new_session=True,
        )
    deadline, pause = time.monotonic() + _BEGIN_SECONDS, threading.Event()
    while time.monotonic() < deadline:
        found = cluster.controller.begun_by(request_id)
        if found:
            return found[0]
        if driver.poll() is not None:
            break
        pause.wait(0.1)
    words = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise Failed(
        "driver_not_started",
        "the driver did not begin the rebuild",
        found=words[-1] if words else "it said nothing",
        expected="a rebuild that runs",
        hint=f"look into {output}",
    )


def main(path: str) -> int:
    """Run the order in a file; returns the exit code of the face."""
    keep_files_private()
    file = Path(path)
    order = Order(**json.loads(file.read_text(encoding="utf-8")))
    file.unlink()
    settings = resolve({"url": order.url})
    log_to_file(Path(order.log), "driver", settings.text("log_level"))
    choice = SparkChoice(master=order.master, conf=order.conf)
    try:
        with connect_with(settings) as cluster:
            cluster.driver_log = order.log
            cluster.run_plan(parse_plan(order.plan), choice, None, order.request_id)
    except AnewError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
