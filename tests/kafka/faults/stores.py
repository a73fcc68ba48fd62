"""Stores of a cluster of anew on brokers that are harmed, and the account that is kept of them meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from anew.api.http import ControllerClient
from anew.brokers.cluster import Brokers
from tests.cluster.account import Account, under_load
from tests.cluster.commands import Anew
from tests.crash.crashing import FORGETFUL, Crashing
from tests.crash.halts import FILES, Halt, Halts
from tests.kafka.clusters import running_on
from tests.kafka.topics import QUIET
from tests.ports import port_of
from tests.processes import kill_family

SCAN = "anew.log.kafka.kafka_log:KafkaLog.read"
"""A task of a repush reads from the log, in a Python worker of Spark."""
_PORT = "kafka faults"


@contextmanager
def crashing_on(brokers: Brokers, folder: Path, **more: str) -> Iterator[Crashing]:
    """A cluster of two nodes whose processes may be made to die; ``more`` are variables."""
    url = f"http://127.0.0.1:{port_of(_PORT)}"
    running = running_on(
        brokers, _PORT, folder / "home", reclaim_grace_seconds=1, ANEW_LEASE_SECONDS="15", **FORGETFUL, **more
    )
    with running as anew, ControllerClient(url, timeout_seconds=10) as controller:
        yield Crashing(anew, Halts(folder), controller)


def leader_of(brokers: Brokers, topic: str) -> int:
    """The broker that leads a topic's first partition now."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap}, logger=QUIET)
    leader: int = admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader
    return leader


@dataclass(frozen=True, slots=True)
class Stores:
    """A cluster of anew whose log is on three brokers."""

    crashing: Crashing
    brokers: Brokers

    @property
    def anew(self) -> Anew:
        """Its commands."""
        return self.crashing.anew

    @contextmanager
    def proved(self, name: str) -> Iterator[Account]:
        """A store under load of writers and a reader; afterwards exactly what was acknowledged is there.

        No read fails meanwhile. It is looked for in all replicas, and in a version made from the log once more.
        """
        store = self.crashing.store(name)
        with under_load(self.anew, store, 2) as account:
            account.await_writes()
            yield account
            account.await_writes(50)
            self.crashing.await_healthy()
        account.check()
        assert self.anew.run_here("store", "verify", store).code == 0
        self.anew.here("repush", store)
        account.check()
        assert self.anew.here("store", "show", store)["dead_letters"] == 0

    def await_applied(self, account: Account) -> None:
        """Wait until readers see all that is acknowledged by now."""
        self.anew.here("store", "wait", account.store, "--position", account.position)

    @contextmanager
    def driven(self, store: str, directory: Path, point: str) -> Iterator[tuple[subprocess.Popen[str], Halt]]:
        """A repush as a process of its own, which stops before the point; it and its workers are gone afterwards."""
        halts = Halts(directory)
        halt = halts.arm(point, "before")
        points = {**halts.environment, "HALT_POINTS": f"{SCAN},{FILES}"}
        anew = Anew(self.anew.home, {**self.anew.extra, **points})
        driver = anew.start("repush", store, "--json", start_new_session=True)
        try:
            yield driver, halt
        finally:
            halts.disarm()
            kill_family(driver.pid)
            driver.communicate()
