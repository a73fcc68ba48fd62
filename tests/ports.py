"""Ports for the clusters of tests: fixed ones, so that a run finds what an earlier one left behind."""

from __future__ import annotations

import os

_FIRST = 7810
_OF_ONE_WORKER = 180
_OF_ONE_CLUSTER = 10
"""The controller's port, and those after it for the nodes."""
_CLUSTERS = (
    "shared",
    "lone",
    "elsewhere",
    "docs",
    "security",
    "demo",
    "crashing",
    "full",
    "never started",
    "kafka",
    "kafka demo",
    "kafka faults",
    "kafka registry",
    "kafka topics",
    "tables demo",
    "tables crashing",
    "job histories",
)


def port_of(cluster: str) -> int:
    """The first port of a cluster of tests; other workers of the same run have others."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return _FIRST + worker * _OF_ONE_WORKER + _CLUSTERS.index(cluster) * _OF_ONE_CLUSTER
