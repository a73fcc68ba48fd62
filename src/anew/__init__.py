"""Rebuild derived data from what you already hold, on Spark, while readers go on reading.

``connect`` opens a running cluster; everything else hangs on what it returns. ``job`` and ``Input`` declare a stream
job where its function is written; ``Code`` and ``Start`` say which function a generation has, and where it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anew.core.jobs.declaration import Input, job
    from anew.runtime.connect import Cluster, connect
    from anew.runtime.jobplans import Code, Start

__all__ = ["Cluster", "Code", "Input", "Start", "connect", "job"]

_MODULES = {
    "Cluster": "anew.runtime.connect",
    "Code": "anew.runtime.jobplans",
    "Input": "anew.core.jobs.declaration",
    "Start": "anew.runtime.jobplans",
    "connect": "anew.runtime.connect",
    "job": "anew.core.jobs.declaration",
}
"""Where each name is: Spark is imported only by those who connect, not by every process of the cluster."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'anew' has no attribute {name!r}")
