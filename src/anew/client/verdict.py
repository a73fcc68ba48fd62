"""What a verification found: the answer of ``anew store verify``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from anew.core.errors import AnewError, Failed, Unreachable
from anew.core.feed import Position
from anew.core.fingerprint import Fingerprint

DEFAULT_TIMEOUT_SECONDS = 600.0
"""How long nodes may take."""
_EXAMPLES = 5

Kind = Literal["missing", "left over", "different"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Expected(_Value):
    """What base ⊕ feeds holds in one place; the fingerprint as 16 hex digits."""

    partition: int
    sub_partition: int
    rows: int
    tombstones: int
    fingerprint: str

    @classmethod
    def of(cls, place: tuple[int, int], found: Fingerprint) -> Expected:
        """That of a fingerprint."""
        return cls(
            partition=place[0],
            sub_partition=place[1],
            rows=found.rows,
            tombstones=found.tombstones,
            fingerprint=shown(found),
        )


class ReplicaVerdict(_Value):
    """One replica beside what is expected; ``equal`` is None, and ``error`` says why, where it is not known.

    ``damaged``: its files cannot be read; the node loads it again.
    """

    node: str
    partition: int
    sub_partition: int
    rows: int | None = None
    tombstones: int | None = None
    fingerprint: str | None = None
    equal: bool | None = None
    error: str | None = None
    damaged: bool = False

    @classmethod
    def of(cls, node: str, place: tuple[int, int], found: Fingerprint, expected: Fingerprint) -> ReplicaVerdict:
        """That of a replica whose fingerprint is known."""
        return cls(
            node=node,
            partition=place[0],
            sub_partition=place[1],
            rows=found.rows,
            tombstones=found.tombstones,
            fingerprint=shown(found),
            equal=found == expected,
        )

    @classmethod
    def unverified(cls, node: str, place: tuple[int, int], error: str, *, is_damaged: bool = False) -> ReplicaVerdict:
        """That of a replica of which nothing is known."""
        return cls(node=node, partition=place[0], sub_partition=place[1], error=error, damaged=is_damaged)


class Difference(_Value):
    """A key that a replica holds otherwise than base ⊕ feeds: ``key`` in plain JSON, hex where it is no key."""

    partition: int
    sub_partition: int
    node: str
    key: Any
    kind: Kind


class Verification(_Value):
    """What was found.

    Attributes:
        position: Where all replicas were compared: feed partition → next offset.
        equal: Whether every replica is known to hold what base ⊕ feeds does.
        differences: The first of them; ``difference_count`` counts all.
        error: Why it is not equal: ``replicas_differ``, ``replica_damaged``, or else ``replicas_unverified``.
    """

    store: str
    version: int
    fabric: str
    position: Position
    equal: bool
    replicas: tuple[ReplicaVerdict, ...]
    expected: tuple[Expected, ...]
    differences: tuple[Difference, ...]
    difference_count: int
    error: AnewError | None = None

    def to_json(self) -> dict[str, Any]:
        """The shape of ``anew store verify --json``."""
        error = None if self.error is None else self.error.to_json()
        return self.model_dump(mode="json", exclude={"error"}) | {"error": error}


def shown(fingerprint: Fingerprint) -> str:
    """A fingerprint as people and programs see it: 16 hex digits."""
    return f"{fingerprint.total:016x}"


def verdict_error(store: str, verdicts: Sequence[ReplicaVerdict], differences: int) -> AnewError | None:
    """Why the replicas are not equal, or not known to be; None when they are."""
    wrong = [_name(verdict) for verdict in verdicts if verdict.equal is False]
    if wrong:
        return Failed(
            "replicas_differ",
            f"{len(wrong)} of {len(verdicts)} replicas of {store} are not base ⊕ feeds: {differences} keys differ",
            found=", ".join(wrong[:_EXAMPLES]),
            expected="equal fingerprints",
            hint="remove the replica's directory on that node and restart the node: it loads again",
        )
    damaged = [verdict for verdict in verdicts if verdict.damaged]
    if damaged:
        return Failed(
            "replica_damaged",
            f"{len(damaged)} of {len(verdicts)} replicas of {store} are damaged",
            found=_reasons(damaged),
            expected="files that can be read from beginning to end",
            hint="their nodes load them again by themselves: anew status; then verify again",
        )
    unknown = [verdict for verdict in verdicts if verdict.equal is None]
    if unknown:
        return Unreachable(
            "replicas_unverified",
            f"{len(unknown)} of {len(verdicts)} replicas of {store} could not be verified",
            found=_reasons(unknown),
            expected="an answer of every node",
            hint="anew node list",
        )
    return None


def _reasons(verdicts: Sequence[ReplicaVerdict]) -> str:
    """What is said of the first ones."""
    return "; ".join(f"{_name(verdict)}: {verdict.error}" for verdict in verdicts[:_EXAMPLES])


def _name(verdict: ReplicaVerdict) -> str:
    return f"{verdict.node}/{verdict.partition}.{verdict.sub_partition}"
