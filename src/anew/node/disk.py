"""The disk of a node: that it is full is told at once, and not only when something fails for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from anew.api.models import NodeFault

LEAST_FREE_BYTES = 1 << 20
"""With less than this nothing that a node writes is sure to find room: its positions, a memtable, a segment."""


@dataclass(slots=True)
class DiskWatch:
    """Looks at the disk whenever it is asked; safe to use from several threads."""

    directory: Path
    clock: Callable[[], int]
    _since_ms: int | None = field(default=None)

    def faults(self) -> tuple[NodeFault, ...]:
        """That the disk is full, with since when; nothing while it has room."""
        try:
            found = os.statvfs(self.directory)
        except OSError:
            # What is wrong with the directory is told by whatever cannot write there.
            return ()
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        if free >= LEAST_FREE_BYTES:
            self._since_ms = None
            return ()
        self._since_ms = self.clock() if self._since_ms is None else self._since_ms
        what = f"the disk of {self.directory} is full: {free} of {size} bytes are free"
        hint = "free some space there: replicas go on by themselves"
        return (NodeFault(code="disk_full", what=what, since_ms=self._since_ms, hint=hint),)
