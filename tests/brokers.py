"""Real Kafka brokers for tests: the product's own, in directories of their own, and never left behind."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from anew.brokers.cluster import Brokers, start
from anew.brokers.configuration import BrokerSettings
from anew.brokers.java import broker_java
from anew.core.errors import AnewError, Refused
from tests import broker_keeper
from tests.cluster.commands import wait_until
from tests.guarded import Guarded
from tests.java import KAFKA
from tests.needs import missing

ENVIRONMENT = {"JDK_JAVA_OPTIONS": KAFKA.options}
"""Of every process of a test that starts brokers, and of these: they start with half the processor time."""

_ONE = BrokerSettings(1)


class BrokerHome(Guarded):
    """A home whose brokers end with the test run, whoever started them: the tests, or commands that they ran."""

    def __init__(self) -> None:
        """Make the home, and have it watched."""
        super().__init__("kafka")
        self.path.mkdir(mode=0o700)
        self.launch([sys.executable, broker_keeper.__file__, str(self.brokers)])
        wait_until(lambda: broker_keeper.READY in self.log or not self.runs, "the keeper of brokers")

    @property
    def path(self) -> Path:
        """The home: ``ANEW_HOME``."""
        return self.directory / "home"

    @property
    def brokers(self) -> Path:
        """Where the brokers of this home lie."""
        return self.path / "kafka"


class RunningBrokers(BrokerHome):
    """Brokers that run, for as long as a test leaves them alone.

    Attributes:
        cluster: They.
    """

    cluster: Brokers

    @property
    def pid(self) -> int:
        """The process id of the first."""
        pid = self.cluster.pid(1)
        assert pid is not None
        return pid


def check_needs() -> None:
    """Skip the test, or fail it where none may be skipped, when this machine cannot run brokers."""
    try:
        broker_java()
    except AnewError as error:
        missing("Kafka", " ".join(str(error).split()))


@contextmanager
def broker_home() -> Iterator[BrokerHome]:
    """A home without brokers; they end with it."""
    check_needs()
    home = BrokerHome()
    try:
        yield home
    finally:
        home.remove()


@contextmanager
def running_brokers(settings: BrokerSettings = _ONE) -> Iterator[RunningBrokers]:
    """Running brokers: one, unless the settings say otherwise; they end with the block."""
    check_needs()
    running = RunningBrokers()
    try:
        running.cluster = start(running.brokers, quickly(settings))
        yield running
    finally:
        running.remove()


def quickly(settings: BrokerSettings) -> BrokerSettings:
    """The same, with `ENVIRONMENT` for each broker."""
    variables = {id: {**ENVIRONMENT, **settings.environment.get(id, {})} for id in range(1, settings.brokers + 1)}
    return replace(settings, environment=variables)


def heal(cluster: Brokers) -> None:
    """Have all brokers run again, and know one another, whatever a test did to them."""
    for broker in cluster.record.brokers:
        with suppress(Refused):
            cluster.kill(broker, signal.SIGCONT)
        if cluster.pid(broker) is None:
            cluster.restart(broker)
    wait_until(lambda: cluster.status().healthy, "all brokers to be there again")
