"""The wire models of a verification: what a caller and a node say to each other about replicas at one position.

Two steps, so that a verification comes to its end however fast writes arrive: (1) the node lets all replicas of the
version stand where they are; (2) the caller reads the ends of the log, which no standing replica can have passed, and
the node lets each replica go on to exactly there, where it keeps a checkpoint and is free again.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from anew.api.wire import Request, Wire
from anew.core.feed import NOWHERE, Position
from anew.segments.manifest import BaseFile

MAX_ENTRIES = 10_000
MAX_WAIT_SECONDS = 5.0


class VerifyStage(StrEnum):
    """How far a node is with a verification."""

    ASKED = "asked"
    HELD = "held"
    REACHING = "reaching"
    SCANNING = "scanning"
    DONE = "done"


class PartState(StrEnum):
    """How far one replica is; from ``done`` on it is final."""

    HELD = "held"
    REACHING = "reaching"
    SCANNING = "scanning"
    DONE = "done"
    PAST_POSITION = "past_position"
    NOT_REACHED = "not_reached"
    NOT_APPLYING = "not_applying"
    FAILED = "failed"
    DAMAGED = "damaged"


class Buckets(Wire):
    """Count of rows and sum of their hashes modulo 2**64 of each bucket of key hashes."""

    counts: tuple[int, ...]
    sums: tuple[int, ...]


class VerifiedReplica(Wire):
    """What a node says of one replica; rows to buckets are there once it is done."""

    partition: int
    sub_partition: int
    state: PartState
    position: Position = NOWHERE
    rows: int | None = None
    tombstones: int | None = None
    buckets: Buckets | None = None
    error: str | None = None


class VerifyView(Wire):
    """A verification on one node."""

    job: str
    node: str
    stage: VerifyStage
    replicas: tuple[VerifiedReplica, ...] = ()


class AimVerify(Request):
    """Up to where each replica is to go: the next offset of each feed partition that any of them reads."""

    position: Position = Field(examples=[{"dc-0/flights_rt#1": {"0": 12}}])


class ExportReplica(Request):
    """Write a replica that stood at the position as a base file.

    Attributes:
        path: Where to, below the store's own directory in the node's deep store; nothing is overwritten.
        base_only: Leave out what the version's feeds brought after its start: what is left is the base, wherever no
            write has taken the place of one of its rows.
    """

    partition: int = Field(ge=0)
    sub_partition: int = Field(ge=0)
    path: str
    base_only: bool = False


class ExportedReplica(Wire):
    """What was written; no file where there was no row.

    Attributes:
        dictionary: The compression dictionary that the replica holds, in base64.
    """

    file: BaseFile | None
    position: Position
    dictionary: str | None = None


class EntriesPage(Wire):
    """Keys (hex) and row hashes of some buckets of one replica, in key order; ``next_after`` goes on, None: the end."""

    keys: tuple[str, ...]
    hashes: tuple[int, ...]
    next_after: str | None = None
