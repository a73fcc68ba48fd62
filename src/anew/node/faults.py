"""What a disk, a database or the machine does to one replica or segment, in this project's words.

An error that says nothing of the base or of the data is `Unreachable`: the same may work again in a moment, or on
another node, so that it is no reason to give a version up.
"""

from __future__ import annotations

import errno

from anew.core.errors import AnewError, Failed, Unreachable
from anew.loops.guarded import said_of
from anew.storage.rocks import RocksError

OF_THE_MACHINE = frozenset({"disk_full", "disk_failed", "out_of_memory"})
"""Codes of what is wrong with the machine, and not with one replica."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_OF_DAMAGE = ("Corruption", "NotFound", "No such file or directory")
_ROCKS_NO_SPACE = "No space left on device"


def is_damage(error: AnewError) -> bool:
    """Whether an error says that files of a replica are damaged or gone: the same again will fail again."""
    return error.code == "storage_broken" and any(word in str(error) for word in _OF_DAMAGE)


def fault_of(error: Exception) -> AnewError:
    """An error of whatever kind as one that can be told: ours as it is, a full disk and a failing one by name."""
    if isinstance(error, AnewError) and _ROCKS_NO_SPACE not in str(error):
        return error
    said = said_of(error)
    if _ROCKS_NO_SPACE in said or (isinstance(error, OSError) and error.errno in _NO_SPACE):
        return Unreachable("disk_full", "the node's disk is full", found=said, hint="free some space on that machine")
    if isinstance(error, OSError):
        return Unreachable(
            "disk_failed", "the node's disk does not work", found=said, hint="look at the machine's disk"
        )
    if isinstance(error, MemoryError):
        hint = "give the machine more, or the node less to hold"
        return Unreachable("out_of_memory", "the node has no memory left", found=said, hint=hint)
    if isinstance(error, RocksError):
        return Failed("storage_broken", "RocksDB cannot read or write a replica", found=said, hint="it is loaded again")
    return Failed("unforeseen", "the node failed in a way that it does not know", found=said, hint="see its log")
