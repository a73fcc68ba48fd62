"""Whether a partition of the embedded log has changed, told by the file system alone: nothing is opened for it.

A node follows more partitions than it can hold open (a hybrid store has 24), and nearly all of them are still.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_COARSE_SECONDS = 2.5
"""Longer than two writes can be apart whose files have the same times: file systems count in 2 s at the coarsest."""

_Look = tuple[int, ...]
_NO_LOOK: _Look = ()


@dataclass(slots=True)
class Stillness:
    """The end of a partition as it was read last, and what its files looked like before that.

    Every change is written to the write-ahead log, whose times move by it. Only an end that was read when the files had
    looked the same for a while is trusted: what is written later has another time then.

    Attributes:
        path: Of the partition's file.
        end: The offset; -1 before it was read.
    """

    path: Path
    end: int = -1
    _written: Path = field(init=False)
    _seen: _Look = _NO_LOOK
    _since_seconds: float = 0.0
    _trusted: bool = False

    def __post_init__(self) -> None:
        """Changes are written beside the file first."""
        self._written = self.path.with_name(f"{self.path.name}-wal")

    def holds(self, offset: int) -> bool:
        """Whether the partition still ends there; False when that must be read."""
        return self._trusted and offset == self.end and self.look() == self._seen

    def look(self) -> tuple[int, ...]:
        """What the files look like now; to be taken before the end is read. Empty while there is no file."""
        try:
            file = self.path.stat()
        except OSError:
            return _NO_LOOK
        try:
            log = self._written.stat()
        except OSError:
            log = None
        # Whoever opens the file first makes an empty write-ahead log, and whoever closes it last removes it.
        written = (0, 0, 0) if log is None or not log.st_size else (log.st_ino, log.st_size, log.st_mtime_ns)
        return (file.st_ino, file.st_size, file.st_mtime_ns, *written)

    def note(self, end: int, look: tuple[int, ...], now_seconds: float) -> None:
        """Keep the end that was read after that look, at a monotonic time."""
        if (end, look) != (self.end, self._seen):
            self.end, self._seen, self._since_seconds = end, look, now_seconds
        self._trusted = bool(look) and now_seconds - self._since_seconds >= _COARSE_SECONDS
