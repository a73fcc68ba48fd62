"""How a process gets others at its side: from a helper that has imported what they need, in milliseconds.

A fresh interpreter would take a second of processor time for its imports each time, and fork alone may not be used
where threads run. The helper is started with the first such process, has no threads, and ends with its parent.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

REMOVED = 77
"""The exit code of a node that the controller has removed: its supervisor does not start it again."""
_IMPORTED = ["anew.node.loadjob", "anew.node.loader", "anew.node.tables.fetchjob", "anew.sql.sandbox"]
"""What most of these processes need; one that is told to run something else imports the rest itself."""


def processes_at_side() -> ForkServerContext:
    """Where processes at this one's side come from; each ends its work when its parent does."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context
