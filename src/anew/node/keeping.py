"""Files that a node keeps over a restart."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from anew.api.models import DesiredState
from anew.deepstore.copies import sync

_log = structlog.get_logger("anew.node.keeping")


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
    sync(path.parent)


def save_desired(path: Path, desired: DesiredState) -> None:
    """Keep a desired state for a restart without controller; whole or not at all."""
    replace_file(path, desired.model_dump_json().encode())


def read_desired(path: Path) -> DesiredState | None:
    """The desired state that was kept, or None."""
    try:
        return DesiredState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.error("kept_state_broken", path=str(path), error=str(error))  # it says it all
        return None
