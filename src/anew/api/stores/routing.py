"""What planners and clients are told of a store."""

from __future__ import annotations

from typing import Any

from pydantic import Field, computed_field, model_validator

from anew.api.location import LogLocation
from anew.api.wire import Wire
from anew.core.feed import NOWHERE, Feed, Position
from anew.core.plan import Pace
from anew.core.stores.store import Frozen, Store


class SnapshotView(Wire):
    """`anew.core.stores.planning.Snapshot` on the wire, with the feeds' offsets at a time that was asked for."""

    store: Store
    ends: Position = NOWHERE
    at_time: Position = NOWHERE
    unreachable: dict[str, str] = Field(default_factory=dict)
    base_files: dict[int, int] = Field(default_factory=dict)
    pace: Pace | None = None
    now_ms: int
    read_until_ms: int = 0
    to_come_ms: dict[str, int] = Field(default_factory=dict)


class RoutedVersion(Wire):
    """What a client needs to address a version: how it places keys, and partition → nodes that hold it."""

    partitions: int
    partitioner: str
    config: Frozen
    replicas: dict[int, tuple[str, ...]]


class Routing(Wire):
    """All that a client caches about a store. ``revision`` never goes back (rule R17).

    Attributes:
        shares: Version → the share of reads that ask it, all together 1; none before the first version.
        fed_by: The generations of jobs that feed what is read most, ``clicks@3``.
    """

    name: str
    uid: str
    revision: int
    fabric: str
    shares: dict[int, float]
    key_schema: str
    schemas: dict[int, str]
    versions: dict[int, RoutedVersion]
    nodes: dict[str, str]
    feed: Feed | None
    fed_by: tuple[str, ...] = ()
    log: LogLocation
    reads: bool
    writes: bool
    max_value_bytes: int

    @model_validator(mode="before")
    @classmethod
    def _of_any_release(cls, stated: Any) -> Any:
        """A controller of an earlier release names the current version alone."""
        if not isinstance(stated, dict) or "shares" in stated or "current" not in stated:
            return stated
        return {**stated, "shares": {stated["current"]: 1.0} if stated["current"] else {}}

    @computed_field  # type: ignore[prop-decorator]  # pydantic asks for a property below it
    @property
    def current(self) -> int:
        """The version that most reads ask, the youngest of these; 0 before the first."""
        return max(self.shares, key=lambda number: (self.shares[number], number), default=0)
