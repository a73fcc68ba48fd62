"""The wire models of controller and nodes. Fields are only ever added."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, SerializeAsAny, computed_field, model_validator
from typing_extensions import TypedDict

from anew.api.rebuilds import AnyRebuildView
from anew.api.segments import DesiredTable, SegmentReport
from anew.api.stores import StoreView
from anew.api.tableviews import TableView
from anew.api.wire import Request, Wire, example
from anew.core.feed import NOWHERE, Feed, Position, PositionMap
from anew.core.ledger import Ledger
from anew.core.plan import Pace, PlanValue
from anew.core.rebuild import DriverTrouble, Progress, Stage
from anew.core.stores.plan import Plan
from anew.core.stores.rebuild import Fingerprints
from anew.core.stores.store import Frozen, ManifestRef, Store

MAX_HOLD_SECONDS = 600


# -- stores ----------------------------------------------------------------------------------------------------------


class CreateStore(Request):
    """Make a store. Schemas are Avro texts; the same ``request_id`` with the same body is the same store."""

    model_config = example(
        name="flights",
        key_schema='"string"',
        value_schema='{"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}',
        settings={"partitions": 8, "hybrid": True},
        request_id="create-flights-1",
    )

    name: str
    key_schema: str
    value_schema: str
    settings: dict[str, str | int | bool | None] = Field(default_factory=dict)
    partitioner_source: str | None = None
    request_id: str | None = None


class UpdateStore(Request):
    """Change settings, or add a value schema; with a partitioner of one's own goes the source of its module."""

    model_config = example(settings={"compression": "zstd", "owner": "data-platform"})

    settings: dict[str, str | int | bool | None] = Field(default_factory=dict)
    partitioner_source: str | None = None
    value_schema: str | None = None


class Swap(Request):
    """Make a version current; no fabrics means all of the store's."""

    model_config = example(version=8, fabrics=["dc-0"], dry_run=True)

    version: int
    fabrics: tuple[str, ...] = ()
    dry_run: bool = False
    force: bool = False


class RollBack(Request):
    """Go back to a version; None means the newest backup."""

    model_config = example(to=7, dry_run=False)

    to: int | None = None
    fabrics: tuple[str, ...] = ()
    dry_run: bool = False
    force: bool = False


class Pause(Request):
    """Pause a store, or everything for None, or let it go on."""

    model_config = example(store="flights")

    store: str | None = None


class Collect(Request):
    """Collect what nobody needs, of a store or of all for None."""

    model_config = example(store="flights", dry_run=True)

    store: str | None = None
    dry_run: bool = False


class RestoreCatalog(Request):
    """Make a lost catalog again from what lies in the deep stores; the same ``request_id`` is the same restore."""

    model_config = example(dry_run=True, request_id="restore-1")

    dry_run: bool = False
    request_id: str | None = None


class DrainNode(Request):
    """Let a node's replicas move to others, or (``undo``) let it be used again.

    Attributes:
        force: Also where the other nodes are too few to take them all, so that redundancy is lost.
    """

    model_config = example(undo=False, force=False)

    undo: bool = False
    force: bool = False


class HoldVersion(Request):
    """Keep a version for a long read: for so long from now, at most `MAX_HOLD_SECONDS` at a time; renew it to go on.

    A read that says which hold is its own, by an id that no other one has, lets go of it with 0 seconds.
    """

    model_config = example(version=7, seconds=120)

    version: int
    seconds: int = Field(ge=0, le=MAX_HOLD_SECONDS)
    hold: str | None = Field(default=None, max_length=100)


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


class RoutedVersion(Wire):
    """What a client needs to address a version: how it places keys, and partition → nodes that hold it."""

    partitions: int
    partitioner: str
    config: Frozen
    replicas: dict[int, tuple[str, ...]]


class LogLocation(Wire):
    """Where a fabric's log is: ``embedded`` with a directory, or ``kafka`` with addresses of brokers.

    Attributes:
        properties_file: Where whoever opens it finds settings of TLS and SASL, unless its own settings say otherwise.
    """

    kind: str
    address: str
    properties_file: str | None = None

    def through(self, brokers: str) -> LogLocation:
        """The same log as other brokers, or other listeners, of its cluster give it (case A9)."""
        return LogLocation(kind="kafka", address=brokers, properties_file=self.properties_file)


