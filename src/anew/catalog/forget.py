"""What the catalog is to forget, as values: the oldest rows of a kind, a bounded number of them at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args


@dataclass(frozen=True, slots=True)
class ForgetHistory:
    """Lines of history from before a time."""

    before_ms: int
    most: int


@dataclass(frozen=True, slots=True)
class ForgetRequests:
    """Request ids from before a time, but for those that made a rebuild that runs."""

    before_ms: int
    most: int


@dataclass(frozen=True, slots=True)
class ForgetPastVersions:
    """Past versions that left before a time; with a store's uid only those of this store."""

    before_ms: int
    most: int
    store_uid: str | None = None


@dataclass(frozen=True, slots=True)
class ForgetDeadLetters:
    """A store's dead letters that were set aside, from before a time.

    Attributes:
        below: Feed and partition → only those below this offset, none of other partitions. None: all.
    """

    before_ms: int
    most: int
    store_uid: str
    below: dict[tuple[str, int], int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForgetSegments:
    """Segments of a table that was deleted."""

    table_uid: str
    most: int


@dataclass(frozen=True, slots=True)
class ForgetRebuilds:
    """Rebuilds by their ids, and what became of their parts: of these, those that have ended and no request names.

    Attributes:
        ids: The oldest first; see `Catalog.unnamed_rebuilds`.
    """

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetRebuildsOf:
    """The rebuilds of a store or table that was deleted, and what became of their parts.

    Attributes:
        named_from_ms: Requests from before this time do not count: they are due themselves. Each other request keeps
            the rebuild that it names.
    """

    subject_uid: str
    most: int
    named_from_ms: int = 0


Forget = (
    ForgetHistory
    | ForgetRequests
    | ForgetPastVersions
    | ForgetDeadLetters
    | ForgetSegments
    | ForgetRebuilds
    | ForgetRebuildsOf
)
FORGETS: tuple[type[Forget], ...] = get_args(Forget)


@dataclass(frozen=True, slots=True)
class DropStore:
    """Take out a deleted store, if its revision is still ``fence``; its name keeps its version numbers (rule R16)."""

    uid: str
    fence: int


@dataclass(frozen=True, slots=True)
class DropTable:
    """Take out a deleted table that has no segment any more, if its revision is still ``fence``."""

    uid: str
    fence: int


@dataclass(frozen=True, slots=True)
class DropTopic:
    """Take out a deleted topic, if its revision is still ``fence``."""

    uid: str
    fence: int


@dataclass(frozen=True, slots=True)
class DropJob:
    """Take out a deleted job with the records of its batches, if its revision is still ``fence``.

    Its name keeps its generation numbers (rule R20): what they wrote may still be there.
    """

    uid: str
    fence: int
