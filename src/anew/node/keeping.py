"""Files that a node keeps over a restart."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file, whole or not at all, durably before it returns.

    Raises:
        OSError: The disk does not take it; what was there stays.
    """
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
