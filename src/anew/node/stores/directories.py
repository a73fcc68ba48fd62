"""Where replicas lie on a node's disk, and what opens them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from anew.core.errors import Failed, Unreachable
from anew.core.feed import FeedPartition
from anew.node.faults import fault_of
from anew.node.keeping import replace_file
from anew.node.stores.holding import ReplicaKey
from anew.storage.memory import NodeMemory
from anew.storage.replica import Replica, remove_replica

_BESIDE = "-beside"
_VERDICT = "to-be-replaced.json"
_OF_THE_MACHINE, _DAMAGE = "IO error", "Corruption"
_log = structlog.get_logger("anew.node")


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of a node's replicas.

    Attributes:
        root: In which all of them lie.
    """

    root: Path

    def of(self, key: ReplicaKey) -> tuple[Path, Path]:
        """Where a replica may lie: one that is loaded again lies beside the one that it replaces."""
        first = self.root / key.path
        return first, first.with_name(f"{first.name}{_BESIDE}")

    def other(self, key: ReplicaKey, directory: Path) -> Path:
        """Of the two places of a replica the one in which it does not lie."""
        first, second = self.of(key)
        return second if directory == first else first

    def take_away(self, directory: Path) -> None:
        """Remove one, and those around it that hold nothing more: each would be looked into for ever."""
        remove_replica(directory)
        for around in directory.parents:
            if around == self.root:
                return
            try:
                around.rmdir()
            except OSError:
                return

    def tidy(self) -> None:
        """Remove what holds nothing: runs before left it."""
        for depth in ("*/v*/p*-s*", "*/v*", "*"):
            for left in self.root.glob(depth):
                with suppress(OSError):
                    left.rmdir()

    def sweep(self, keys: Iterable[ReplicaKey]) -> None:
        """Remove what is of no such replica."""
        kept = {str(directory) for key in keys for directory in self.of(key)}
        for directory in self.root.glob("*/v*/p*-s*/*"):
            if str(directory) not in kept:
                self.take_away(directory)
                _log.info("leftover_removed", directory=str(directory))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a replica is to be replaced, kept in its directory: a restart neither forgives it nor forgets the other one.

    Attributes:
        why: The reason.
        lost: Feed partitions of which it has applied what the log has lost. Read on from there once the log has grown,
            what was written in the lost records' place would be missed (rule R3).
        by: The name of the directory beside it in which the other one is made; None while none is.
    """

    why: str
    lost: tuple[FeedPartition, ...] = ()
    by: str | None = None


def keep_verdict(directory: Path, verdict: Verdict) -> None:
    """Write one down, durably.

    Raises:
        OSError: The disk does not take it.
    """
    lost = [[at.feed, at.partition] for at in verdict.lost]
    replace_file(directory / _VERDICT, json.dumps({"why": verdict.why, "lost": lost, "by": verdict.by}).encode())


def read_verdict(directory: Path) -> Verdict | None:
    """The one that was written down of the replica in a directory; None where there is none."""
    try:
        found = json.loads((directory / _VERDICT).read_bytes())
        lost = tuple(FeedPartition(str(feed), int(partition)) for feed, partition in found["lost"])
        return Verdict(str(found["why"]), lost, found["by"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Verdict(f"why it is to be replaced cannot be read: {error}")


def forget_verdict(directory: Path) -> None:
    """It goes on."""
    with suppress(OSError):
        (directory / _VERDICT).unlink(missing_ok=True)


def open_replica(directory: Path, memory: NodeMemory, manifest: str, *, is_patient: bool) -> Replica | None:
    """The replica of a manifest that lies in a directory; None where there is none.

    Args:
        directory: Where.
        memory: The node's.
        manifest: The checksum of the manifest.
        is_patient: What RocksDB says of a file that it cannot open is taken to be of the machine, and over soon.

    Raises:
        Failed: ``storage_broken``: there is one, and it is damaged.
        Unreachable: It cannot be opened now, for reasons of the machine, which it outlives.
    """
    try:
        return Replica.open_existing(directory, memory, manifest)
    except Failed as error:
        fault = fault_of(error)
        if isinstance(fault, Unreachable):
            raise fault from None
        if is_patient and _OF_THE_MACHINE in str(error) and _DAMAGE not in str(error):
            hint = "look at the machine's disk, and at its limit of open files"
            raise Unreachable("disk_failed", "a replica cannot be opened", found=str(error), hint=hint) from None
        _log.error("replica_broken", directory=str(directory), error=str(error))  # it says it all
        raise


def unopened(directory: Path, manifest: str) -> Failed:
    """What was just loaded of a manifest is not there."""
    return Failed(
        "storage_broken",
        "what was just loaded cannot be opened",
        found=str(directory),
        expected=f"an instance of {manifest}",
        hint="the node loads the replica again",
    )