class Routing(Wire):
    """All that a client caches about a store. ``revision`` never goes back (rule R17).

    Attributes:
        shares: Version → the share of reads that ask it, all together 1; none before the first version.
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


# -- rebuilds --------------------------------------------------------------------------------------------------------


class BeginRebuild(Request):
    """Begin what a plan says, of whatever kind; the same ``request_id`` with the same plan is the same rebuild."""

    plan: SerializeAsAny[PlanValue]
    request_id: str
    driver: str = ""


class ResumeRebuild(Request):
    """Take a rebuild over whose driver is gone."""

    model_config = example(driver="ops@host:4711")

    driver: str = ""


class Heartbeat(Request):
    """A driver's sign of life; its stage only moves forward."""

    model_config = example(
        epoch=1, stage="build", progress={"done": 3, "total": 24, "unit": "tasks", "records": 1_500_000}
    )

    epoch: int
    stage: Stage
    progress: Progress = Progress()
    troubles: tuple[DriverTrouble, ...] = ()


class HeartbeatAnswer(Wire):
    """Whether the driver is to go on."""

    kill_asked: bool
    lease_until_ms: int


class Seal(Request):
    """The base is complete: commit its manifest. Repeating the same is the same."""

    epoch: int
    manifest: ManifestRef
    ledger: Ledger
    fingerprint: Fingerprints
    records_per_s: float
    start: Position | None = None


class FinishRebuild(Request):
    """The driver is done: with every segment of its plan, or whatever else its rebuild is of."""

    model_config = example(epoch=1, records_per_s=900_000.0)

    epoch: int
    records_per_s: float | None = None


class EndRebuild(Request):
    """The driver gives up (``error``), or somebody asks for the rebuild to be killed (error None)."""

    model_config = example(epoch=1, error="the input file has no column key")

    epoch: int | None = None
    error: str | None = None


class Outcome(Wire):
    """How a rebuild stands: the ``rebuild`` shape of the face. ``ledger`` maps entries to rows."""

    id: str
    kind: str
    store: str
    version: int
    status: str
    stage: str
    plan: Plan
    ledger: dict[str, int] | None
    fingerprint: dict[str, str] | None
    timings: dict[str, float]
    records_per_s: float | None
    error: str | None


# -- nodes -----------------------------------------------------------------------------------------------------------


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


class LoopTrouble(Wire):
    """A loop of a process that does not get on; see `anew.loops.guarded.Trouble`."""

    loop: str
    error: str
    since_ms: int
    failures: int


class NodeFault(Wire):
    """Something that is wrong with a node as a whole, and what a person can do about it."""

    code: str
    what: str
    since_ms: int
    hint: str


class NodeReport(Wire):
    """What a node holds: the whole of it each time."""

    node: str
    fabric: str
    url: str
    started_at_ms: int
    replicas: tuple[ReplicaReport, ...]
    dead_letters: tuple[DeadLetter, ...] = ()
    unknown_schemas: tuple[UnknownSchema, ...] = ()
    segments: tuple[SegmentReport, ...] = ()
    loops: tuple[LoopTrouble, ...] = ()
    faults: tuple[NodeFault, ...] = ()


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


class DesiredState(Wire):
    """What a node should hold; what is not in it is to be removed. ``revision`` never goes back."""

    revision: int
    fabric: str
    log: LogLocation
    deep_store: str
    stores: tuple[DesiredStore, ...]
    tables: tuple[DesiredTable, ...] = ()


class NodeView(Wire):
    """A node as the controller sees it."""

    id: str
    fabric: str
    url: str
    alive: bool
    last_seen_ms: int
    replicas: int
    states: dict[str, int]
    drained: bool = False


# -- status ----------------------------------------------------------------------------------------------------------


class Problem(Wire):
    """Something unhealthy: what, since when, and the command that comes next."""

    what: str
    since_ms: int | None
    hint: str


class ClusterInfo(Wire):
    """Where the parts of a fabric are; drivers and clients open log and deep store themselves."""

    fabric: str
    log: LogLocation
    deep_store: str
    release: str


class ControllerState(TypedDict):
    """The controller that answers, and the catalog's revision that it has seen."""

    release: str
    revision: int


class StatusView(Wire):
    """The answer of ``anew status``; ``notes`` are what somebody decided, or what waits, and nothing unhealthy."""

    healthy: bool
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...] = ()
    controller: ControllerState
    nodes: tuple[NodeView, ...]
    stores: tuple[StoreView, ...]
    tables: tuple[TableView, ...] = ()
    rebuilds: tuple[AnyRebuildView, ...]
