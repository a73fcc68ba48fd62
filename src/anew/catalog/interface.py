"""The catalog that the controller is written against."""

from __future__ import annotations

from typing import Protocol

from anew.catalog.change import Change, KnownRequest, NodeRecord, Operation, Reclaim
from anew.core.rebuild import Rebuild
from anew.core.store import Store


class Catalog(Protocol):
    """The metadata database. Safe to call from several threads and processes; every method may block on I/O.

    Errors common to all: `Unreachable` code ``catalog_unreachable`` when the database does not answer in time (nothing
    was changed), `OutcomeUnknown` code ``commit_unknown`` when the answer to a commit was lost. `commit` then looks the
    operation up by itself, and leaves it unknown only while the catalog does not answer at all.
    """

    def revision(self) -> int:
        """Grows with every commit and every change of a node's report that matters to others."""

    def commit(self, change: Change) -> bool:
        """Apply a change, all or nothing; stores and rebuilds get the next revision.

        Returns:
            False when an operation of that id was committed before (nothing is done again), else True.

        Raises:
            Refused: ``revision_conflict``: somebody else was faster; load, decide and try again.
            Refused: ``store_exists``: a store of that name is there already.
            Refused: ``catalog_not_empty``: what `CheckEmpty` asks for is not so.
            InvalidRequest: ``request_id_reused``: the request id is known with another body.
        """

    def put_rebuild(self, rebuild: Rebuild, fence: int) -> None:
        """Replace a rebuild without a line of history: signs of life and progress.

        Raises:
            Refused: ``revision_conflict``.
        """

    def store(self, name: str) -> Store | None:
        """The live store of that name."""

    def store_by_uid(self, uid: str) -> Store | None:
        """The store of that identity, deleted or not."""

    def stores(self) -> list[Store]:
        """All live stores by name."""

    def deleted_stores(self) -> list[Store]:
        """Stores that were deleted and still have something to reclaim."""

    def next_version(self, name: str) -> int:
        """The first version number that no store of this name has used (rule R16); 1 for a new name."""

    def next_number(self, sequence: str) -> int:
        """A number from a named sequence that is never given again (schema ids, incarnations), from 1."""

    def rebuild(self, rebuild_id: str) -> Rebuild | None:
        """The rebuild of that id."""

    def rebuilds(self, *, store_uid: str | None, running_only: bool) -> list[Rebuild]:
        """Rebuilds, newest first; of one store, or of all for None."""

    def request(self, request_id: str) -> KnownRequest | None:
        """What the request id made."""

    def put_node(self, node: NodeRecord) -> None:
        """Keep a node's report."""

    def nodes(self) -> list[NodeRecord]:
        """All nodes that were not removed."""

    def reclaims(self, due_at_ms: int | None) -> list[Reclaim]:
        """Intents to reclaim, all or those whose grace has ended."""

    def flags(self) -> dict[str, str]:
        """All flags that are set: name → value."""

    def dead_letter_counts(self) -> dict[str, int]:
        """How many dead letters each store (uid) has."""

    def history(self, subject: str | None, limit: int) -> list[Operation]:
        """The last operations, newest first."""

    def close(self) -> None:
        """Let go of connections."""
