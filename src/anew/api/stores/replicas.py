"""What nodes are to hold of stores, and what they say of it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from anew.api.wire import Wire
from anew.core.feed import Feed, Position, PositionMap
from anew.core.stores.store import Frozen, ManifestRef


class ReplicaState(StrEnum):
    """How far a node is with a replica."""

    PENDING = "pending"
    LOADING = "loading"
    APPLYING = "applying"
    ERROR = "error"


class ReplicaReport(Wire):
    """What a node says of one replica.

    ``position`` covers just the feed partitions that the replica reads; ``lag_records`` sums what lies between it and
    the ends that the node saw last; ``lag_ms`` is 0 at the end of the log (rule R17). ``store_revision`` is the one of
    the store by which the node was last told to hold it. ``error_code`` is that of the error by which it is in the
    state ``error``, or waits; for ``stuck_ms`` it has had a reason not to get on. ``arrived``: since it was opened it
    has been at the ends of all that it reads; before that nobody knows how much it lacks. ``fresh``: it was made of a
    base and has never been there; it answers no reads until it has.
    """

    store_uid: str
    version: int
    partition: int
    sub_partition: int = 0
    state: ReplicaState
    store_revision: int = 0
    position: Position = Field(default_factory=PositionMap)
    lag_records: int = 0
    lag_ms: int = 0
    rows: int = 0
    records_per_s: float = 0.0
    error: str | None = None
    error_code: str | None = None
    stuck_ms: int = 0
    arrived: bool = True
    fresh: bool = False


class DeadLetter(Wire):
    """A record that no version applies (rule R21)."""

    store_uid: str
    feed: str
    partition: int
    offset: int
    reason: str


class UnknownSchema(Wire):
    """A record that a node waits at, because it does not know the schema of its value (rule R21)."""

    store_uid: str
    feed: str
    partition: int
    offset: int
    schema_id: int


class DesiredVersion(Wire):
    """A version of which the node holds partitions."""

    number: int
    config: Frozen
    feeds: tuple[str, ...]
    start: Position
    stop: Position | None
    ttl_floor_ms: int
    tombstone_floor_ms: int
    manifest: ManifestRef
    partitions: tuple[int, ...]


class DesiredStore(Wire):
    """A store of which the node holds replicas. ``current`` is the version that its fabric serves, 0 for none."""

    uid: str
    name: str
    revision: int
    current: int
    key_schema: str
    schemas: dict[int, str]
    feeds: tuple[Feed, ...]
    reads: bool
    versions: tuple[DesiredVersion, ...]
