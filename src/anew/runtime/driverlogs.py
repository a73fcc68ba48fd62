"""What drivers of generations logged in this home: ``logs/<rebuild>-e<epoch>-<revision>.log``, and ``.out``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LOG = re.compile(r"(?P<rebuild>[0-9a-f]{32})-e[0-9]+-[0-9]+\.(log|out)")
KEPT_LOGS = 40
"""So many files of a generation that is not over stay: those of its last twenty drivers."""


@dataclass(frozen=True, slots=True)
class HomeLogs:
    """See `anew.controller.engine.context.DriverLogs`.

    Attributes:
        folder: Where drivers log.
        clock: The time in ms.
    """

    folder: Path
    clock: Callable[[], int]

    def rebuilds(self) -> list[str]:
        """See `DriverLogs.rebuilds`."""
        found = (_LOG.fullmatch(path.name) for path in self.folder.glob("*-e*"))
        return sorted({match["rebuild"] for match in found if match is not None})

    def trim(self, rebuild_id: str, *, is_over: bool, older_ms: int) -> None:
        """See `DriverLogs.trim`."""
        paths = [path for path in self.folder.glob(f"{rebuild_id}-e*") if _LOG.fullmatch(path.name)]
        newest_first = sorted(paths, key=_modified_ms, reverse=True)
        for path in newest_first[0 if is_over else KEPT_LOGS :]:
            if self.clock() - _modified_ms(path) > older_ms:
                path.unlink(missing_ok=True)


def _modified_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
