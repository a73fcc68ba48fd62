"""The cluster that histories run in, beside one another: processes, halts, and one Spark session for repushes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from anew.core.errors import Refused
from anew.runtime.connect import Cluster, connect_with
from anew.runtime.settings import resolve
from tests.cluster.commands import Anew
from tests.crash.crashing import FORGETFUL
from tests.crash.halts import Halts
from tests.ports import port_of

_SETTINGS = {"ANEW_LEASE_SECONDS": "20", "ANEW_RECLAIM_GRACE_SECONDS": "1", **FORGETFUL}
_NODES = "1"
_PLANS = 5
_PATIENT = {"timeout_seconds": "120"}
"""Of those who ask: three JVMs that start at once keep a busy machine from everything else for half a minute."""


@dataclass(frozen=True, slots=True)
class Place:
    """A running cluster.

    Attributes:
        cluster: It, as programs see it; safe for several threads.
        halts: Where drivers can be made to stand still.
        spark: For repushes.
        repushing: Repushes take turns.
        halting: So do deaths at a point: one driver at a time can be told from others there.
    """

    cluster: Cluster
    halts: Halts
    spark: SparkSession
    repushing: threading.Lock = field(default_factory=threading.Lock)
    halting: threading.Lock = field(default_factory=threading.Lock)

    def repush(self, store: str) -> None:
        """Repush a store; from a new plan where upkeep took away the feed of a generation that is over meanwhile."""
        with self.repushing:
            for left in reversed(range(_PLANS)):
                try:
                    self.cluster.run(self.cluster.plan_repush(store), spark=self.spark)
                except Refused as error:
                    if error.code != "plan_outdated" or not left:
                        raise
                else:
                    return


@contextmanager
def running_place(folder: Path, spark: SparkSession, log: dict[str, str]) -> Iterator[Place]:
    """A controller and a node as processes, for as long as the block lasts.

    Args:
        folder: Where all of it lies.
        spark: A session of this process.
        log: Settings that name another log than the embedded one; empty for that.
    """
    halts = Halts(folder / "halts")
    halts.folder.mkdir()
    settings = {**_SETTINGS, **log, "ANEW_PORT": str(port_of("job histories"))}
    anew = Anew(folder / "home", {**settings, **halts.environment})
    anew.done("up", "--detach", "--nodes", _NODES)
    try:
        with connect_with(resolve({"home": str(anew.home), **_PATIENT})) as cluster:
            yield Place(cluster, halts, spark)
    finally:
        halts.disarm()
        anew.run("down")
