"""Stores on three brokers, of which one dies or stands still; nodes, drivers and Spark's workers that die on Kafka."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anew.brokers.cluster import Brokers
from tests.crash.crashing import Crashing
from tests.crash.halts import FILES
from tests.kafka.faults.stores import SCAN, Stores, crashing_on, leader_of

pytestmark = pytest.mark.timeout(600)

_STILL_SECONDS = 30.0


@pytest.fixture(scope="module")
def running(three: Brokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashing]:
    """A cluster of two nodes on three brokers."""
    with crashing_on(three, tmp_path_factory.mktemp("faults")) as crashing:
        yield crashing


@pytest.fixture
def stores(running: Crashing, cluster: Brokers) -> Stores:
    """Stores on it; all brokers run again before the next test."""
    running.await_healthy()
    return Stores(running, cluster)


def test_writes_and_their_application_outlast_the_leader_and_a_node(stores: Stores) -> None:
    """SIGKILL of the leader under writers, nodes go on without it; and of a node while it is gone."""
    with stores.proved("led") as account:
        leader = leader_of(stores.brokers, "led_rt")
        stores.brokers.kill(leader)
        account.await_writes()
        assert leader_of(stores.brokers, "led_rt") != leader
        stores.await_applied(account)
        os.kill(stores.crashing.pid("node-1"), signal.SIGKILL)
        account.await_writes()
        stores.brokers.restart(leader)


def test_a_scan_outlasts_the_leader(stores: Stores, tmp_path: Path) -> None:
    """SIGKILL of the leader while a repush reads from it, under writers."""
    with stores.proved("scanned") as account:
        with stores.driven("scanned", tmp_path, SCAN) as (driver, halt):
            halt.wait()
            leader = leader_of(stores.brokers, "scanned_rt")
            stores.brokers.kill(leader)
            halt.go_on()
            printed, _ = driver.communicate(timeout=240)
        assert driver.returncode == 0, printed
        assert json.loads(printed)["version"] == 2
        account.await_writes()
        stores.brokers.restart(leader)
    account.check("--version", "2")


def test_a_worker_of_spark_that_dies_fails_its_build_alone(stores: Stores, tmp_path: Path) -> None:
    """SIGKILL of a Python worker that has read the log, in a local Spark, which tries nothing twice: it says so."""
    with stores.proved("worked") as account:
        with stores.driven("worked", tmp_path, FILES) as (driver, halt):
            halt.kill()
            printed, _ = driver.communicate(timeout=240)
        assert driver.returncode == 1, printed
        assert json.loads(printed)["error"]["code"] == "build_failed"
        stores.crashing.await_status("worked", 2, "failed", "retired", "reclaimed")
        assert stores.crashing.current("worked") == 1
        account.await_writes(50)


def test_a_broker_may_stand_still_for_long(stores: Stores) -> None:
    """SIGSTOP of the leader for 30 s under writers: writes go on without it, and after it came back."""
    with stores.proved("still") as account:
        leader = leader_of(stores.brokers, "still_rt")
        stores.brokers.kill(leader, signal.SIGSTOP)
        over = threading.Event()
        timer = threading.Timer(_STILL_SECONDS, over.set)
        timer.start()
        account.await_writes()
        assert leader_of(stores.brokers, "still_rt") != leader
        stores.await_applied(account)
        over.wait()
        stores.brokers.kill(leader, signal.SIGCONT)
        account.await_writes()
