"""Files that a node keeps over a restart."""

from __future__ import annotations

import os
from pathlib import Path

import structlog
from pydantic import BaseModel

from anew.api.models import DesiredState
from anew.deepstore.copies import sync

_log = structlog.get_logger("anew.node.keeping")


class _Kept(BaseModel):
    """A desired state, and the directory in which it was kept."""

    kept_in: str
    desired: DesiredState


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
    replace_file(path, _Kept(kept_in=_place(path), desired=desired).model_dump_json().encode())


def read_desired(path: Path) -> DesiredState | None:
    """The desired state that was kept in this directory, or None.

    In a copy of a directory it is none: it names the log and the deep store of the cluster that it was copied from.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        kept = _Kept.model_validate_json(content)
    except ValueError:
        return _kept_without_place(path, content)
    if kept.kept_in != _place(path):
        _log.warning("kept_state_passed_over", found=kept.kept_in, expected=_place(path))
        return None
    return kept.desired


def _kept_without_place(path: Path, content: bytes) -> DesiredState | None:
    """What an earlier release kept."""
    try:
        return DesiredState.model_validate_json(content)
    except ValueError as error:
        _log.error("kept_state_broken", path=str(path), error=str(error))  # it says it all
        return None


def _place(path: Path) -> str:
    return str(path.parent.resolve())
