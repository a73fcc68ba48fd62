"""Brokers that die or stand still under writers and readers: nothing acknowledged is lost, nothing comes twice."""

from __future__ import annotations

import signal
import threading

import pytest

from anew.brokers.cluster import Brokers
from tests.kafka.faults.load import TIMEOUT_SECONDS, loaded

_STILL_SECONDS = 30.0


@pytest.mark.case("rules:R3")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_was_acknowledged_outlasts_any_broker(cluster: Brokers, number: signal.Signals) -> None:
    """Each of three brokers in turn is killed, or stands still: writes go on without it, and after it came back."""
    with loaded(cluster.bootstrap, f"outlasting_{number.name}", 3) as load:
        load.writer.await_appends(20)
        for broker in cluster.record.brokers:
            cluster.kill(broker, number)
            # Of three in turn, so that those that it led are led by others now.
            load.writer.await_appends(60)
            if number is signal.SIGSTOP:
                cluster.kill(broker, signal.SIGCONT)
            else:
                cluster.restart(broker)
            load.writer.await_appends(20)
        load.check()


def test_the_only_broker_may_stand_still_for_long(brokers: Brokers) -> None:
    """Stopped for 30 s, longer than operations may take, nothing is acknowledged; afterwards all goes on."""
    assert _STILL_SECONDS > 2 * TIMEOUT_SECONDS
    with loaded(brokers.bootstrap, "standing_still", 3) as load:
        load.writer.await_appends(20)
        brokers.kill(1, signal.SIGSTOP)
        try:
            threading.Event().wait(_STILL_SECONDS)
            account = load.writer.account
            before = account.appends
            assert account.unknown + account.not_done >= 2, "operations ended in their time, and said so"
        finally:
            brokers.kill(1, signal.SIGCONT)
        load.writer.await_appends(20)
        assert before >= 20
        load.check()
