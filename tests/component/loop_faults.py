"""What each step of a guarded loop is made to raise, and how soon it must be told and be over."""

from __future__ import annotations

import errno

from anew.storage.rocks import RocksError

TOLD_SECONDS, MENDED_SECONDS = 5.0, 10.0
LOOP_ERRORS: dict[str, Exception] = {
    "a failing disk": OSError(errno.EIO, "Input/output error"),
    "a full disk": OSError(errno.ENOSPC, "No space left on device"),
    "RocksDB": RocksError("Corruption: block checksum mismatch"),
    "no memory": MemoryError("no memory is left"),
    "unforeseen": ZeroDivisionError("nobody foresaw this"),
}
