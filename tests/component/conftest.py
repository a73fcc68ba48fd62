"""Component tests that start processes say so: ``make check`` leaves them out, and no other may start any."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

_SERVERS = {"postgresql", "minio", "brokers", "spark"}
"""Fixtures of the whole run: whoever asks for one needs its processes, whichever test happens to start them."""
_started: list[str] = []
_popen, _start = subprocess.Popen.__init__, BaseProcess.start


def _noted_popen(self: subprocess.Popen[Any], args: Any, *more: Any, **named: Any) -> None:
    _started.append(str(args))
    _popen(self, args, *more, **named)


def _noted_start(self: BaseProcess) -> None:
    _started.append(self.name)
    _start(self)


def pytest_configure() -> None:
    """Note each start from here on."""
    subprocess.Popen.__init__ = _noted_popen  # type: ignore[method-assign]  # for this run
    BaseProcess.start = _noted_start  # type: ignore[method-assign]  # for this run


def pytest_unconfigure() -> None:
    """Note no more."""
    subprocess.Popen.__init__ = _popen  # type: ignore[method-assign]  # as it was
    BaseProcess.start = _start  # type: ignore[method-assign]  # as it was


def pytest_itemcollected(item: pytest.Item) -> None:
    """What asks for a server starts processes."""
    if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker("processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What the fixtures of a file start counts for the test that comes first."""
    _started.clear()


@pytest.fixture(autouse=True)
def _starts_no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if _started and request.node.get_closest_marker("processes") is None:
        pytest.fail(f"found: a start of {_started[0]}; expected: pytestmark = pytest.mark.processes in this file")
