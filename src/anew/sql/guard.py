"""Giving up, for good, a process's right to write: Linux's Landlock, which needs no privileges.

DuckDB's own settings do not keep a query from writing over a file that it may read: ``COPY … TO`` an allowed path
works. Statements are checked before they run; this is what holds when that check has a gap.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_O_PATH = 0o10000000

# Rights over files, by the bit that stands for each.
_WRITE_FILE, _REMOVE_DIRECTORY, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_TCP = 0b11


class Guard(StrEnum):
    """What keeps a process from writing files."""

    LANDLOCK = "landlock"
    FILE_SIZE = "file_size"


def forbid_writing(except_below: Sequence[str] = ()) -> Guard:
    """Take from this thread, and all that it starts, the right to write, make, cut or remove any file.

    It is for a process that has one thread yet: others that run already keep their rights. TCP goes as well where the
    kernel can take it. Where the kernel has no Landlock nothing can be written into files, but one may still be cut
    to nothing: then the checks of statements, and files that are read-only, are all there is.

    Args:
        except_below: Folders in which it may write.

    Returns:
        What holds from now on.
    """
    version = _landlock_version()
    if version > 0 and _restrict(version, except_below):
        return Guard.LANDLOCK
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if not except_below:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return Guard.FILE_SIZE


def _landlock_version() -> int:
    try:
        return int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))
    except (OSError, AttributeError):
        return -1


def _restrict(version: int, except_below: Sequence[str]) -> bool:
    libc = _libc()
    rights = _WRITE_FILE | _REMOVE_DIRECTORY | _REMOVE_FILE | _MAKE
    rights |= _REFER if version >= 2 else 0
    rights |= _TRUNCATE if version >= 3 else 0
    attributes = struct.pack("=QQ", rights, _TCP) if version >= 4 else struct.pack("=Q", rights)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for folder in except_below:
            _allow(ruleset, folder, rights)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, folder: str, rights: int) -> None:
    """Let the rights be used below a folder.

    Raises:
        OSError: The folder is not there.
    """
    place = os.open(folder, _O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, place)
        if _libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0)) != 0:
            raise OSError(ctypes.get_errno(), "cannot be excepted from the guard", folder)
    finally:
        os.close(place)


def yield_to_others(niceness: int) -> None:
    """Lower this process's priority, and offer it first when the machine runs out of memory."""
    os.nice(niceness)
    try:
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    except OSError:
        # Other systems have no such file; what it would do is a courtesy.
        return


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
