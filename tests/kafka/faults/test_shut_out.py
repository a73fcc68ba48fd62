"""A broker that is shut out of its own cluster for moments, as after it stood still: it says that there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from anew.brokers.configuration import BrokerFolder, BrokerSettings
from tests.brokers import RunningBrokers, running_brokers
from tests.cluster.commands import wait_until
from tests.kafka.faults.load import Load, loaded

_SHUT_OUT = "Fencing broker 1 "
_TIMES = 3
_LOADS = 6
_RARE_HEARTBEATS = {"broker.heartbeat.interval.ms": "4000", "broker.session.timeout.ms": "2000"}
"""It says too seldom that it is there: of each four seconds it is shut out for two."""


@pytest.fixture
def flickering() -> Iterator[RunningBrokers]:
    """The only broker of a cluster, which is shut out again and again."""
    with running_brokers(BrokerSettings(1, extra=_RARE_HEARTBEATS)) as running:
        yield running


@pytest.mark.case("rules:R3")
def test_clients_find_a_broker_again_that_knew_of_none(flickering: RunningBrokers) -> None:
    """However often a broker has answered that there is no broker, writers and readers go on once it lets them."""
    with ExitStack() as stack:
        loads = [stack.enter_context(loaded(flickering.cluster.bootstrap, f"shut_out_{n}", 1)) for n in range(_LOADS)]
        for _ in range(_TIMES):
            _await_shut_out(flickering)
            for load in loads:
                load.writer.await_appends(5)
                _await_read(load)
        for load in loads:
            load.check()


def _await_shut_out(broker: RunningBrokers) -> None:
    log = BrokerFolder(broker.brokers, 1).log

    def times() -> int:
        return log.read_text(encoding="utf-8").count(_SHUT_OUT)

    before = times()
    wait_until(lambda: times() > before, "the broker to be shut out once more")


def _await_read(load: Load) -> None:
    """Wait until what has been appended so far was read."""
    ends = {0: max([*load.writer.account.acknowledged[0]], default=-1) + 1}
    load.reader.await_ends(ends)
