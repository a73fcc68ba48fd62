"""Driving in the foreground of a terminal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from anew.core.errors import Refused
from anew.runtime.foreground import driven_beside


@pytest.fixture(autouse=True)
def in_a_terminal() -> Iterator[None]:
    """A shell without job control starts what it puts aside with SIGINT ignored, and so may this process be."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _ctrl_c() -> None:
    """To the main thread, as a terminal sends it."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def test_ctrl_c_stops_it_and_its_end_is_waited_for() -> None:
    """The driver goes on until it is told to stop, and then to its end."""
    stopped, told = threading.Event(), list[str]()

    def drive() -> None:
        _ctrl_c()
        assert stopped.wait(20)
        told.append("ended")

    driven_beside(drive, stopped.set)
    assert told == ["ended"]


def test_what_is_stopped_before_it_has_begun_is_no_failure() -> None:
    """The controller turns it away: that is what was asked for. Without a stop it is a failure, as any other is."""
    stopped = threading.Event()

    def refuse() -> None:
        raise Refused("generation_stopped", "it is not to run")

    def late() -> None:
        _ctrl_c()
        assert stopped.wait(20)
        refuse()

    driven_beside(late, stopped.set)
    with pytest.raises(Refused):
        driven_beside(refuse, stopped.set)
