"""Rebuild derived data from what you already hold, on Spark, while readers go on reading.

``connect`` opens a running cluster; everything else hangs on what it returns. ``job`` and ``Input`` declare a stream
job where its function is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anew.core.jobs.declaration import Input, job
    from anew.runtime.connect import Cluster, connect

__all__ = ["Cluster", "Input", "connect", "job"]


def __getattr__(name: str) -> Any:
    # Spark is imported only by those who connect, not by every process of the cluster.
    if name in ("Input", "job"):
        from anew.core.jobs import declaration

        return getattr(declaration, name)
    if name in __all__:
        from anew.runtime import connect as module

        return getattr(module, name)
    raise AttributeError(f"module 'anew' has no attribute {name!r}")
