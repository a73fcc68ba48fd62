"""How a process gets others at its side: from a helper that has imported what they need, in milliseconds.

A fresh interpreter would take a second of processor time for its imports each time, and fork alone may not be used
where threads run. The helper is started with the first such process, has no threads, and ends with its parent.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

_imported: list[str] = []
"""What the one helper of this process imports when it starts."""


def import_beforehand(*modules: str) -> None:
    """Let the helper import modules by these names, also those that were named before.

    Call it before the first process is started: a helper that runs imports nothing more. A process that runs something
    else imports it itself, which takes longer and shares no memory.
    """
    _imported.extend(module for module in modules if module not in _imported)


def processes_at_side(*modules: str) -> ForkServerContext:
    """Where processes at this one's side come from; each ends its work when its parent does.

    Args:
        modules: What the process that is about to be started needs; see `import_beforehand`.
    """
    import_beforehand(*modules)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_imported))
    return context
