"""The record of a rebuild of a store: the making of one version."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from anew.core.ledger import Ledger
from anew.core.rebuild import Rebuild, SubjectId
from anew.core.stores.plan import Plan
from anew.core.stores.store import RebuildKind

STORE = "store"
"""What the face calls the subject of these rebuilds."""


class Fingerprints(BaseModel):
    """The sums of row hashes of what was read and merged, and of what the files hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: int
    target: int


class StoreRebuild(Rebuild):
    """One making of a version by a push or a repush."""

    kinds: ClassVar = tuple(kind for kind in RebuildKind if kind is not RebuildKind.STREAM_REPROCESSING)

    kind: RebuildKind
    store: str
    store_uid: str
    version: int
    plan: Plan
    ledger: Ledger | None = None
    fingerprint: Fingerprints | None = None

    @property
    def makes(self) -> str:
        """The version."""
        return f"version {self.version}"

    @property
    def subject(self) -> SubjectId:
        """The store."""
        return SubjectId(STORE, self.store_uid, self.store)
