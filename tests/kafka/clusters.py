"""Clusters of anew whose log is a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anew.brokers.cluster import Brokers
from tests.cluster.commands import Anew
from tests.ports import port_of


@contextmanager
def running_on(brokers: Brokers, name: str, home: Path, *, reclaim_grace_seconds: int, **more: str) -> Iterator[Anew]:
    """A controller on the port of that name, and two nodes, as long as the context lasts; ``more`` are variables."""
    settings = {
        **more,
        "ANEW_PORT": str(port_of(name)),
        "ANEW_LOG": f"kafka://{brokers.bootstrap}",
        "ANEW_RECLAIM_GRACE_SECONDS": str(reclaim_grace_seconds),
    }
    anew = Anew(home, settings)
    anew.done("up", "--detach", "--nodes", "2")
    try:
        yield anew
    finally:
        anew.run("down")
